// The data in the page, as core/src/report/report_json.cc writes it, and decoded for use.
import {decodeColumn, decodeDifferences} from './columns';

export interface ModuleRow {
  path: string;
  type: string;
  peak: number;
  own: number;
  by_category: Record<string, number>;
  highest_while_running: number;
  forward_calls: number;
}

export interface OpRow {
  name: string;
  calls: number;
  allocations: number;
  at_peak: number;
  allocated: number;
  largest: number;
}

export interface CodePlace {
  file: string;
  line: number;
  function: string;
  text: string;
}

export interface LineRow extends CodePlace {
  called_from: CodePlace | null;
  allocations: number;
  at_peak: number;
  allocated: number;
  largest: number;
  by_category: Record<string, number>;
}

export interface RegionRow {
  path: string;
  entered: number;
  at_peak: number;
  highest: number;
}

export interface GrowthRow {
  place: CodePlace | null;
  op: string;
  module: string;
  kept: number;
  blocks: number;
  per_step: number;
  first_step: number;
  last_step: number;
}

export interface DeviceSummary {
  device: string;
  gpu: string;
  peak_allocated: number;
  peak_reserved: number | null;
  memory_limit: number | null;
  allocated_at_end: number;
  fits: boolean | null;
  segments: number;
  retries: number;
  ooms: number;
  peak: {
    event: number; time_ns: number; step: number; phase: string; op: string; module: string;
    outside_modules: number;
  };
  by_category: Record<string, number>;
  by_subcategory: Record<string, number>;
  modules: ModuleRow[];
  ops: OpRow[];
  lines?: LineRow[];
  regions?: RegionRow[];
  growth?: GrowthRow[];
}

export interface Saving {
  what: string; why: string; command: string;
  peak_reserved_before: number; peak_reserved_after: number;
}

export interface Summary extends DeviceSummary {
  torch: string;
  host_peak: number;
  unknown_values: number;
  events: number;
  steps_completed: number;
  duration_ns: number;
  partial: boolean;
  info: Record<string, string>;
  warnings: string[];
  advice?: Saving[];
  devices: DeviceSummary[];
}

interface RawMap {
  title: string; event: number; time_ns: number; simulated: boolean; reserved: number;
  allocated: number; largest_free: number; left_out: number; address: string; bytes: string;
  stream: string; blocks: string; block_gap: string; block_bytes: string; block_category: string;
}

interface RawDevice {
  name: string;
  total: number;
  categories: string[];
  points: {
    event: string; time: string; allocated: string; lowest: string; highest: string;
    reserved: string; by_category: string[];
  };
  alive: {
    every: number; key_module: string; key_op: string; key_category: string;
    key_stack: string; points: string;
    counts: string; keys: string; bytes: string;
  };
  steps: {count: number; allocated: string; reserved: string | null; event: string};
  maps: RawMap[];
}

export interface RawReport {
  kind: 'report';
  title: string;
  summary: Summary;
  left_out: {modules: number; ops: number};
  words: {
    modules: [string, string, number][]; ops: string[]; categories: [string, string][];
    code: {
      names: Record<string, string>; lines: [number, number, number, string, boolean][];
      caller: string; line: string;
    };
  };
  devices: RawDevice[];
  spans: {
    kind: string; depth: string; subject: string; first: string; length: string; left_out: number;
  };
  marks: [number, string][];
}

export interface Change {
  name: string;
  before: number;
  after: number;
  change: number;
  modules?: number;
}

export interface RawDiff {
  kind: 'diff';
  title: [string, string];
  diff: {
    before: {device: string; gpu: string};
    after: {device: string; gpu: string};
    peak_allocated: Omit<Change, 'name'>;
    peak_reserved: Omit<Change, 'name'> | null;
    categories: Change[];
    modules: Change[];
    module_groups: Change[];
    ops: Change[];
  };
}

export interface Module {
  path: string;
  name: string;  // the last part of the path
  type: string;
  parent: number;  // 0: none
}

export interface Points {
  event: Float64Array;
  time: Float64Array;
  allocated: Float64Array;
  lowest: Float64Array;
  highest: Float64Array;
  reserved: Float64Array;
  byCategory: Float64Array[];  // in the order of Device.categories
}

// Changes of what is alive, from one point of `points` to the next.
export interface Alive {
  every: number;
  keyModule: Float64Array;
  keyOp: Float64Array;
  keyCategory: Float64Array;
  keyStack: Float64Array;
  points: Float64Array;
  counts: Float64Array;
  keys: Float64Array;
  bytes: Float64Array;
}

export interface MapBlock {
  offset: number;
  bytes: number;
  category: string;
}

export interface MapSegment {
  address: number;
  bytes: number;
  stream: number;
  allocated: number;
  blocks: MapBlock[];
}

export interface SegmentMap {
  title: string;
  event: number;
  simulated: boolean;
  reserved: number;
  allocated: number;
  largestFree: number;
  leftOut: number;
  segments: MapSegment[];
}

export interface Device {
  name: string;
  total: number;
  summary: DeviceSummary;
  categories: string[];
  points: Points;
  alive: Alive;
  steps: {count: number; allocated: Float64Array; reserved: Float64Array | null; event: Float64Array};
  maps: SegmentMap[];
}

export const enum SpanKind { Step, Phase, Forward, Backward, Recompute }

