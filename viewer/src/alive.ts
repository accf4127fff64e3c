// What is alive at a point of the timeline, and as trees.
import type {CodePlace, Device, Report} from './model';
import {nearest} from './columns';

export interface Holding {
  module: number;
  op: number;
  category: string;  // both levels
  stack: number;
  bytes: number;
}

// Adds up changes; going forward from the last question costs only what lies between.
export class AliveSets {
  private readonly held: Float64Array;
  private at = -1;     // index into alive.points
  private next = 0;    // index into alive.keys

  constructor(private readonly device: Device, private readonly report: Report) {
    this.held = new Float64Array(device.alive.keyModule.length);
  }

  // The point nearest to `point` (an index into the timeline) at which this is known.
  nearestPoint(point: number): number {
    const {alive, points} = this.device;
    const events = alive.points.map((index) => points.event[index]!);
    return alive.points[nearest(events, points.event[point]!)]!;
  }

  // What is alive at such a point, largest first.
  holdings(point: number): Holding[] {
    const {alive} = this.device;
    const target = alive.points.indexOf(point);
    if (target < this.at) {
      this.held.fill(0);
      this.at = -1;
      this.next = 0;
    }
    while (this.at < target) {
      this.at++;
      let key = -1;
      for (let left = alive.counts[this.at]!; left > 0; left--, this.next++) {
        key += alive.keys[this.next]!;
        this.held[key] = this.held[key]! + alive.bytes[this.next]!;
      }
    }
    const out: Holding[] = [];
    this.held.forEach((bytes, key) => {
      if (bytes <= 0) return;
      const category = this.report.categories[alive.keyCategory[key]!]?.label ?? 'Other';
      out.push({module: alive.keyModule[key]!, op: alive.keyOp[key]!, category, stack: alive.keyStack[key]!, bytes});
    });
    return out.sort((a, b) => b.bytes - a.bytes);
  }
}

export interface TreeNode {
  name: string;
  full: string;  // the whole path, for labels
  bytes: number;
  category: string | null;  // leaves are categories
  children: TreeNode[];
  shares: Map<string, number>;  // bytes by category
}

function node(name: string, full: string, category: string | null = null): TreeNode {
  return {name, full, bytes: 0, category, children: [], shares: new Map()};
}

function add(target: TreeNode, category: string, bytes: number): void {
  target.bytes += bytes;
  target.shares.set(category, (target.shares.get(category) ?? 0) + bytes);
}

function addLeaf(parent: TreeNode, category: string, bytes: number): void {
  let leaf = parent.children.find((child) => child.category === category);
  if (!leaf) {
    leaf = node(category, `${parent.full} · ${category}`, category);
    parent.children.push(leaf);
  }
  add(leaf, category, bytes);
}

// A chain of modules with nothing else in them reads as one: "GPT.h".
function joinChains(tree: TreeNode, between = '.'): void {
  for (let i = 0; i < tree.children.length; i++) {
    let child = tree.children[i]!;
    while (child.children.length === 1 && child.children[0]!.category === null) {
      const only = child.children[0]!;
      only.name = `${child.name}${between}${only.name}`;
      child = only;
    }
    tree.children[i] = child;
    joinChains(child, between);
  }
  tree.children.sort((a, b) => b.bytes - a.bytes);
}

export function moduleTree(holdings: readonly Holding[], report: Report): TreeNode {
  const root = node('All', 'All modules');
  const nodes = new Map<number, TreeNode>();
  const find = (id: number): TreeNode => {
    const known = nodes.get(id);
    if (known) return known;
    const module = report.modules[id];
    const made = id === 0 || !module ? node('(outside modules)', '(outside modules)')
                                     : node(module.name, module.path);
    nodes.set(id, made);
    (id !== 0 && module && module.parent !== 0 ? find(module.parent) : root).children.push(made);
    return made;
  };
  for (const {module, category, bytes} of holdings) {
    addLeaf(find(module), category, bytes);
    for (let id = module;; id = report.modules[id]?.parent ?? 0) {
      add(find(id), category, bytes);
      if (id === 0 || (report.modules[id]?.parent ?? 0) === 0) break;
    }
    add(root, category, bytes);
  }
  joinChains(root);
  return root;
}

