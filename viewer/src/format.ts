// Numbers as people read them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

// Binary units with four digits, as the program prints them: "7.808 GiB".
export function size(bytes: number): string {
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 1023.95 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit++;
  }
  const sign = bytes < 0 ? '−' : '';
  if (unit === 0) return `${sign}${value} B`;
  const decimals = value < 9.9995 ? 3 : value < 99.995 ? 2 : 1;
  return `${sign}${value.toFixed(decimals)} ${UNITS[unit]}`;
}

export function signedSize(bytes: number): string {
  return bytes > 0 ? `+${size(bytes)}` : size(bytes);
}

// For axes: no more digits than needed.
export function shortSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit++;
  }
  return `${Number(value.toFixed(2))} ${UNITS[unit]}`;
}

export function count(value: number): string {
  return value.toLocaleString('en-US');
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)}%` : '–';
}

export function time(ns: number): string {
  const seconds = ns * 1e-9;
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.1 ? 1 : 0)} ms`;
  if (seconds < 600) return `${seconds.toFixed(2)} s`;
  return `${(seconds / 60).toFixed(1)} min`;
}

export function plural(value: number, word: string): string {
  return `${count(value)} ${word}${value === 1 ? '' : 's'}`;
}
