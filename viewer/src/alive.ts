// What is alive at a point of the timeline, and as trees.
import type {Device, Report} from './model';
import {nearest} from './columns';

export interface Holding {
  module: number;
  op: number;
  category: string;  // both levels
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
      out.push({module: alive.keyModule[key]!, op: alive.keyOp[key]!, category, bytes});
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
function joinChains(tree: TreeNode): void {
  for (let i = 0; i < tree.children.length; i++) {
    let child = tree.children[i]!;
    while (child.children.length === 1 && child.children[0]!.category === null) {
      const only = child.children[0]!;
      only.name = `${child.name}.${only.name}`;
      child = only;
    }
    tree.children[i] = child;
    joinChains(child);
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

export function byCategory(holdings: readonly Holding[]): [string, number][] {
  const sums = new Map<string, number>();
  for (const {category, bytes} of holdings) {
    sums.set(category, (sums.get(category) ?? 0) + bytes);
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}