export function opTree(holdings: readonly Holding[], report: Report): TreeNode {
  const root = node('All', 'All ops');
  const nodes = new Map<number, TreeNode>();
  for (const {op, category, bytes} of holdings) {
    let found = nodes.get(op);
    if (!found) {
      const name = op === 0 ? '(outside ops)' : report.ops[op] || '(outside ops)';
      found = node(name, name);
      nodes.set(op, found);
      root.children.push(found);
    }
    addLeaf(found, category, bytes);
    add(found, category, bytes);
    add(root, category, bytes);
  }
  joinChains(root);
  return root;
}

const ALL_LINES = 'All lines';

// "models/llama.py:12 forward"; functions of C++ have no line.
export function placeName(place: CodePlace): string {
  const file = place.file.split('/').slice(-2).join('/');
  return `${file}${place.line > 0 ? `:${place.line}` : ''} ${place.function}`;
}

// A library's line says little without the program's line that called it.
function lineLabel(line: CodePlace & {library: boolean}, caller: TreeNode): string {
  const name = placeName(line);
  if (line.library && caller.full !== ALL_LINES) return `${caller.full} › ${name}`;
  return line.text ? `${name}: ${line.text}` : name;
}

// The calls of the program, from the outermost line inwards.
export function stackTree(holdings: readonly Holding[], report: Report): TreeNode {
  const root = node('All', ALL_LINES);
  const nodes = new Map<number, TreeNode>();
  const find = (id: number): TreeNode => {
    const known = nodes.get(id);
    if (known) return known;
    const stack = report.stacks[id];
    const line = stack && report.lines[stack.line];
    const caller = id !== 0 && stack && stack.caller !== 0 ? find(stack.caller) : root;
    const made = id === 0 || !line ? node('(no line known)', '(no line known)') : node(placeName(line), lineLabel(line, caller));
    nodes.set(id, made);
    caller.children.push(made);
    return made;
  };
  for (const {stack, category, bytes} of holdings) {
    addLeaf(find(stack), category, bytes);
    for (let id = stack;; id = report.stacks[id]?.caller ?? 0) {
      add(find(id), category, bytes);
      if (id === 0 || (report.stacks[id]?.caller ?? 0) === 0) break;
    }
    add(root, category, bytes);
  }
  joinChains(root, ' › ');
  return root;
}

// The innermost line of a stack that is the program's own.
export function ownLine(stack: number, report: Report): number {
  for (let id = stack; id !== 0; id = report.stacks[id]?.caller ?? 0) {
    const line = report.stacks[id]?.line ?? 0;
    if (!report.lines[line]?.library) return line;
  }
  return report.stacks[stack]?.line ?? 0;
}

// What a line holds at every point at which that is known: [point, bytes].
export function heldOverTime(device: Device, report: Report, place: CodePlace): [number, number][] {
  const {alive} = device;
  const wanted = Array.from(alive.keyStack, (stack) => {
    const line = report.lines[ownLine(stack, report)];
    return line !== undefined && line.file === place.file && line.line === place.line && line.function === place.function;
  });
  const out: [number, number][] = [];
  let bytes = 0;
  let next = 0;
  alive.points.forEach((point, i) => {
    let key = -1;
    for (let left = alive.counts[i]!; left > 0; left--, next++) {
      key += alive.keys[next]!;
      if (wanted[key]) bytes += alive.bytes[next]!;
    }
    out.push([point, bytes]);
  });
  return out;
}

export function byCategory(holdings: readonly Holding[]): [string, number][] {
  const sums = new Map<string, number>();
  for (const {category, bytes} of holdings) {
    sums.set(category, (sums.get(category) ?? 0) + bytes);
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}
