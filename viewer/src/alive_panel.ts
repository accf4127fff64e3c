// What is alive at the picked moment: a treemap or a flame graph, by module, by op or by line.
import {AliveSets, byCategory, moduleTree, opTree, stackTree} from './alive';
import type {Holding, TreeNode} from './alive';
import {choice, h, replace, section} from './dom';
import {count, percent, size, time} from './format';
import {FLAME_ROW, flame, treemap} from './layout';
import type {Tile} from './layout';
import {colourOf, isLight} from './palette';
import type {State} from './state';

type Grouping = 'module' | 'op' | 'stack';
type Picture = 'treemap' | 'flame';

export class AlivePanel {
  readonly element: HTMLElement;
  private readonly heading = h('p', {class: 'moment', id: 'moment', 'aria-live': 'polite'});
  private readonly note = h('p', {class: 'hint', id: 'resolution'});
  private readonly crumbs = h('nav', {class: 'crumbs', 'aria-label': 'Path'});
  private readonly picture = h('div', {class: 'picture', id: 'picture'});
  private readonly list = h('table', {class: 'plain', id: 'alive-categories'});
  private sets: AliveSets;
  private grouping: Grouping = 'module';
  private kind: Picture = 'treemap';
  private path: TreeNode[] = [];
  private holdings: Holding[] = [];

  constructor(private readonly state: State) {
    this.sets = new AliveSets(state.device, state.report);
    this.element = section('alive', 'What is alive', this.heading,
      h('div', {class: 'tools'},
        choice<Grouping>('Group by', this.groupings(), this.grouping, (value) => {
          this.grouping = value;
          this.rebuild();
        }),
        choice<Picture>('Picture', [['treemap', 'Treemap'], ['flame', 'Flame graph']], this.kind, (value) => {
          this.kind = value;
          this.draw();
        })),
      this.crumbs, h('div', {class: 'alive-box'}, this.picture, h('div', {class: 'side'}, this.list)), this.note);
    state.onPick(() => this.show());
    window.addEventListener('themechange', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.picture);
  }

  show(): void {
    const {device, picked} = this.state;
    const point = this.sets.nearestPoint(picked);
    this.holdings = this.sets.holdings(point);
    const event = device.points.event[point]!;
    const total = device.points.allocated[point]!;
    const place = this.state.place(event);
    const isPeak = event === device.summary.peak.event;
    const module = isPeak ? device.summary.peak.module : place.module;
    const words = [place.step, isPeak ? device.summary.peak.phase : place.phase, module,
                   isPeak && device.summary.peak.op].filter(Boolean).join(' · ');
    this.heading.dataset['bytes'] = String(total);
    this.heading.dataset['event'] = String(event);
    replace(this.heading, h('strong', {}, size(total)), isPeak ? ' at the peak' : ` after event ${count(event)}`,
            ` (${time(device.points.time[point]!)})`, words && ` · ${words}`);
    this.note.textContent = this.resolution(point);
    this.drawList(total);
    this.rebuild();
  }

  private groupings(): (readonly [Grouping, string])[] {
    const known: (readonly [Grouping, string])[] = [['module', 'By module'], ['op', 'By op']];
    return this.state.report.stacks.length > 1 ? [...known, ['stack', 'By line']] : known;
  }

  private resolution(point: number): string {
    const {device, picked} = this.state;
    const every = device.alive.every;
    const exact = every <= 1 ? 'Known exactly after every event.'
        : `Known exactly at ${count(device.alive.points.length)} moments, at most ${count(every)} events apart; closer in the first, the last and the highest step.`;
    if (point === picked) return exact;
    const distance = device.points.event[point]! - device.points.event[picked]!;
    return `Shown for the nearest moment that is kept, ${count(Math.abs(distance))} events ${distance > 0 ? 'later' : 'earlier'} than the one you picked. ${exact}`;
  }

