// The allocator's segments, drawn to scale: what is used, and what is free between.
import {choice, h, replace, section} from './dom';
import {count, percent, plural, size} from './format';
import type {MapBlock, MapSegment, SegmentMap} from './model';
import {colourOf, theme} from './palette';
import type {State} from './state';

const ROW = 15;
const GAP = 3;

interface Placed {
  x: number;
  y: number;
  width: number;
  segment: MapSegment;
}

class MapDrawing {
  readonly element = h('div', {class: 'map-box'});
  private readonly canvas = h('canvas', {id: 'segment-map', role: 'img'});
  private readonly tip = h('div', {class: 'tip', hidden: true});
  private placed: Placed[] = [];
  private scale = 1;  // pixels per byte
  map: SegmentMap | null = null;

  constructor() {
    this.element.append(this.canvas, this.tip);
    this.canvas.addEventListener('mousemove', (event) => this.onMove(event));
    this.canvas.addEventListener('mouseleave', () => { this.tip.hidden = true; });
    new ResizeObserver(() => this.draw()).observe(this.element);
    window.addEventListener('themechange', () => this.draw());
  }

  // In rows, as words of a text: all segments to one scale, none broken.
  private place(width: number): number {
    const segments = this.map?.segments ?? [];
    const largest = segments.reduce((most, each) => Math.max(most, each.bytes), 1);
    const total = segments.reduce((sum, each) => sum + each.bytes, 0);
    this.scale = (width - 1) / Math.max(largest, total / 24);
    this.placed = [];
    let x = 0;
    let y = 0;
    for (const segment of segments) {
      const room = Math.max(segment.bytes * this.scale, 2);
      if (x > 0 && x + room > width) {
        x = 0;
        y += ROW + GAP;
      }
      this.placed.push({x, y, width: room, segment});
      x += room + 2;
    }
    return y + ROW;
  }

  draw(): void {
    const width = this.element.clientWidth;
    if (!this.map || width === 0) return;
    const height = this.place(width);
    const ratio = devicePixelRatio;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    this.canvas.setAttribute('aria-label', `${plural(this.map.segments.length, 'segment')}, ${size(this.map.reserved)}, of which ${size(this.map.allocated)} are used`);
    const ctx = this.canvas.getContext('2d')!;
    ctx.scale(ratio, ratio);
    const [free, line] = [theme('--free'), theme('--line-strong')];
    for (const {x, y, width: room, segment} of this.placed) {
      ctx.fillStyle = free;
      ctx.fillRect(x, y, room, ROW);
      for (const block of segment.blocks) {
        ctx.fillStyle = colourOf(block.category);
        const wide = block.bytes * this.scale;
        ctx.fillRect(x + block.offset * this.scale, y, wide > 1.5 ? wide - 0.4 : wide, ROW);
      }
      ctx.strokeStyle = line;
      ctx.lineWidth = 1;
      ctx.strokeRect(x + 0.5, y + 0.5, Math.max(room - 1, 1), ROW - 1);
    }
  }

  private onMove(event: MouseEvent): void {
    const found = this.placed.find(({x, y, width}) => event.offsetX >= x && event.offsetX <= x + width && event.offsetY >= y && event.offsetY <= y + ROW);
    this.tip.hidden = !found;
    if (!found) return;
    const {segment} = found;
    const offset = (event.offsetX - found.x) / this.scale;
    const block = segment.blocks.find((each: MapBlock) => offset >= each.offset && offset < each.offset + each.bytes);
    replace(this.tip, h('div', {}, block ? `${block.category} ${size(block.bytes)}` : 'free'),
      h('div', {class: 'when'}, `segment of ${size(segment.bytes)}, ${percent(segment.allocated, segment.bytes)} used, stream ${segment.stream}`),
      h('div', {class: 'when'}, `0x${segment.address.toString(16)}`));
    this.tip.style.left = `${Math.max(0, Math.min(event.offsetX + 12, this.element.clientWidth - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${event.offsetY + 18}px`;
  }
}

function fact(label: string, value: string, id = ''): HTMLElement {
  return h('div', {class: 'fact small'}, h('dt', {}, label), h('dd', {}, h('strong', {id}, value)));
}

// How much of the free memory cannot serve one large request.
function fragmentation(map: SegmentMap): string {
  const free = map.reserved - map.allocated;
  return free > 0 ? percent(free - map.largestFree, free) : '–';
}

export function segmentsSection(state: State): HTMLElement {
  const {maps, name} = state.device;
  if (maps.length === 0) {
    const why = name.startsWith('cpu') ? 'Host memory has no caching allocator, so there are no segments to draw.'
                                       : 'This recording says nothing about segments.';
    return section('segments', 'Allocator segments', h('p', {class: 'hint'}, why));
  }
  const drawing = new MapDrawing();
  const facts = h('dl', {class: 'facts'});
  const note = h('p', {class: 'hint'});
  const show = (map: SegmentMap) => {
    const free = map.reserved - map.allocated;
    replace(facts, fact('Reserved', size(map.reserved), 'map-reserved'), fact('Allocated', size(map.allocated), 'map-allocated'),
            fact('Free inside', `${size(free)} (${percent(free, map.reserved)})`), fact('Largest free piece', size(map.largestFree)),
            fact('Fragmentation', fragmentation(map)), fact('Segments', count(map.segments.length + map.leftOut)));
    note.textContent = [
      map.simulated ? 'The recording does not tell which block lies in which segment: these are what torch’s caching allocator would take, simulated with its default settings.' : '',
      map.leftOut > 0 ? `${plural(map.leftOut, 'smaller segment')} are not drawn.` : '',
      'Fragmentation is the share of the free memory that is not in the largest free piece.',
    ].filter(Boolean).join(' ');
    drawing.map = map;
    drawing.draw();
  };
  const titles: Record<string, string> = {peak: 'At the peak', reserved: 'At the highest reserved'};
  const tools = maps.length > 1
      ? choice('Moment', maps.map((map, i) => [String(i), titles[map.title] ?? map.title] as const), '0', (i) => show(maps[Number(i)]!))
      : null;
  show(maps[0]!);
  return section('segments', 'Allocator segments', tools, facts, drawing.element, note);
}
