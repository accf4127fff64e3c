// Modules, ops and steps.
import {h, section} from './dom';
import {count, percent, size} from './format';
import type {ModuleRow, OpRow} from './model';
import {colourOf, inStackOrder} from './palette';
import type {State} from './state';
import {DataTable} from './table';

const dash = (bytes: number) => bytes === 0 ? '–' : size(bytes);

// What a module holds, as a bar of its categories.
function composition(row: ModuleRow, whole: number): HTMLElement {
  const bar = h('span', {class: 'mix', role: 'img', 'aria-label': Object.entries(row.by_category)
      .map(([name, bytes]) => `${name} ${size(bytes)}`).join(', ')});
  for (const name of inStackOrder(Object.keys(row.by_category))) {
    const part = h('i', {title: `${name} ${size(row.by_category[name]!)}`});
    part.style.background = colourOf(name);
    part.style.width = `${100 * row.by_category[name]! / Math.max(whole, 1)}%`;
    bar.append(part);
  }
  return bar;
}

export function modulesSection(state: State): HTMLElement | null {
  const rows = state.device.summary.modules;
  if (rows.length === 0) return null;
  const known = new Set(rows.map((row) => row.path));
  const parentOf = (path: string): string => {
    for (let dot = path.lastIndexOf('.'); dot > 0; dot = path.lastIndexOf('.', dot - 1)) {
      if (known.has(path.slice(0, dot))) return path.slice(0, dot);
    }
    return '';
  };
  const depths = new Map<string, number>();
  for (const row of rows) depths.set(row.path, (depths.get(parentOf(row.path)) ?? -1) + 1);
  const whole = Math.max(...rows.map((row) => row.peak), 1);
  let depth = 2;
  const held = (name: string) => ({
    title: name, value: (row: ModuleRow) => row.by_category[name] ?? 0,
    show: (row: ModuleRow) => dash(row.by_category[name] ?? 0), wide: true});
  const name = (row: ModuleRow): Node => {
    const inTree = table?.inOrder ?? true;
    const parent = inTree ? parentOf(row.path) : '';
    const cell = h('span', {class: 'path', title: `${row.path} (${row.type})`},
                   parent ? row.path.slice(parent.length + 1) : row.path);
    cell.style.paddingLeft = `${inTree ? 14 * (depths.get(row.path) ?? 0) : 0}px`;
    return cell;
  };
  let table: DataTable<ModuleRow> | null = null;
  const select = h('select', {'aria-label': 'Depth of the module tree', id: 'modules-depth'},
                   ...[1, 2, 3, 4, 5].map((value) => h('option', {value, selected: value === depth}, `${value} deep`)),
                   h('option', {value: 1000}, 'all levels'));
  select.addEventListener('change', () => {
    depth = Number(select.value);
    table?.draw();
  });
  table = new DataTable<ModuleRow>({
    id: 'modules-table', label: 'modules', rows, searched: (row) => `${row.path} ${row.type}`,
    initially: (row) => (depths.get(row.path) ?? 0) <= depth,
    columns: [
      {title: 'Module', value: (row) => row.path, show: name, text: true},
      {title: 'Type', value: (row) => row.type, text: true, wide: true},
      {title: 'At peak', value: (row) => row.peak, show: (row) => dash(row.peak)},
      {title: 'What', value: (row) => row.peak, show: (row) => composition(row, whole), text: true},
      {title: 'Itself', value: (row) => row.own, show: (row) => dash(row.own)},
      held('Parameter'), held('Gradient'), held('Activation'), held('Optstate'),
      {title: 'Highest while running', value: (row) => row.highest_while_running, show: (row) => dash(row.highest_while_running), wide: true},
      {title: 'Calls', value: (row) => row.forward_calls, show: (row) => count(row.forward_calls), wide: true},
    ],
  }, select);
  table.draw();
  const {outside_modules: outside} = state.device.summary.peak;
  return section('modules', 'Modules at the peak', table.element,
    outside > 0 && h('p', {class: 'hint'}, `${size(outside)} (${percent(outside, state.device.summary.peak_allocated)}) are held by no module.`));
}

export function opsSection(state: State): HTMLElement | null {
  const rows = state.device.summary.ops;
  if (rows.length === 0) return null;
  const bytes = (title: string, value: (row: OpRow) => number, wide = false) =>
      ({title, value, show: (row: OpRow) => dash(value(row)), wide});
  const number = (title: string, value: (row: OpRow) => number) =>
      ({title, value, show: (row: OpRow) => count(value(row)), wide: true});
  const table = new DataTable<OpRow>({
    id: 'ops-table', label: 'ops', rows, searched: (row) => row.name, sortBy: 1,
    columns: [
      {title: 'Op', value: (row) => row.name, text: true},
      bytes('Held at peak', (row) => row.at_peak),
      bytes('Allocated in all', (row) => row.allocated),
      bytes('Largest', (row) => row.largest, true),
      number('Allocations', (row) => row.allocations),
      number('Calls', (row) => row.calls),
    ],
  });
  return section('ops', 'Ops that allocate', table.element);
}

interface StepRow {
  step: number;
  allocated: number;
  reserved: number;
  event: number;
}

export function stepsSection(state: State): HTMLElement | null {
  const {steps, summary} = state.device;
  if (steps.allocated.length < 2) return null;
  const rows = Array.from(steps.allocated, (allocated, i): StepRow => ({
    step: i + 1, allocated, reserved: steps.reserved?.[i] ?? 0, event: steps.event[i]!}));
  const bar = (row: StepRow): Node => {
    const part = h('i', {});
    part.style.width = `${100 * row.allocated / Math.max(summary.peak_allocated, 1)}%`;
    return h('span', {class: 'mix steps'}, part);
  };
  const name = (row: StepRow): string =>
      row.step > state.report.summary.steps_completed ? 'after the last' : String(row.step);
  const table = new DataTable<StepRow>({
    id: 'steps-table', label: 'steps', rows, searched: (row) => String(row.step),
    columns: [
      {title: 'Step', value: (row) => row.step, show: name, text: true},
      {title: 'Peak allocated', value: (row) => row.allocated, show: (row) => size(row.allocated)},
      ...(steps.reserved ? [{title: 'Peak reserved', value: (row: StepRow) => row.reserved, show: (row: StepRow) => size(row.reserved)}] : []),
      {title: 'Of the peak', value: (row) => row.allocated, show: bar, text: true},
      {title: 'Look', value: (row) => row.event, show: (row) => h('button', {type: 'button', 'data-step': row.step, click: () => {
        state.pickEvent(row.event);
        document.getElementById('alive')?.scrollIntoView({behavior: 'smooth'});
      }}, 'at its peak')},
    ],
  });
  const left = steps.count - rows.length;
  return section('steps', 'Steps', table.element,
                 left > 0 && h('p', {class: 'hint'}, `${count(left)} more steps are not listed.`));
}
