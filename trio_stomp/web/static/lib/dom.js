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

/** A client's text, whose direction of writing does not reach what is around it. */
export const bdi = (text) => el("bdi", {}, `${text}`);

/** A sentence with clients' texts in it, for `say`: phrase`Purge ${queue}?`. */
export const phrase = (texts, ...values) =>
  texts.flatMap((text, index) => (index === 0 ? [text] : [bdi(values[index - 1]), text]));

/** The parts of a phrase or text, and its text alone. */
export const parts = (text) => [text ?? ""].flat();
export const plain = (text) => parts(text).map((part) => part.textContent ?? part).join("");

/** Set the text of an element, or a phrase, if it differs. */
export function say(element, text) {
  if (element.textContent !== plain(text)) element.replaceChildren(...parts(text));
}

/** Have a screen reader read a text. A region that was hidden before is not read. */
export function announce(text) {
  byId("announcement").textContent = plain(text);
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
    ...shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { dir: "auto" }, value))),
  );
}

/** The address of a view of one thing: `#queue?name=…`. */
export const addressOf = (view, about) => `#${view}?${new URLSearchParams(about)}`;
