// The last step of a virtual GPU on its streams, by the clock.
import {h, section} from './dom';
import {time} from './format';
import type {State} from './state';

interface Lane {
  device: number;
  name: string;
  spans: [number, number, number][];
}

export interface Streams {
  us: number;
  kinds: string[];
  streams: Lane[];
}

const WIDTH = 1000;
const ROW = 22;
const COLOURS = ['#3a9f68', '#4a73d1', '#b4b8bf', '#e3a21a', '#e17fae'];

function isLane(lane: unknown): lane is Lane {
  const {name, spans} = (lane ?? {}) as Partial<Lane>;
  return typeof name === 'string' && Array.isArray(spans) &&
         spans.every((span) => Array.isArray(span) && span.length === 3 && span.every(Number.isFinite));
}

// What the recording has, where it has the form that is expected.
export function readStreams(text: string | undefined): Streams | null {
  if (text === undefined) return null;
  try {
    const found = JSON.parse(text) as Partial<Streams>;
    if (!(Number(found.us) > 0) || !Array.isArray(found.kinds) || !Array.isArray(found.streams)) return null;
    return found.streams.every(isLane) ? found as Streams : null;
  } catch {
    return null;
  }
}

function svg(tag: string, properties: Record<string, string | number>, text?: string): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

function picture(streams: Streams, lane: Lane): SVGElement {
  const image = svg('svg', {viewBox: `0 0 ${WIDTH} ${ROW}`, preserveAspectRatio: 'none', width: '100%', height: ROW, role: 'img'});
  for (const [start, length, kind] of lane.spans) {
    const rect = svg('rect', {
      x: WIDTH * start / streams.us, width: Math.max(WIDTH * length / streams.us, 0.3), y: 2, height: ROW - 4,
      fill: COLOURS[kind] ?? COLOURS[2]!,
    });
    rect.append(svg('title', {}, `${streams.kinds[kind] ?? ''}, ${time(length * 1e3)} at ${time(start * 1e3)}`));
    image.append(rect);
  }
  return image;
}

function busy(lane: Lane): number {
  return lane.spans.reduce((sum, span) => sum + span[1], 0);
}

export function streamsSection(state: State): HTMLElement | null {
  const streams = readStreams(state.report.summary.info['streams']);
  if (streams === null || streams.streams.length === 0) return null;
  const rows = streams.streams.map((lane) => h('tr', {},
    h('th', {scope: 'row'}, lane.name), h('td', {class: 'lane'}, picture(streams, lane)),
    h('td', {}, time(busy(lane) * 1e3))));
  const legend = streams.kinds.map((kind, i) => {
    const sample = h('i');
    sample.style.background = COLOURS[i] ?? COLOURS[2]!;  // the page's policy allows no style attributes
    return h('span', {class: 'key'}, sample, kind);
  });
  return section('streams', 'Streams in the last step',
    h('p', {class: 'hint'}, `${time(streams.us * 1e3)} by the clock of the virtual GPU; what bounds each kernel: `, ...legend),
    h('table', {class: 'plain streams'}, ...rows));
}
