// Elements of the page. Text is only set as text; HTML is never parsed.

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

/** The element with this id, which must exist. */
export const byId = (id) => document.getElementById(id);

/** Set the text of an element, if it differs. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Have a screen reader read a text. A region that was hidden before is not read. */
export function announce(text) {
  byId("announcement").textContent = text;
}

/** Show or hide an element. */
export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/** Return whether one of the texts contains the text of a filter. */
export function matches(wanted, ...texts) {
  const lower = wanted.trim().toLowerCase();
  return lower === "" || texts.some((text) => text.toLowerCase().includes(lower));
}

/** Fill a list with facts, [name, text or element]. An unchanged list is left alone. */
export function facts(list, pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null);
  const state = JSON.stringify(shown.map(([name, value]) => [name, value.textContent ?? value]));
  if (list.drawn === state) return;
  list.drawn = state;
  list.replaceChildren(
    ...shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

/** The address of a view of one thing: `#queue?name=…`. */
export const addressOf = (view, about) => `#${view}?${new URLSearchParams(about)}`;
