// Parts of pages: cards, tiles, charts with a legend.

import { drawLines, drawSpark } from "./charts.js";
import { el, say } from "./dom.js";
import * as format from "./format.js";

/** A card with a title. The elements `beside` are at its right. */
export function card(title, beside, ...children) {
  const head = el("div", { class: "title" }, el("h2", {}, title), ...beside);
  return el("article", { class: "card" }, head, ...children);
}

/** The head of a page: a link to its parent view, its name, and buttons. */
export function pageHead(parent, ...beside) {
  const name = el("bdi", { class: "name" });
  const badges = el("span", { class: "badges" });
  const up = el("a", { href: `#${parent.toLowerCase()}`, class: "up" }, parent);
  const head = el("div", { class: "tools" }, el("h2", {}, up, name), badges, ...beside);
  return { head, name, badges };
}

/** The limits of a text that needs no scroll bar even on a phone. */
const SHORT = { characters: 300, lines: 7 };

/** A text as it is. A long one scrolls, also by the keyboard. */
export function block(text) {
  const isShort = text.length <= SHORT.characters && text.split("\n").length <= SHORT.lines;
  return el("pre", isShort ? { dir: "auto" } : { dir: "auto", tabindex: "0", role: "group", "aria-label": "Text" }, text);
}

/** A button. */
export const button = (label, onclick, more = {}) =>
  el("button", { type: "button", onclick, ...more }, label);

/** A tile with a figure, a line below it, and a small chart. */
export class Tile {
  constructor(parent, name) {
    this.value = el("strong", {}, "–");
    this.more = el("p");
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.card = el(
      "article",
      { class: "card tile" },
      el("h3", {}, name),
      this.value,
      this.more,
      this.canvas,
    );
    parent.append(this.card);
  }

  show([value, more], isWrong = false) {
    say(this.value, value);
    say(this.more, more);
    this.more.title = more;
    this.card.classList.toggle("wrong", isWrong);
  }

  chart(points, read, colour, gapMs) {
    drawSpark(this.canvas, points, read, colour, gapMs);
  }
}

/** Track the pointer over a canvas. Calls `redraw` when it moves. */
export function hovering(canvas, redraw) {
  const pointer = { at: null };
  canvas.addEventListener("pointermove", (event) => {
    pointer.at = { x: event.offsetX, y: event.offsetY };
    redraw();
  });
  canvas.addEventListener("pointerleave", () => {
    pointer.at = null;
    redraw();
  });
  return pointer;
}

/** A card with lines over time. `lines`: {name, read(point), colour}; `say` formats a value. */
export class LineCard {
  constructor({ title, unit, lines, say: write, palette, redraw }) {
    Object.assign(this, { title, lines, write, palette });
    this.readout = el("p", { class: "readout" });
    this.canvas = el("canvas", { class: "chart low", role: "img", "aria-label": title });
    const keys = lines.map(({ name, colour }) => el("span", { class: `key colour-${colour}` }, name));
    const legend = el("p", { class: "legend" }, ...keys);
    this.card = card(title, [el("small", {}, unit), legend, this.readout], this.canvas);
    this.over = hovering(this.canvas, redraw);
  }

  draw(points, gapMs) {
    const { palette, write } = this;
    const lines = this.lines.map(({ read, colour }) => ({ read, colour: palette.get(colour) }));
    const hover = this.over.at?.x ?? null;
    const point = drawLines(this.canvas, points, lines, { palette, say: write, gapMs, hover });
    const figures = (each) => this.lines.map(({ name, read }) => `${write(read(each))} ${name}`).join(", ");
    const last = points.at(-1);
    const now = last === undefined ? "no figures yet" : `now ${figures(last)}`;
    this.canvas.setAttribute("aria-label", `${this.title} over time; ${now}`);
    say(this.readout, point === null ? "" : `${format.clock(point.at)}: ${figures(point)}`);
  }
}

/** The colour class of an event's name, or "" if the name is not a plain word. */
export const kindClass = (name) => (/^[a-z-]+$/.test(name) ? name : "");
