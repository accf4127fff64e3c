// What would need less: changes that were proven by playing the recording again.
import {h, section} from './dom';
import {size} from './format';
import type {State} from './state';

export function adviceSections(state: State): HTMLElement[] {
  const advice = state.report.summary.advice ?? [];
  if (advice.length === 0) return [];
  const items = advice.map((saving) => h('li', {},
    `${saving.what} saves ${size(saving.peak_reserved_before - saving.peak_reserved_after)}: `
      + `${size(saving.peak_reserved_after)} reserved instead of ${size(saving.peak_reserved_before)}; ${saving.why}. `,
    h('code', {}, saving.command)));
  return [section('advice', 'What would need less, by simulation', h('ul', {class: 'notes'}, ...items))];
}
