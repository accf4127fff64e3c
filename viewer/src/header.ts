// What the run needed, in one look.
import {choice, h} from './dom';
import {count, percent, plural, size, time} from './format';
import type {Device, Report} from './model';
import type {State} from './state';

function fact(label: string, value: string, remark: string): HTMLElement {
  return h('div', {class: 'fact'}, h('dt', {}, label),
           h('dd', {}, h('strong', {}, value), h('span', {class: 'remark'}, remark)));
}

function where(device: Device): string {
  const {peak} = device.summary;
  return [peak.step > 0 ? `step ${peak.step}` : '', peak.phase].filter(Boolean).join(', ');
}

function verdict(device: Device, partial: boolean): HTMLElement | null {
  const {summary} = device;
  if (summary.ooms > 0) {
    return h('span', {class: 'badge bad'}, `does not fit: out of memory ${summary.ooms === 1 ? 'once' : `${summary.ooms} times`}`);
  }
  if (summary.fits) return h('span', {class: 'badge good'}, partial ? 'fits so far' : 'fits');
  return null;
}

function facts(device: Device): HTMLElement {
  const {summary} = device;
  const list = h('dl', {class: 'facts'});
  list.append(fact('Peak allocated', size(summary.peak_allocated), where(device)));
  if (summary.peak_reserved !== null) {
    const above = summary.peak_reserved - summary.peak_allocated;
    list.append(fact('Peak reserved', size(summary.peak_reserved),
                     `${percent(above, summary.peak_allocated)} above allocated`));
  } else {
    list.append(fact('Peak reserved', 'not recorded', ''));
  }
  if (summary.memory_limit !== null) {
    const spare = summary.memory_limit - (summary.peak_reserved ?? summary.peak_allocated);
    list.append(fact('Memory limit', size(summary.memory_limit),
                     spare >= 0 ? `${size(spare)} to spare` : `${size(-spare)} too little`));
  }
  if (device.total > 0) list.append(fact('Device memory', size(device.total), summary.gpu));
  if (summary.retries > 0) {
    list.append(fact('Allocator retries', count(summary.retries), 'the cache was freed to make room'));
  }
  return list;
}

// Allocated against reserved against what the device has.
function gauge(device: Device): HTMLElement | null {
  const {summary} = device;
  const reserved = summary.peak_reserved ?? summary.peak_allocated;
  const whole = Math.max(device.total, summary.memory_limit ?? 0, reserved);
  if (whole <= reserved && summary.peak_reserved === null) return null;
  const width = (bytes: number) => `${100 * bytes / whole}%`;
  const bar = h('div', {class: 'gauge', role: 'img', 'aria-label':
    `${size(summary.peak_allocated)} allocated, ${size(reserved)} reserved, of ${size(whole)}`});
  const part = (name: string, bytes: number) => {
    const element = h('div', {class: `gauge-${name}`});
    element.style.width = width(bytes);
    return element;
  };
  bar.append(part('reserved', reserved), part('allocated', summary.peak_allocated));
  if (summary.memory_limit !== null && summary.memory_limit < whole) {
    const limit = h('div', {class: 'gauge-limit'});
    limit.style.left = width(summary.memory_limit);
    bar.append(limit);
  }
  return h('div', {class: 'gauge-box'}, bar, h('div', {class: 'gauge-key'},
    h('span', {class: 'key-allocated'}, 'allocated'),
    summary.peak_reserved !== null && h('span', {class: 'key-reserved'}, 'reserved'),
    h('span', {}, `of ${size(whole)}`)));
}

function about(report: Report): string {
  const {summary} = report;
  return [
    summary.torch && `torch ${summary.torch}`, plural(summary.steps_completed, 'step'),
    plural(summary.events, 'event'), time(summary.duration_ns),
  ].filter(Boolean).join(' · ');
}

export function themeButton(): HTMLElement {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const button = h('button', {type: 'button', class: 'theme', id: 'theme'});
  const isDark = () => (document.documentElement.dataset['theme'] ?? (dark.matches ? 'dark' : 'light')) === 'dark';
  const label = () => { button.textContent = isDark() ? 'Light' : 'Dark'; };
  button.addEventListener('click', () => {
    document.documentElement.dataset['theme'] = isDark() ? 'light' : 'dark';
    label();
    window.dispatchEvent(new Event('themechange'));
  });
  dark.addEventListener('change', () => {
    label();
    window.dispatchEvent(new Event('themechange'));
  });
  label();
  return button;
}

export function header(state: State, onDevice: (index: number) => void): HTMLElement {
  const {report, device} = state;
  const devices = report.devices.map((each, i) => [String(i), each.name] as const);
  return h('header', {},
    h('div', {class: 'title'}, h('h1', {}, report.title), themeButton()),
    h('p', {class: 'about'}, h('b', {}, device.name), device.summary.gpu && ` ${device.summary.gpu}`,
      ` · ${about(report)} `, verdict(device, report.summary.partial)),
    devices.length > 1 && choice('Device', devices, String(state.deviceIndex), (index) => onDevice(Number(index))),
    facts(device), gauge(device));
}