  private drawList(total: number): void {
    replace(this.list, h('caption', {}, 'By category'), ...byCategory(this.holdings).map(([name, bytes]) => {
      const bar = h('i', {class: 'bar'});
      bar.style.background = colourOf(name);
      bar.style.width = `${100 * bytes / Math.max(total, 1)}%`;
      return h('tr', {'data-category': name, 'data-bytes': bytes}, h('th', {scope: 'row'}, name, bar),
               h('td', {}, size(bytes)), h('td', {class: 'share'}, percent(bytes, total)));
    }));
  }

  private rebuild(): void {
    const trees = {module: moduleTree, op: opTree, stack: stackTree};
    const tree = trees[this.grouping](this.holdings, this.state.report);
    // Stay at the same place of the tree when the moment changes.
    const names = this.path.slice(1).map((node) => node.full);
    this.path = [tree];
    for (const name of names) {
      const next = this.path.at(-1)!.children.find((child) => child.full === name);
      if (!next) break;
      this.path.push(next);
    }
    this.draw();
  }

  private draw(): void {
    const root = this.path.at(-1);
    if (!root) return;
    this.drawCrumbs();
    const width = this.picture.clientWidth;
    const isMap = this.kind === 'treemap';
    const height = isMap ? Math.max(260, Math.min(440, width * 0.6)) : 0;
    const tiles = isMap ? treemap(root, {x: 0, y: 0, width, height}) : flame(root, width);
    const rows = tiles.reduce((most, tile) => Math.max(most, tile.depth + 1), 1);
    this.picture.style.height = `${isMap ? height : rows * FLAME_ROW}px`;
    this.picture.dataset['kind'] = this.kind;
    replace(this.picture, ...tiles.map((tile) => this.tile(tile, root)));
    if (tiles.length === 0 || root.bytes === 0) this.picture.textContent = 'Nothing is alive here.';
  }

  private tile(tile: Tile, root: TreeNode): HTMLElement {
    const {node} = tile;
    const label = `${node.full}, ${size(node.bytes)}, ${percent(node.bytes, this.path[0]!.bytes)}`;
    const opens = node.category === null && node !== root && node.children.length > 0;
    const element = opens
        ? h('button', {type: 'button', click: () => { this.path.push(node); this.draw(); this.focusCrumb(); }})
        : h('div', {});
    element.className = `tile${tile.framed ? ' framed' : ''}`;
    element.title = label;
    element.setAttribute('aria-label', label);
    element.dataset['bytes'] = String(node.bytes);
    Object.assign(element.style, {left: `${tile.x}px`, top: `${tile.y}px`,
                                  width: `${Math.max(tile.width - 1, 1)}px`, height: `${Math.max(tile.height - 1, 1)}px`});
    this.paint(element, tile);
    if (tile.width > 34 && tile.height > 13) {
      element.append(h('span', {class: 'name'}, node.name));
      if (tile.width > 110) element.append(h('span', {class: 'size'}, size(node.bytes)));
    }
    return element;
  }

  // A category's own colour; for what holds several, their shares side by side.
  private paint(element: HTMLElement, {node, framed}: Tile): void {
    if (framed) return;
    const shares = [...node.shares].sort((a, b) => b[1] - a[1]);
    const colour = colourOf(node.category ?? shares[0]?.[0] ?? 'Other');
    element.style.color = isLight(colour) ? '#14171c' : '#fff';
    element.style.background = colour;
    if (node.category !== null || shares.length < 2) return;
    let at = 0;
    const stops = shares.map(([name, bytes]) => {
      const from = at;
      at += 100 * bytes / node.bytes;
      return `${colourOf(name)} ${from}% ${at}%`;
    });
    element.style.background = `linear-gradient(90deg, ${stops.join(', ')})`;
  }

  private drawCrumbs(): void {
    replace(this.crumbs, ...this.path.map((node, depth) => depth === this.path.length - 1
        ? h('span', {'aria-current': 'location'}, `${node.name} ${size(node.bytes)}`)
        : h('button', {type: 'button', click: () => { this.path.length = depth + 1; this.draw(); this.focusCrumb(); }}, node.name)));
  }
  private focusCrumb(): void {
    this.crumbs.querySelector<HTMLElement>('button:last-of-type')?.focus({preventScroll: true});
  }
}
