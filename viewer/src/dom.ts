// Elements without markup: names from a recording only ever become text.

type Child = Node | string | null | undefined | false;
type Properties = Record<string, string | number | boolean | ((event: never) => void)>;

export function h<K extends keyof HTMLElementTagNameMap>(
    tag: K, properties: Properties = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === 'function') {
      element.addEventListener(name, value as EventListener);
    } else if (typeof value === 'boolean') {
      element.toggleAttribute(name, value);
    } else {
      element.setAttribute(name, String(value));
    }
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

export function replace(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((child): child is Node | string => !!child));
}

// A titled part of the page.
export function section(id: string, title: string, ...children: Child[]): HTMLElement {
  return h('section', {id, 'aria-labelledby': `${id}-title`},
           h('h2', {id: `${id}-title`}, title), ...children);
}

// Buttons of which one is chosen.
export function choice<T extends string>(
    label: string, options: readonly (readonly [T, string])[], chosen: T,
    onChange: (value: T) => void): HTMLElement {
  const group = h('div', {class: 'choice', role: 'group', 'aria-label': label});
  for (const [value, text] of options) {
    const button = h('button', {type: 'button', 'aria-pressed': String(value === chosen)}, text);
    button.addEventListener('click', () => {
      for (const other of group.children) other.setAttribute('aria-pressed', String(other === button));
      onChange(value);
    });
    group.append(button);
  }
  return group;
}
