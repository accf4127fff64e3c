// A table that can be sorted and searched.
import {h, replace} from './dom';
import {count} from './format';

export interface ColumnOf<Row> {
  title: string;
  value: (row: Row) => number | string;
  show?: (row: Row) => Node | string;
  text?: boolean;  // left-aligned
  wide?: boolean;  // given up on narrow screens
}

export interface TableOptions<Row> {
  id: string;
  label: string;
  rows: readonly Row[];
  columns: readonly ColumnOf<Row>[];
  searched: (row: Row) => string;
  // Rows in their own order that are shown as long as nothing is searched or sorted.
  initially?: (row: Row) => boolean;
  sortBy?: number;  // a column, largest first; without it the rows keep their order
}

const FEW = 100;

export class DataTable<Row> {
  readonly element: HTMLElement;
  private readonly search: HTMLInputElement;
  private readonly head = h('tr', {});
  private readonly body = h('tbody', {});
  private readonly foot = h('p', {class: 'hint'});
  private sorted: number;
  private descending = true;
  private all = false;

  constructor(private readonly options: TableOptions<Row>, ...tools: Node[]) {
    this.sorted = options.sortBy ?? -1;
    this.search = h('input', {type: 'search', placeholder: `Search ${options.label}`, 'aria-label': `Search ${options.label}`,
                              id: `${options.id}-search`, autocomplete: 'off', spellcheck: 'false'});
    this.search.addEventListener('input', () => this.draw());
    options.columns.forEach((column, i) => this.head.append(this.headCell(column, i)));
    this.element = h('div', {class: 'data'}, h('div', {class: 'tools'}, this.search, ...tools),
      h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': options.label},
        h('table', {id: options.id}, h('thead', {}, this.head), this.body)), this.foot);
    this.draw();
  }

  private headCell(column: ColumnOf<Row>, index: number): HTMLElement {
    const classes = [column.text ? 'text' : '', column.wide ? 'wide' : ''].join(' ').trim();
    return h('th', {scope: 'col', class: classes}, h('button', {type: 'button', click: () => this.sort(index)}, column.title));
  }

  // Largest first, then smallest first, then as they were.
  private sort(index: number): void {
    const first = !this.options.columns[index]!.text;
    if (this.sorted !== index) [this.sorted, this.descending] = [index, first];
    else if (this.descending === first) this.descending = !first;
    else [this.sorted, this.descending] = [this.options.sortBy ?? -1, true];
    this.draw();
  }

  private visible(): Row[] {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const {rows, searched, initially, columns} = this.options;
    const plain = words.length === 0 && this.sorted < 0;
    const found = rows.filter((row) => {
      const text = words.length > 0 ? searched(row).toLowerCase() : '';
      return words.every((word) => text.includes(word)) && (!plain || !initially || initially(row));
    });
    if (this.sorted < 0) return found;
    const {value} = columns[this.sorted]!;
    const sign = this.descending ? -1 : 1;
    return found.sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      return sign * (typeof left === 'string' ? left.localeCompare(String(right)) : left - Number(right));
    });
  }

  // True while the rows are in their own order.
  get inOrder(): boolean { return this.sorted < 0 && this.search.value.trim() === ''; }

  draw(): void {
    [...this.head.children].forEach((cell, i) => {
      if (i === this.sorted) cell.setAttribute('aria-sort', this.descending ? 'descending' : 'ascending');
      else cell.removeAttribute('aria-sort');
    });
    const rows = this.visible();
    const shown = this.all ? rows : rows.slice(0, FEW);
    replace(this.body, ...shown.map((row) => this.row(row)));
    const more = rows.length - shown.length;
    replace(this.foot, `${count(shown.length)} of ${count(this.options.rows.length)} ${this.options.label} `,
      more > 0 && h('button', {type: 'button', click: () => { this.all = true; this.draw(); }}, `Show ${count(more)} more`));
  }

  private row(row: Row): HTMLElement {
    const cells = this.options.columns.map((column, i) => {
      const classes = [column.text ? 'text' : '', column.wide ? 'wide' : ''].join(' ').trim();
      const content = column.show?.(row) ?? String(column.value(row));
      return h(i === 0 ? 'th' : 'td', {class: classes, 'data-value': column.value(row)}, content);
    });
    return h('tr', {}, ...cells);
  }
}
