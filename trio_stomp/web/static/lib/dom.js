// Elements of the page. Text is only ever set as text: nothing here, or that uses it, parses HTML.

/** An element: `el("button", {type: "button", onclick: f}, "Send")`. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** The element with this id, which is there. */
export const byId = (id) => document.getElementById(id);

/** Set the text of an element, if it is another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show an element, or not. */
export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/** Whether one of the texts holds what was typed into a filter. */
export function matches(wanted, ...texts) {
  const lower = wanted.trim().toLowerCase();
  return lower === "" || texts.some((text) => text.toLowerCase().includes(lower));
}

/** Facts with their names, as a list: [name, text or element]; made anew only if they changed. */
export function facts(list, pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null);
  const state = JSON.stringify(shown.map(([name, value]) => [name, value.textContent ?? value]));
  if (list.drawn === state) return;
  list.drawn = state;
  list.replaceChildren(
    ...shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

/** The address of a page of one thing within the page: `#queue?name=…`. */
export const addressOf = (view, about) => `#${view}?${new URLSearchParams(about)}`;
