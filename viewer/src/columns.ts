// Columns of numbers: zigzag varints in base64, as core/src/report/column.h writes them.

export function decodeColumn(text: string): Float64Array {
  const bytes = atob(text);
  let count = 0;
  for (let i = 0; i < bytes.length; i++) if (bytes.charCodeAt(i) < 0x80) count++;
  const out = new Float64Array(count);
  let at = 0;
  let value = 0;
  let scale = 1;  // no shifts: values go beyond 32 bits
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes.charCodeAt(i);
    value += (byte & 0x7f) * scale;
    if (byte >= 0x80) {
      scale *= 128;
      continue;
    }
    out[at++] = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    value = 0;
    scale = 1;
  }
  return out;
}

// A column that holds each value's difference from the one before.
export function decodeDifferences(text: string): Float64Array {
  const out = decodeColumn(text);
  for (let i = 1; i < out.length; i++) out[i] = out[i]! + out[i - 1]!;
  return out;
}

// The last index with column[index] <= value, or -1.
export function lastAtOrBefore(column: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// The index whose value is nearest.
export function nearest(column: ArrayLike<number>, value: number): number {
  const before = lastAtOrBefore(column, value);
  if (before < 0) return 0;
  if (before + 1 >= column.length) return before;
  return value - column[before]! <= column[before + 1]! - value ? before : before + 1;
}
