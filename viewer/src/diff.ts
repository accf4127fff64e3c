// Two runs side by side: what grew.
import {h, section} from './dom';
import {count, signedSize, size} from './format';
import {themeButton} from './header';
import type {Change, RawDiff} from './model';
import {colourOf} from './palette';
import {DataTable} from './table';

function total(label: string, change: Omit<Change, 'name'>): HTMLElement {
  const share = change.before > 0 ? ` (${change.change >= 0 ? '+' : ''}${(100 * change.change / change.before).toFixed(1)}%)` : '';
  return h('div', {class: 'fact'}, h('dt', {}, label), h('dd', {},
    h('strong', {class: change.change > 0 ? 'grew' : change.change < 0 ? 'shrank' : ''}, change.change === 0 ? 'unchanged' : signedSize(change.change) + share),
    h('span', {class: 'remark'}, `${size(change.before)} → ${size(change.after)}`)));
}

function changes(id: string, title: string, label: string, rows: Change[], coloured = false): HTMLElement | null {
  if (rows.length === 0) return null;
  const most = Math.max(...rows.map((row) => Math.abs(row.change)), 1);
  const bar = (row: Change): Node => {
    const part = h('i', {class: row.change > 0 ? 'grew' : 'shrank'});
    part.style.width = `${50 * Math.abs(row.change) / most}%`;
    part.style.marginLeft = row.change > 0 ? '50%' : `${50 - 50 * Math.abs(row.change) / most}%`;
    return h('span', {class: 'mix both'}, part);
  };
  const name = (row: Change): Node => {
    const swatch = h('i', {class: 'swatch'});
    swatch.style.background = colourOf(row.name);
    return h('span', {class: 'path', title: row.name}, coloured && swatch, row.name,
             row.modules !== undefined && row.modules > 1 && h('small', {}, ` ${count(row.modules)} modules`));
  };
  const table = new DataTable<Change>({
    id, label, rows, searched: (row) => row.name,
    columns: [
      {title: title.replace('By ', '').replace(/^./, (letter) => letter.toUpperCase()), value: (row) => row.name, show: name, text: true},
      {title: 'Before', value: (row) => row.before, show: (row) => row.before ? size(row.before) : '–'},
      {title: 'After', value: (row) => row.after, show: (row) => row.after ? size(row.after) : '–'},
      {title: 'Change', value: (row) => row.change, show: (row) => signedSize(row.change)},
      {title: '', value: (row) => Math.abs(row.change), show: bar, text: true, wide: true},
    ],
  });
  return section(id.replace('-table', ''), title, table.element);
}

export function diffPage(raw: RawDiff): Node[] {
  const {diff, title} = raw;
  const devices = [diff.before, diff.after].map(({device, gpu}) => gpu ? `${device}, ${gpu}` : device);
  document.title = `${title[0]} → ${title[1]}`;
  const same = diff.categories.length + diff.modules.length + diff.ops.length === 0;
  const parts = [
    h('header', {}, h('div', {class: 'title'}, h('h1', {}, `${title[0]} → ${title[1]}`), themeButton()),
      h('p', {class: 'about'}, devices[0] === devices[1] ? devices[0]! : devices.join(' → ')),
      h('dl', {class: 'facts'}, total('Peak allocated', diff.peak_allocated), diff.peak_reserved && total('Peak reserved', diff.peak_reserved))),
    same ? h('p', {}, 'Both hold the same at their peaks.') : null,
    changes('categories-table', 'By category', 'categories', diff.categories, true),
    changes('groups-table', 'By module group', 'module groups', diff.module_groups),
    changes('modules-table', 'By module', 'modules', diff.modules),
    changes('ops-table', 'By op', 'ops', diff.ops),
  ];
  return parts.filter((part): part is HTMLElement => part !== null);
}
