// Memory over time, stacked by category: hover to read, drag to zoom, click to look into a moment.
import uPlot from 'uplot';
import {choice, h, replace, section} from './dom';
import {count, shortSize, size, time} from './format';
import {Lanes} from './lanes';
import {colourOf, inStackOrder, theme} from './palette';
import type {Axis, State} from './state';

const HEIGHT = 300;

export class Timeline {
  readonly element: HTMLElement;
  private readonly chartBox = h('div', {class: 'chart', tabindex: 0, id: 'chart', role: 'application',
    'aria-label': 'Memory over time. Arrow keys move the moment that is looked into, plus and minus zoom, Home goes to the peak, Escape shows everything.'});
  private readonly tip = h('div', {class: 'tip', id: 'tip', hidden: true});
  private readonly legend = h('ul', {class: 'legend'});
  private readonly lanes: Lanes;
  private chart: uPlot | null = null;
  private categories: string[] = [];

  constructor(private readonly state: State) {
    this.lanes = new Lanes(state, (first, last) => this.zoomTo(first, last), (text, x, y) => this.showTip(text, x, y));
    this.element = section('timeline', 'Memory over time',
      h('div', {class: 'tools'},
        choice<Axis>('Axis', [['event', 'By event'], ['time', 'By time']], state.axis, (axis) => {
          state.axis = axis;
          this.draw();
        }),
        h('button', {type: 'button', id: 'to-peak', click: () => { this.reset(); state.pickPeak(); }}, 'Go to the peak'),
        h('button', {type: 'button', 'aria-label': 'Zoom in', id: 'zoom-in', click: () => this.zoom(0.5)}, '+'),
        h('button', {type: 'button', 'aria-label': 'Zoom out', id: 'zoom-out', click: () => this.zoom(2)}, '−'),
        h('button', {type: 'button', id: 'zoom-all', click: () => this.reset()}, 'All')),
      h('div', {class: 'chart-box'}, this.chartBox, this.tip), this.lanes.element, this.legend,
      h('p', {class: 'hint'}, 'Drag to zoom, click a moment to see what is alive then. Each point is the highest moment of its stretch.'));
    this.chartBox.addEventListener('keydown', (event) => this.onKey(event));
    state.onPick(() => this.chart?.redraw(false));
    window.addEventListener('themechange', () => this.draw());
    new ResizeObserver(() => this.resize()).observe(this.chartBox);
  }

  private get xs(): Float64Array {
    const {points} = this.state.device;
    return this.state.axis === 'event' ? points.event : points.time;
  }
  private xText(value: number): string {
    return this.state.axis === 'event' ? count(Math.round(value)) : time(value);
  }

  draw(): void {
    this.chart?.destroy();
    const {device} = this.state;
    const used = device.categories.filter((_, c) => device.points.byCategory[c]!.some((bytes) => bytes > 0));
    this.categories = inStackOrder(used);
    // Painted from the top of the stack to its bottom, each over what is above it.
    const sums = new Float64Array(this.xs.length);
    const stacked = this.categories.map((name) => {
      const held = device.points.byCategory[device.categories.indexOf(name)]!;
      for (let i = 0; i < sums.length; i++) sums[i] = sums[i]! + held[i]!;
      return sums.slice();
    });
    const reserved = device.summary.peak_reserved !== null;
    const data = [this.xs, ...stacked.reverse(), ...(reserved ? [device.points.reserved] : [])];
    this.chart = new uPlot(this.options(reserved), data as unknown as uPlot.AlignedData, this.chartBox);
    this.chart.over.addEventListener('mouseleave', () => this.hideTip());
    this.listenForClicks(this.chart);
    this.drawLegend(reserved);
  }

