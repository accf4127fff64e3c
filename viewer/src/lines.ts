// Lines of the program, its regions, and what grows with every step.
import {heldOverTime, placeName} from './alive';
import {h, replace, section} from './dom';
import {count, size} from './format';
import type {CodePlace, GrowthRow, LineRow, RegionRow} from './model';
import type {State} from './state';
import {DataTable} from './table';

const dash = (bytes: number) => bytes === 0 ? '–' : size(bytes);

function placeCell(place: CodePlace, ...more: (Node | string)[]): HTMLElement {
  return h('span', {class: 'path', title: `${place.file}:${place.line}`}, placeName(place),
           place.text && h('small', {class: 'source'}, place.text), ...more);
}

const WIDTH = 900;
const HEIGHT = 140;

// What a line holds over the run, as steps: between two points it is what it was at the first.
function chart(held: readonly [number, number][], event: (point: number) => number): SVGElement {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const most = Math.max(...held.map(([, bytes]) => bytes), 1);
  const last = Math.max(event(held.at(-1)?.[0] ?? 0), 1);
  const x = (point: number) => WIDTH * event(point) / last;
  const y = (bytes: number) => HEIGHT - (HEIGHT - 4) * bytes / most;
  let path = `M0 ${HEIGHT}`;
  for (const [point, bytes] of held) path += `H${x(point).toFixed(1)}V${y(bytes).toFixed(1)}`;
  path += `H${WIDTH}V${HEIGHT}Z`;
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  svg.setAttribute('class', 'line-chart');
  svg.setAttribute('aria-label', `Held over the run, at most ${size(most)}`);
  const shape = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  shape.setAttribute('d', path);
  svg.append(shape);
  return svg;
}

export function linesSection(state: State): HTMLElement | null {
  const rows = state.device.summary.lines ?? [];
  if (rows.length === 0) return null;
  const detail = h('div', {id: 'line-over-time', 'aria-live': 'polite'});
  const show = (row: LineRow) => {
    const {points} = state.device;
    const held = heldOverTime(state.device, state.report, row);
    const most = Math.max(...held.map(([, bytes]) => bytes), 0);
    const at = held.find(([, bytes]) => bytes === most)?.[0] ?? 0;
    detail.dataset['most'] = String(most);
    replace(detail, h('p', {}, h('strong', {}, placeName(row)),
                      ` holds at most ${size(most)} at the moments that are kept, backward of it included. `,
                      h('button', {type: 'button', click: () => {
                        state.pick(at);
                        document.getElementById('alive')?.scrollIntoView({behavior: 'smooth'});
                      }}, 'Look at that moment')),
            chart(held, (point) => points.event[point]!));
  };
  const name = (row: LineRow): Node => {
    const button = h('button', {type: 'button', class: 'link', title: 'Its blocks over time', click: () => show(row)}, placeName(row));
    return h('span', {class: 'path', title: `${row.file}:${row.line}`}, button,
             row.text && h('small', {class: 'source'}, row.text),
             row.called_from && h('small', {class: 'source'}, `backward of it, called at ${placeName(row.called_from)}`));
  };
  const table = new DataTable<LineRow>({
    id: 'lines-table', label: 'lines', rows, sortBy: 1,
    searched: (row) => `${row.file} ${row.function} ${row.text}`,
    columns: [
      {title: 'Line', value: (row) => `${row.file}:${row.line}`, show: name, text: true},
      {title: 'Held at peak', value: (row) => row.at_peak, show: (row) => dash(row.at_peak)},
      {title: 'Allocated in all', value: (row) => row.allocated, show: (row) => dash(row.allocated)},
      {title: 'Largest', value: (row) => row.largest, show: (row) => dash(row.largest), wide: true},
      {title: 'Allocations', value: (row) => row.allocations, show: (row) => count(row.allocations), wide: true},
    ],
  });
  return section('lines', 'Lines of the program', table.element, detail);
}

export function regionsSection(state: State): HTMLElement | null {
  const rows = state.device.summary.regions ?? [];
  if (rows.length === 0) return null;
  const table = new DataTable<RegionRow>({
    id: 'regions-table', label: 'regions', rows, searched: (row) => row.path,
    columns: [
      {title: 'Region', value: (row) => row.path, text: true},
      {title: 'Held at peak', value: (row) => row.at_peak, show: (row) => dash(row.at_peak)},
      {title: 'Highest inside', value: (row) => row.highest, show: (row) => dash(row.highest)},
      {title: 'Entered', value: (row) => row.entered, show: (row) => count(row.entered)},
    ],
  });
  return section('regions', 'Regions', table.element);
}

export function growthSection(state: State): HTMLElement | null {
  const rows = state.device.summary.growth ?? [];
  if (rows.length === 0) return null;
  const where = (row: GrowthRow) => row.place ? placeName(row.place) : [row.op, row.module].filter(Boolean).join(' in ');
  const table = new DataTable<GrowthRow>({
    id: 'growth-table', label: 'places', rows, searched: where, sortBy: 1,
    columns: [
      {title: 'Kept from', value: where, show: (row) => row.place ? placeCell(row.place) : where(row), text: true},
      {title: 'Each step', value: (row) => row.per_step, show: (row) => size(row.per_step)},
      {title: 'By now', value: (row) => row.kept, show: (row) => size(row.kept)},
      {title: 'Blocks', value: (row) => row.blocks, show: (row) => count(row.blocks), wide: true},
      {title: 'Steps', value: (row) => row.last_step, show: (row) => `${row.first_step}–${row.last_step}`, wide: true},
    ],
  });
  return section('growth', 'Grows with every step', table.element);
}
