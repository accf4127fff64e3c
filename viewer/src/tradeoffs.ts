// What recomputing saves in each module, as a SACEstimator found it.
import {h, section} from './dom';
import {size} from './format';
import type {State} from './state';

interface Curve {
  memory: number;
  ms: number;
  points: [number, number][];
  pieces: [number, number, number][];
}

const [WIDTH, HEIGHT, EDGE] = [260, 170, 26];
const MOST = 24;

function isRow(row: unknown, length: number): boolean {
  return Array.isArray(row) && row.length === length && row.every(Number.isFinite);
}

function isCurve(curve: unknown): curve is Curve {
  const {memory, ms, points, pieces} = (curve ?? {}) as Partial<Curve>;
  return Number.isFinite(memory) && Number.isFinite(ms) && Array.isArray(points) && Array.isArray(pieces) &&
         points.every((row) => isRow(row, 2)) && pieces.every((row) => isRow(row, 3));
}

export function readTradeoffs(text: string | undefined): [string, Curve][] {
  if (text === undefined) return [];
  try {
    return Object.entries(JSON.parse(text) as Record<string, unknown>)
      .filter((entry): entry is [string, Curve] => isCurve(entry[1]));
  } catch {
    return [];
  }
}

function svg(tag: string, properties: Record<string, string | number>): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
  return element;
}

function picture(curve: Curve): SVGElement {
  const bounded = (share: number) => Math.min(Math.max(share, 0), 1.02);
  const x = (share: number) => EDGE + bounded(share) * (WIDTH - 2 * EDGE);
  const y = (share: number) => HEIGHT - EDGE - bounded(share) * (HEIGHT - 2 * EDGE);
  const image = svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: 'img'});
  image.append(svg('path', {d: `M${x(0)} ${y(1)}V${y(0)}H${x(1)}`, fill: 'none', stroke: '#8f959e'}));
  curve.pieces.forEach(([from, slope, intercept], i) => {
    const to = curve.pieces[i + 1]?.[0] ?? 1;
    const at = (share: number) => `${x(share)} ${y(slope * share + intercept)}`;
    image.append(svg('path', {d: `M${at(from)}L${at(to)}`, stroke: '#4a73d1', 'stroke-width': 2}));
  });
  for (const [share, cost] of curve.points) image.append(svg('circle', {cx: x(share), cy: y(cost), r: 2.5, fill: '#e4695a'}));
  return image;
}

export function tradeoffsSection(state: State): HTMLElement | null {
  const curves = readTradeoffs(state.report.summary.info['tradeoffs']);
  if (curves.length === 0) return null;
  const shown = curves.slice(0, MOST).map(([name, curve]) => h('figure', {}, h('figcaption', {}, name,
    h('div', {class: 'hint'}, `${size(curve.memory)}, ${curve.ms.toFixed(3)} ms`)), picture(curve)));
  return section('tradeoffs', 'What recomputing saves',
    h('p', {class: 'hint'}, 'Across: share of a module\'s memory that is discarded; up: share of its time that is computed again.' +
      (curves.length > MOST ? ` The first ${MOST} of ${curves.length} modules.` : '')),
    h('div', {class: 'figures'}, ...shown));
}