  private options(reserved: boolean): uPlot.Options {
    const stepped = uPlot.paths.stepped!({align: 1});
    const axis: uPlot.Axis = {
      stroke: theme('--muted'), font: '12px system-ui, sans-serif', ticks: {show: false},
      grid: {stroke: theme('--line'), width: 1}};
    return {
      width: this.width(), height: HEIGHT, padding: [10, 30, 0, 0],
      cursor: {drag: {x: true, y: false, setScale: true, dist: 4}, points: {show: false}, y: false},
      legend: {show: false},
      scales: {x: {time: false}, y: {range: (_, __, highest) => [0, this.top(highest ?? 1)]}},
      axes: [
        {...axis, values: (_, ticks) => ticks.map((tick) => this.xText(tick)), size: 30, space: 90},
        {...axis, values: (_, ticks) => ticks.map(shortSize), size: 74,
         incrs: Array.from({length: 44}, (_, power) => 2 ** power)},
      ],
      series: [
        {},
        ...[...this.categories].reverse().map((name): uPlot.Series => ({
          label: name, paths: stepped, fill: colourOf(name), width: 0, points: {show: false}})),
        ...(reserved ? [{label: 'Reserved', paths: stepped, stroke: theme('--text'), width: 1.25,
                         dash: [5, 3], points: {show: false}}] : []),
      ],
      hooks: {
        setCursor: [(chart) => this.onCursor(chart)],
        draw: [(chart) => { this.drawMarks(chart); this.lanes.draw(chart); }],
      },
    };
  }

  // Room for the limit when the run comes near it.
  private top(highest: number): number {
    const {memory_limit: limit} = this.state.device.summary;
    return limit !== null && limit > highest && limit < 1.35 * highest ? limit * 1.03 : highest * 1.06;
  }

  private drawMarks(chart: uPlot): void {
    const {ctx, bbox} = chart;
    const x = chart.valToPos(this.xs[this.state.picked] ?? 0, 'x', true);
    ctx.save();
    if (x >= bbox.left && x <= bbox.left + bbox.width) {
      ctx.fillStyle = theme('--text');
      ctx.globalAlpha = 0.75;
      ctx.fillRect(Math.round(x), bbox.top, devicePixelRatio, bbox.height);
      ctx.globalAlpha = 1;
      ctx.beginPath();
      ctx.arc(x, bbox.top, 5 * devicePixelRatio, 0, 7);
      ctx.fill();
    }
    const {memory_limit: limit} = this.state.device.summary;
    const y = limit === null ? -1 : chart.valToPos(limit, 'y', true);
    if (limit !== null && y >= bbox.top && y < bbox.top + bbox.height) {
      ctx.strokeStyle = ctx.fillStyle = theme('--bad');
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = 'left';
      ctx.fillText(`limit ${size(limit)}`, bbox.left + 6, y - 6);
    }
    ctx.restore();
  }

  // A press that does not move picks a moment; one that does zooms.
  private listenForClicks(chart: uPlot): void {
    let pressed = 0;
    chart.over.addEventListener('mousedown', (event) => { pressed = event.clientX; });
    chart.over.addEventListener('click', (event) => {
      if (Math.abs(event.clientX - pressed) > 3) return;
      const x = event.clientX - chart.over.getBoundingClientRect().left;
      this.state.pick(chart.posToIdx(x));
      this.chartBox.focus({preventScroll: true});
    });
  }

