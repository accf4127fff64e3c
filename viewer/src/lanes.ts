// Steps, phases and module calls below the timeline, on the same axis.
import type uPlot from 'uplot';
import {h} from './dom';
import {count} from './format';
import {lastAtOrBefore} from './columns';
import {PHASES, SpanKind} from './model';
import {theme} from './palette';
import type {State} from './state';

const ROW = 18;
const MOST_DEPTHS = 4;

interface Drawn {
  x: number;
  width: number;
  row: number;
  span: number;
}

export class Lanes {
  readonly element = h('div', {class: 'lanes'});
  private readonly canvas = h('canvas', {id: 'lanes', role: 'img', 'aria-label': 'Steps, phases and module calls'});
  private drawn: Drawn[] = [];

  constructor(private readonly state: State, zoomTo: (first: number, last: number) => void,
              showTip: (content: Node | null, x: number, y: number) => void) {
    this.element.append(this.canvas);
    this.canvas.addEventListener('mousemove', (event) => {
      const hit = this.hit(event);
      showTip(hit && h('div', {}, this.name(hit.span), h('div', {class: 'when'}, this.extent(hit.span))), event.offsetX, 220);
    });
    this.canvas.addEventListener('mouseleave', () => showTip(null, 0, 0));
    this.canvas.addEventListener('click', (event) => {
      const hit = this.hit(event);
      if (hit) zoomTo(state.report.spans.first[hit.span]!, state.report.spans.last[hit.span]!);
    });
  }

  private hit(event: MouseEvent): Drawn | null {
    const row = Math.floor(event.offsetY / ROW);
    const inside = (each: Drawn) => each.row === row && event.offsetX >= each.x && event.offsetX <= each.x + Math.max(each.width, 2);
    return this.drawn.findLast(inside) ?? null;
  }

  private name(span: number): string {
    const {spans, modules} = this.state.report;
    const subject = spans.subject[span]!;
    switch (spans.kind[span]! as SpanKind) {
      case SpanKind.Step: return `Step ${subject}`;
      case SpanKind.Phase: return PHASES[subject] ?? '';
      case SpanKind.Forward: return modules[subject]?.path ?? '';
      case SpanKind.Backward: return `${modules[subject]?.path ?? ''} backward`;
      case SpanKind.Recompute: return `${modules[subject]?.path ?? ''} recomputed`;
    }
  }
  private extent(span: number): string {
    const {spans} = this.state.report;
    return `events ${count(spans.first[span]!)} to ${count(spans.last[span]!)}`;
  }
  private label(span: number): string {
    const {spans, modules} = this.state.report;
    return (spans.kind[span]! as SpanKind) >= SpanKind.Forward ? modules[spans.subject[span]!]?.name ?? '' : this.name(span);
  }
  private colour(span: number): string {
    const {spans} = this.state.report;
    const subject = spans.subject[span]!;
    switch (spans.kind[span]! as SpanKind) {
      case SpanKind.Step: return theme(subject % 2 ? '--lane-step' : '--lane-step-even');
      case SpanKind.Phase: return theme(['--lane-forward', '--lane-backward', '--lane-optimizer'][subject] ?? '--lane-step');
      case SpanKind.Forward: return theme('--lane-forward');
      case SpanKind.Backward: return theme('--lane-backward');
      case SpanKind.Recompute: return theme('--lane-recompute');
    }
  }

  // Only the rows that have something: [row of each kind and depth].
  private rows(): {row: (span: number) => number; count: number} {
    const {spans} = this.state.report;
    const keyOf = (span: number) => Math.min(spans.kind[span]!, 2) * 10 + spans.depth[span]!;
    const keys = new Set<number>();
    for (let i = 0; i < spans.kind.length; i++) if (spans.depth[i]! < MOST_DEPTHS) keys.add(keyOf(i));
    const order = [...keys].sort((a, b) => a - b);
    return {row: (span) => order.indexOf(keyOf(span)), count: order.length};
  }

  // Events to pixels: between points of the timeline the axis may be time.
  private position(chart: uPlot, event: number): number {
    if (this.state.axis === 'event') return chart.valToPos(event, 'x');
    const {points} = this.state.device;
    const before = Math.max(lastAtOrBefore(points.event, event), 0);
    const after = Math.min(before + 1, points.event.length - 1);
    const gap = points.event[after]! - points.event[before]!;
    const share = gap > 0 ? (event - points.event[before]!) / gap : 0;
    return chart.valToPos(points.time[before]! + share * (points.time[after]! - points.time[before]!), 'x');
  }

  draw(chart: uPlot): void {
    const {spans} = this.state.report;
    const {row, count: rows} = this.rows();
    const ratio = devicePixelRatio;
    const width = chart.width;
    const [left, right] = [chart.over.offsetLeft, chart.over.offsetLeft + chart.over.clientWidth];
    this.canvas.style.height = `${rows * ROW}px`;
    this.canvas.style.width = `${width}px`;
    this.canvas.width = width * ratio;
    this.canvas.height = rows * ROW * ratio;
    const ctx = this.canvas.getContext('2d')!;
    ctx.scale(ratio, ratio);
    ctx.font = '11px system-ui, sans-serif';
    ctx.textBaseline = 'middle';
    this.drawn = [];
    for (let i = 0; i < spans.first.length; i++) {
      if (spans.depth[i]! >= MOST_DEPTHS) continue;
      const from = Math.max(left + this.position(chart, spans.first[i]!), left);
      const to = Math.min(left + this.position(chart, spans.last[i]!), right);
      if (to < left || from > right || to - from < 0.3) continue;
      this.drawSpan(ctx, {x: from, width: to - from, row: row(i), span: i});
    }
  }

  private drawSpan(ctx: CanvasRenderingContext2D, drawn: Drawn): void {
    this.drawn.push(drawn);
    const {x, width, row, span} = drawn;
    ctx.fillStyle = this.colour(span);
    ctx.fillRect(x, row * ROW + 1, Math.max(width - 1, 0.5), ROW - 2);
    if (width < 26) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, row * ROW, width - 3, ROW);
    ctx.clip();
    ctx.fillStyle = theme('--lane-text');
    ctx.fillText(this.label(span), x + 4, row * ROW + ROW / 2 + 0.5);
    ctx.restore();
  }
}
