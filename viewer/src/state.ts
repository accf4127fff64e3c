// What the page shows now, and who wants to know when it changes.
import type {Device, Report} from './model';
import {SpanKind, PHASES} from './model';
import {nearest} from './columns';

export type Axis = 'event' | 'time';

export class State {
  deviceIndex = 0;
  axis: Axis = 'event';
  picked = 0;  // a point of the device's timeline
  private readonly listeners: (() => void)[] = [];

  constructor(readonly report: Report) { this.pickPeak(); }

  get device(): Device { return this.report.devices[this.deviceIndex]!; }
  get peakPoint(): number {
    return nearest(this.device.points.event, this.device.summary.peak.event);
  }

  onPick(listener: () => void): void { this.listeners.push(listener); }
  pick(point: number): void {
    const last = this.device.points.event.length - 1;
    this.picked = Math.min(Math.max(point, 0), Math.max(last, 0));
    for (const listener of this.listeners) listener();
  }
  pickEvent(event: number): void { this.pick(nearest(this.device.points.event, event)); }
  pickPeak(): void { if (this.report.devices.length > 0) this.pick(this.peakPoint); }

  // Where in the program an event lies: "step 2, backward, Net.layers.1".
  place(event: number): {step: string; phase: string; module: string} {
    const {spans, modules} = this.report;
    const place = {step: '', phase: '', module: ''};
    let depth = -1;
    for (let i = 0; i < spans.first.length && spans.first[i]! <= event; i++) {
      if (spans.last[i]! < event) continue;
      const subject = spans.subject[i]!;
      const kind = spans.kind[i]! as SpanKind;
      if (kind === SpanKind.Step) place.step = `step ${subject}`;
      else if (kind === SpanKind.Phase) place.phase = PHASES[subject] ?? '';
      else if (spans.depth[i]! >= depth) {
        depth = spans.depth[i]!;
        place.module = modules[subject]?.path ?? '';
      }
    }
    return place;
  }
}
