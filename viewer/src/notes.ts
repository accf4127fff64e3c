// What the recording could not know, and facts about the run.
import {h, section} from './dom';
import {count, plural} from './format';
import type {State} from './state';

function limits(state: State): string[] {
  const {report, device} = state;
  const {summary} = report;
  const out: string[] = [];
  if (summary.unknown_values > 0) {
    out.push(`${plural(summary.unknown_values, 'value')} that the program asked for could not be known without running it and had to be made up.`);
  }
  if (device.summary.peak_reserved === null) out.push('Reserved memory was not recorded; peakline simulate says what it would be.');
  if (device.summary.memory_limit === null) out.push('No memory limit is known for this device, so the report does not say whether the run fits.');
  if (summary.steps_completed === 0) out.push('No optimizer step was seen: the recording is not divided into steps.');
  if (device.summary.modules.length === 0) out.push('No modules were recorded: memory is told apart by op and category only.');
  out.push(...summary.warnings);
  if (report.spans.leftOut > 0) out.push(`${plural(report.spans.leftOut, 'module call')} are too short to be drawn below the timeline.`);
  if (report.leftOut.modules + report.leftOut.ops > 0) {
    out.push(`${count(report.leftOut.modules)} modules and ${count(report.leftOut.ops)} ops are left out of the tables.`);
  }
  return out;
}

// Facts that have a part of the page for themselves.
const DRAWN = ['streams', 'tradeoffs'];

export function notesSection(state: State): HTMLElement {
  const found = limits(state);
  const info = Object.entries(state.report.summary.info).filter(([key]) => !DRAWN.includes(key));
  return section('notes', 'What this report cannot know',
    found.length > 0 ? h('ul', {class: 'notes'}, ...found.map((text) => h('li', {}, text)))
                     : h('p', {class: 'hint'}, 'Nothing was lost or guessed in this recording.'),
    info.length > 0 && h('details', {}, h('summary', {}, 'Facts about the run'),
      h('table', {class: 'plain'}, ...info.map(([key, value]) => h('tr', {}, h('th', {scope: 'row'}, key), h('td', {class: 'text'}, value))))));
}
