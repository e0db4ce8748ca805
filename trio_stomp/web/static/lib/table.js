// Tables that are kept up to date, and their columns.

import { el, say, show } from "./dom.js";
import { cut } from "./format.js";
import { allow } from "./rights.js";

export const ROWS_SHOWN = 200;

/** A column of numbers. */
export const number = (name, value, text, more = {}) => ({
  name,
  value,
  text: (item) => text(value(item)),
  isNumber: true,
  ...more,
});

/** A column of text. The broker's and clients' texts are set as text only. */
export const words = (name, value, more = {}) => ({ name, value, text: value, ...more });

/** The characters of a long text that are shown at first. */
const START = 40;

/** A column of texts that may be long: then its start is shown, and all of it on request. */
export const texts = (name, text) => ({
  name,
  value: text,
  node: (item, cell) => {
    const wanted = text(item);
    if (cell.dataset.shown === wanted) return;
    cell.dataset.shown = wanted;
    const start = cut(wanted, START);
    const whole = el("details", {}, el("summary", {}, start), wanted);
    cell.replaceChildren(start === wanted ? wanted : whole);
  },
});

/** A column of links. `link(item)` makes the element, again only if `text(item)` changes. */
export const links = (name, text, link, more = {}) => ({
  name,
  value: text,
  ...more,
  node: (item, cell) => {
    const wanted = text(item);
    if (cell.dataset.shown === wanted) return;
    cell.dataset.shown = wanted;
    cell.replaceChildren(link(item));
  },
});

/** A column with a button for an operation on the row's item, which lists its `operations`. */
export const operation = ({ label, verb, key, act }) => ({
  name: "Actions",
  isHidden: true,
  node: (item, cell) => {
    cell.item = item;
    if (cell.firstChild === null) {
      const attributes = { type: "button", class: "small", onclick: () => act(cell.item) };
      const button = el("button", { ...attributes, "aria-label": `${label} ${key(item)}` }, label);
      cell.append(el("div", { class: "actions" }, button));
    }
    allow(cell.querySelector("button"), item.operations.includes(verb), `You may not ${verb} this one.`);
  },
});

/**
 * A table with rows identified by a key, sorted by a click on a column's head.
 *
 * A column: `name`, `text(item)` or `node(item, cell)`, `value(item)` to sort by, `isNumber`,
 * `mark(item)` (a class), `title(item)`, and `order`, the broker's name of the sort order, with
 * which `onSort()` is called.
 */
export class Table {
  #rows = new Map();
  #heads = [];

  constructor(parent, { label, columns, key, sort, isDescending = false, empty, onSort }) {
    Object.assign(this, { columns, key, isDescending, empty, onSort });
    this.items = []; // may be sorted before the first update
    this.total = 0;
    this.sorted = sort;
    this.body = el("tbody");
    this.note = el("p", { class: "note" });
    const heads = el("tr");
    for (const column of columns) heads.append(this.#head(column));
    const table = el("table", { class: "list" }, el("caption", { class: "unseen" }, label));
    table.append(el("thead", {}, heads), this.body);
    // A wide table must be scrolled by the keyboard, even without a button in its head.
    const isFixed = columns.every(({ value }) => value === undefined);
    const reached = isFixed ? { tabindex: "0", role: "group", "aria-label": label } : {};
    parent.append(el("div", { class: "scroll", ...reached }, table), this.note);
    this.#markHeads();
  }

  /** The broker's name of the sort order. */
  get order() {
    return this.columns.find((each) => each.name === this.sorted)?.order;
  }

  #head(column) {
    const head = el("th", { scope: "col", class: column.isNumber ? "number" : null });
    if (column.value === undefined) {
      head.append(el("span", { class: column.isHidden ? "unseen" : null }, column.name));
    } else {
      head.append(
        el("button", { type: "button", onclick: () => this.#sortBy(column) }, column.name),
      );
      this.#heads.push([head, column]);
    }
    return head;
  }

  #sortBy(column) {
    this.isDescending = this.sorted === column.name ? !this.isDescending : !!column.isNumber;
    this.sorted = column.name;
    this.#markHeads();
    this.update(this.items, this.total);
    if (column.order) this.onSort?.();
  }

  #markHeads() {
    for (const [head, column] of this.#heads) {
      const order = this.isDescending ? "descending" : "ascending";
      head.setAttribute("aria-sort", column.name === this.sorted ? order : "none");
    }
  }

  /** Show the first of `items`. `total` is the number of all things, listed here or not. */
  update(items, total = items.length) {
    Object.assign(this, { items, total });
    const column = this.columns.find((each) => each.name === this.sorted);
    const shown = (column ? [...items].sort(this.#order(column)) : items).slice(0, ROWS_SHOWN);
    const keys = new Set(shown.map(this.key));
    for (const [key, row] of this.#rows) {
      if (!keys.has(key)) {
        row.remove();
        this.#rows.delete(key);
      }
    }
    let next = this.body.firstChild;
    for (const item of shown) {
      const row = this.#row(item);
      if (row === next) next = next.nextSibling;
      else this.body.insertBefore(row, next);
    }
    this.#sayHowMany(shown.length);
  }

  #order(column) {
    const sign = this.isDescending ? -1 : 1;
    return (one, other) => {
      const [a, b] = [column.value(one), column.value(other)];
      return sign * (a < b ? -1 : a > b ? 1 : 0);
    };
  }

  #row(item) {
    const key = this.key(item);
    let row = this.#rows.get(key);
    if (row === undefined) {
      row = el("tr");
      for (const { name, isNumber } of this.columns) {
        // As in a bdi: what clients named may be written from right to left.
        const looks = isNumber ? { class: "number" } : { dir: "auto" };
        row.append(el("td", { "data-name": name, ...looks }));
      }
      this.#rows.set(key, row);
    }
    this.columns.forEach((column, index) => this.#fill(row.children[index], column, item));
    return row;
  }

  #fill(cell, column, item) {
    if (column.node) {
      column.node(item, cell);
      return;
    }
    say(cell, column.text(item));
    // Unchanged values are not set, as the browser would recompute the style.
    const title = column.title?.(item) ?? "";
    if (cell.title !== title) cell.title = title;
    const kind = column.mark ? `${column.isNumber ? "number " : ""}${column.mark(item)}` : null;
    if (kind !== null && cell.className !== kind) cell.className = kind;
  }

  #sayHowMany(shown) {
    if (this.total === 0) say(this.note, this.empty);
    else if (shown < this.total) say(this.note, `${shown} of ${this.total}. Use the filter to see others.`);
    else say(this.note, "");
    show(this.note, this.note.textContent !== "");
    show(this.body.parentElement, this.total > 0);
  }
}