  private onCursor(chart: uPlot): void {
    const {idx, left} = chart.cursor;
    if (idx === null || idx === undefined || left === undefined || left < 0) return this.hideTip();
    const {points, categories, summary} = this.state.device;
    const place = this.state.place(points.event[idx]!);
    const rows = [...this.categories].reverse().flatMap((name) => {
      const bytes = points.byCategory[categories.indexOf(name)]![idx]!;
      if (bytes <= 0) return [];
      const swatch = h('i', {});
      swatch.style.background = colourOf(name);
      return [h('div', {class: 'row', 'data-category': name, 'data-bytes': bytes}, swatch, h('span', {}, name), h('b', {}, size(bytes)))];
    });
    const head = h('div', {class: 'row total', 'data-event': points.event[idx]!, 'data-bytes': points.allocated[idx]!},
                   h('span', {}, 'Allocated'), h('b', {}, size(points.allocated[idx]!)));
    const reserved = summary.peak_reserved !== null &&
        h('div', {class: 'row'}, h('span', {}, 'Reserved'), h('b', {}, size(points.reserved[idx]!)));
    const when = h('div', {class: 'when'}, `event ${count(points.event[idx]!)}, ${time(points.time[idx]!)}`);
    const text = [place.step, place.phase, place.module].filter(Boolean).join(' · ');
    this.showTip(h('div', {}, head, reserved, ...rows, when, text && h('div', {class: 'when'}, text)),
                 chart.over.offsetLeft + left, 20);
  }

  private showTip(content: Node | null, x: number, y: number): void {
    if (!content) return this.hideTip();
    replace(this.tip, content);
    this.tip.hidden = false;
    const room = this.chartBox.clientWidth;
    const width = this.tip.offsetWidth;
    const right = x + 14 + width < room;
    this.tip.style.left = `${Math.max(0, Math.min(right ? x + 14 : x - width - 14, room - width))}px`;
    this.tip.style.top = `${y}px`;
  }
  private hideTip(): void { this.tip.hidden = true; }

  private drawLegend(reserved: boolean): void {
    const items = [...this.categories].reverse().map((name) => {
      const swatch = h('i', {});
      swatch.style.background = colourOf(name);
      return h('li', {}, swatch, name);
    });
    if (reserved) items.push(h('li', {}, h('i', {class: 'dashed'}), 'Reserved'));
    replace(this.legend, ...items);
  }

  private range(): [number, number] {
    const {min, max} = this.chart!.scales['x']!;
    return [min ?? 0, max ?? 1];
  }
  private setRange(low: number, high: number): void {
    const first = this.xs[0] ?? 0;
    const last = this.xs[this.xs.length - 1] ?? 1;
    if (high - low < (last - first) * 1e-6) return;
    this.chart?.setScale('x', {min: Math.max(low, first), max: Math.min(high, last)});
  }
  private zoom(factor: number): void {
    const [low, high] = this.range();
    const picked = this.xs[this.state.picked] ?? low;
    const centre = picked >= low && picked <= high ? picked : (low + high) / 2;
    this.setRange(centre - (centre - low) * factor, centre + (high - centre) * factor);
  }
  private reset(): void { this.setRange(-Infinity, Infinity); }

  // Events, a little wider.
  zoomTo(first: number, last: number): void {
    const {points} = this.state.device;
    const at = (event: number) => {
      if (this.state.axis === 'event') return event;
      const index = points.event.findIndex((each) => each >= event);
      return this.xs[index < 0 ? this.xs.length - 1 : index]!;
    };
    const [low, high] = [at(first), at(last)];
    this.setRange(low - (high - low) * 0.02, high + (high - low) * 0.02);
  }

  private onKey(event: KeyboardEvent): void {
    const step = event.shiftKey ? 20 : 1;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.state.pick(this.state.picked - step),
      ArrowRight: () => this.state.pick(this.state.picked + step),
      Home: () => this.state.pickPeak(),
      '+': () => this.zoom(0.5),
      '=': () => this.zoom(0.5),
      '-': () => this.zoom(2),
      Escape: () => this.reset(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
    this.follow();
  }
  // Keeps the picked moment in sight.
  private follow(): void {
    const [low, high] = this.range();
    const x = this.xs[this.state.picked] ?? low;
    if (x < low) this.setRange(x, x + high - low);
    else if (x > high) this.setRange(x - high + low, x);
  }

  private width(): number { return Math.max(this.chartBox.clientWidth, 260); }
  private resize(): void {
    if (!this.chart || this.chart.width === this.width()) return;
    this.chart.setSize({width: this.width(), height: HEIGHT});
  }
}
