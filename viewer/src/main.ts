// The page: reads the data in it and shows a report or a diff.
import {adviceSections} from './advice';
import {AlivePanel} from './alive_panel';
import {diffPage} from './diff';
import {h, replace} from './dom';
import {header} from './header';
import {decodeReport} from './model';
import type {RawDiff, RawReport} from './model';
import {notesSection} from './notes';
import {segmentsSection} from './segments';
import {State} from './state';
import {streamsSection} from './streams';
import {growthSection, linesSection, regionsSection} from './lines';
import {modulesSection, opsSection, stepsSection} from './tables';
import {Timeline} from './timeline';
import {tradeoffsSection} from './tradeoffs';

function show(app: HTMLElement, state: State): void {
  const timeline = new Timeline(state);
  const alive = new AlivePanel(state);
  const onDevice = (index: number) => {
    const next = new State(state.report);
    next.deviceIndex = index;
    next.pickPeak();
    show(app, next);
  };
  replace(app, header(state, onDevice), h('main', {}, timeline.element, alive.element, modulesSection(state),
          linesSection(state), opsSection(state), regionsSection(state), growthSection(state), stepsSection(state),
          ...drawn(state), segmentsSection(state), ...adviceSections(state), notesSection(state)), footer());
  timeline.draw();
  alive.show();
}

// Parts that only some recordings have.
function drawn(state: State): HTMLElement[] {
  return [streamsSection(state), tradeoffsSection(state)].filter((part) => part !== null);
}

function footer(): HTMLElement {
  return h('footer', {}, 'Made by peakline. This file is complete in itself and opens no connection.');
}

// Paper is white.
function printLight(): void {
  const root = document.documentElement;
  let before: string | undefined;
  window.addEventListener('beforeprint', () => {
    before = root.dataset['theme'];
    root.dataset['theme'] = 'light';
    window.dispatchEvent(new Event('themechange'));
  });
  window.addEventListener('afterprint', () => {
    if (before === undefined) delete root.dataset['theme'];
    else root.dataset['theme'] = before;
    window.dispatchEvent(new Event('themechange'));
  });
}

function main(): void {
  const app = document.getElementById('app')!;
  const raw = JSON.parse(document.getElementById('data')!.textContent ?? 'null') as RawReport | RawDiff | string;
  if (typeof raw === 'string') {
    replace(app, h('p', {}, 'This page holds no report: peakline report writes one.'));
  } else if (raw.kind === 'diff') {
    replace(app, ...diffPage(raw), footer());
  } else {
    const report = decodeReport(raw);
    document.title = `${report.title} – peakline`;
    if (report.devices.length === 0) {
      replace(app, h('header', {}, h('h1', {}, report.title)), h('p', {}, 'Nothing was allocated in this recording.'), footer());
    } else {
      show(app, new State(report));
    }
  }
  printLight();
}

main();