export interface Spans {
  kind: Float64Array;
  depth: Float64Array;
  subject: Float64Array;
  first: Float64Array;
  last: Float64Array;
  leftOut: number;
}

export interface Report {
  title: string;
  summary: Summary;
  leftOut: {modules: number; ops: number};
  modules: Module[];
  ops: string[];
  categories: {label: string; top: string}[];
  lines: CodeLine[];
  stacks: Stack[];
  devices: Device[];
  spans: Spans;
  marks: [number, string][];
}

// A line of the program; 0 is none.
export interface CodeLine extends CodePlace {
  library: boolean;  // torch's or Python's own
}

// A line and what called it.
export interface Stack {
  caller: number;  // 0: the outermost
  line: number;
}

export const PHASES = ['forward', 'backward', 'optimizer'];

function decodeModules(words: [string, string, number][]): Module[] {
  const out: Module[] = [];
  for (const [text, type, parent] of words) {
    const above = parent > 0 ? out[parent] : undefined;
    const below = above && text.startsWith('.');
    const path = below ? above.path + text : text;
    out.push({path, name: below ? text.slice(1) : text, type, parent});
  }
  return out;
}

function decodeLines(code: RawReport['words']['code']): CodeLine[] {
  return code.lines.map(([file, line, name, text, library]) => ({
    file: code.names[file] ?? '', line, function: code.names[name] ?? '', text, library}));
}

function decodeStacks(code: RawReport['words']['code']): Stack[] {
  const line = decodeColumn(code.line);
  return Array.from(decodeColumn(code.caller), (caller, i) => ({caller, line: line[i]!}));
}

function decodeMap(raw: RawMap, categories: [string, string][]): SegmentMap {
  const address = decodeDifferences(raw.address);
  const bytes = decodeColumn(raw.bytes);
  const stream = decodeColumn(raw.stream);
  const counts = decodeColumn(raw.blocks);
  const gap = decodeColumn(raw.block_gap);
  const blockBytes = decodeColumn(raw.block_bytes);
  const category = decodeColumn(raw.block_category);
  const segments: MapSegment[] = [];
  let next = 0;
  for (let i = 0; i < address.length; i++) {
    const segment: MapSegment = {
      address: address[i]!, bytes: bytes[i]!, stream: stream[i]!, allocated: 0, blocks: []};
    let at = 0;
    for (let k = 0; k < counts[i]!; k++, next++) {
      at += gap[next]!;
      const size = blockBytes[next]!;
      const name = categories[category[next]!]?.[0] ?? 'Other';
      segment.blocks.push({offset: at, bytes: size, category: name});
      segment.allocated += size;
      at += size;
    }
    segments.push(segment);
  }
  return {
    title: raw.title, event: raw.event, simulated: raw.simulated, reserved: raw.reserved,
    allocated: raw.allocated, largestFree: raw.largest_free, leftOut: raw.left_out, segments};
}

function decodeDevice(raw: RawDevice, summary: DeviceSummary, words: RawReport['words']): Device {
  const points = raw.points;
  const alive = raw.alive;
  return {
    name: raw.name,
    total: raw.total,
    summary,
    categories: raw.categories,
    points: {
      event: decodeDifferences(points.event),
      time: decodeDifferences(points.time),
      allocated: decodeDifferences(points.allocated),
      lowest: decodeDifferences(points.lowest),
      highest: decodeDifferences(points.highest),
      reserved: decodeDifferences(points.reserved),
      byCategory: points.by_category.map(decodeDifferences),
    },
    alive: {
      every: alive.every,
      keyModule: decodeColumn(alive.key_module),
      keyOp: decodeColumn(alive.key_op),
      keyCategory: decodeColumn(alive.key_category),
      keyStack: decodeColumn(alive.key_stack),
      points: decodeDifferences(alive.points),
      counts: decodeColumn(alive.counts),
      keys: decodeColumn(alive.keys),
      bytes: decodeColumn(alive.bytes),
    },
    steps: {
      count: raw.steps.count,
      allocated: decodeColumn(raw.steps.allocated),
      reserved: raw.steps.reserved === null ? null : decodeColumn(raw.steps.reserved),
      event: decodeDifferences(raw.steps.event),
    },
    maps: raw.maps.map((map) => decodeMap(map, words.categories)),
  };
}

export function decodeReport(raw: RawReport): Report {
  const spans = raw.spans;
  const first = decodeDifferences(spans.first);
  const length = decodeColumn(spans.length);
  const summaries: DeviceSummary[] = [raw.summary, ...raw.summary.devices];
  return {
    title: raw.title,
    summary: raw.summary,
    leftOut: raw.left_out,
    modules: decodeModules(raw.words.modules),
    ops: raw.words.ops,
    categories: raw.words.categories.map(([label, top]) => ({label, top})),
    lines: decodeLines(raw.words.code),
    stacks: decodeStacks(raw.words.code),
    devices: raw.devices.map((device, i) => decodeDevice(device, summaries[i]!, raw.words)),
    spans: {
      kind: decodeColumn(spans.kind),
      depth: decodeColumn(spans.depth),
      subject: decodeColumn(spans.subject),
      first,
      last: first.map((value, i) => value + length[i]!),
      leftOut: spans.left_out,
    },
    marks: raw.marks,
  };
}
