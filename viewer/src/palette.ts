// The colours of categories: the same everywhere, in light and dark.

// From the bottom of the stack to its top: what stays first, what comes and goes last.
const ORDER = ['Parameter', 'Buffer', 'Optstate', 'Gradient', 'Activation', 'Input', 'Temp',
               'Workspace', 'Comm', 'Other', 'Unlabelled'];

const COLOURS: Record<string, string> = {
  Parameter: '#4a73d1',
  Buffer: '#8d6b57',
  Optstate: '#9a6ad6',
  Gradient: '#e3a21a',
  Activation: '#3a9f68',
  Input: '#86b3ee',
  Temp: '#62bfb3',
  Workspace: '#e4695a',
  Comm: '#e17fae',
  Other: '#8f959e',
  Unlabelled: '#b4b8bf',
};

const SPARE = ['#b5a642', '#5b8c99', '#a0522d', '#7a8f3c', '#6c7ab8'];

function place(category: string): number {
  const found = ORDER.indexOf(category);
  return found < 0 ? ORDER.length : found;
}

export function inStackOrder(categories: readonly string[]): string[] {
  return [...categories].sort((a, b) => place(a) - place(b));
}

// `category` may name a second level: "Parameter / Sharded".
export function colourOf(category: string): string {
  const top = category.split(' / ')[0]!;
  const known = COLOURS[top];
  if (known) return known;
  let sum = 0;
  for (const character of top) sum += character.charCodeAt(0);
  return SPARE[sum % SPARE.length]!;
}

// Whether text on this colour should be dark.
export function isLight(colour: string): boolean {
  const channel = (at: number) => parseInt(colour.slice(at, at + 2), 16);
  return 0.299 * channel(1) + 0.587 * channel(3) + 0.114 * channel(5) > 150;
}

export function theme(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
