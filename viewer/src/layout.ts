// Where the tiles of a treemap and the bars of a flame graph go.
import type {TreeNode} from './alive';

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Tile extends Box {
  node: TreeNode;
  depth: number;
  framed: boolean;  // its children lie inside, below a line with its name
}

const HEAD = 18;
const PAD = 2;

function worst(row: readonly number[], side: number): number {
  const sum = row.reduce((a, b) => a + b, 0);
  const largest = Math.max(...row);
  const smallest = Math.min(...row);
  return Math.max(side * side * largest / (sum * sum), sum * sum / (side * side * smallest));
}

// Rows of tiles along the shorter side, each as square as they get (Bruls, Huizing, van Wijk).
export function squarify(values: readonly number[], box: Box): Box[] {
  const total = values.reduce((a, b) => a + b, 0);
  const out: Box[] = [];
  let {x, y, width, height} = box;
  const areas = values.map((value) => value / total * width * height);
  for (let i = 0; i < areas.length;) {
    const side = Math.min(width, height);
    const row = [areas[i]!];
    while (i + row.length < areas.length &&
           worst([...row, areas[i + row.length]!], side) <= worst(row, side)) {
      row.push(areas[i + row.length]!);
    }
    const sum = row.reduce((a, b) => a + b, 0);
    const thick = side > 0 ? sum / side : 0;
    let along = 0;
    for (const area of row) {
      const length = thick > 0 ? area / thick : 0;
      out.push(width >= height ? {x, y: y + along, width: thick, height: length}
                               : {x: x + along, y, width: length, height: thick});
      along += length;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
    i += row.length;
  }
  return out;
}

export function treemap(root: TreeNode, box: Box, out: Tile[] = [], depth = 0): Tile[] {
  const children = root.children.filter((child) => child.bytes > 0);
  if (children.length === 0 || box.width < 2 || box.height < 2) return out;
  const boxes = squarify(children.map((child) => child.bytes), box);
  children.forEach((node, i) => {
    const tile = boxes[i]!;
    if (tile.width < 1.5 || tile.height < 1.5) return;
    const framed = node.category === null && tile.width > 44 && tile.height > HEAD + 12 && depth < 6;
    out.push({...tile, node, depth, framed});
    if (!framed) return;
    treemap(node, {x: tile.x + PAD, y: tile.y + HEAD, width: tile.width - 2 * PAD,
                   height: tile.height - HEAD - PAD}, out, depth + 1);
  });
  return out;
}

export const FLAME_ROW = 22;

export function flame(root: TreeNode, width: number): Tile[] {
  const out: Tile[] = [];
  const place = (node: TreeNode, x: number, room: number, depth: number) => {
    if (room < 1) return;
    out.push({x, y: depth * FLAME_ROW, width: room, height: FLAME_ROW, node, depth, framed: false});
    let at = x;
    for (const child of node.children) {
      const share = node.bytes > 0 ? room * child.bytes / node.bytes : 0;
      place(child, at, share, depth + 1);
      at += share;
    }
  };
  place(root, 0, width, 0);
  return out;
}
