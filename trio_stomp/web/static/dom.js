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

const ROWS_SHOWN = 200;

/**
 * A table that is kept up to date: rows are known by key, sorted by a click on a head.
 *
 * A column: `name`, `text(item)` or `node(item, cell)`, `value(item)` to sort by, `isNumber`,
 * `mark(item)` (a class), `title(item)`.
 */
export class Table {
  #rows = new Map();
  #heads = [];

  constructor(place, { label, columns, key, sort, isDescending = false, empty }) {
    Object.assign(this, { columns, key, isDescending, empty });
    this.items = []; // it may be sorted before anything has come
    this.sorted = sort;
    this.body = el("tbody");
    this.note = el("p", { class: "note" });
    const heads = el("tr");
    for (const column of columns) heads.append(this.#head(column));
    const table = el("table", { class: "list" }, el("caption", { class: "unseen" }, label));
    table.append(el("thead", {}, heads), this.body);
    place.append(el("div", { class: "scroll" }, table), this.note);
    this.#markHeads();
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
    this.update(this.items);
  }

  #markHeads() {
    for (const [head, column] of this.#heads) {
      const order = this.isDescending ? "descending" : "ascending";
      head.setAttribute("aria-sort", column.name === this.sorted ? order : "none");
    }
  }

  update(items) {
    this.items = items;
    const column = this.columns.find((each) => each.name === this.sorted);
    const shown = (column ? [...items].sort(this.#order(column)) : items).slice(0, ROWS_SHOWN);
    const keys = new Set(shown.map(this.key));
    for (const [key, row] of this.#rows) {
      if (!keys.has(key)) {
        row.remove();
        this.#rows.delete(key);
      }
    }
    let place = this.body.firstChild;
    for (const item of shown) {
      const row = this.#row(item);
      if (row === place) place = place.nextSibling;
      else this.body.insertBefore(row, place);
    }
    this.#sayHowMany(items.length, shown.length);
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
        row.append(el("td", { "data-name": name, class: isNumber ? "number" : null }));
      }
      this.#rows.set(key, row);
    }
    this.columns.forEach((column, place) => this.#fill(row.children[place], column, item));
    return row;
  }

  #fill(cell, column, item) {
    if (column.node) {
      column.node(item, cell);
      return;
    }
    say(cell, column.text(item));
    if (column.title) cell.title = column.title(item);
    if (column.mark) cell.className = `${column.isNumber ? "number " : ""}${column.mark(item)}`;
  }

  #sayHowMany(all, shown) {
    if (all === 0) say(this.note, this.empty);
    else if (shown < all) say(this.note, `The first ${shown} of ${all}. Use the filter to see others.`);
    else say(this.note, "");
    show(this.note, this.note.textContent !== "");
    show(this.body.parentElement, all > 0);
  }
}

/** Whether one of the texts holds what was typed into a filter. */
export function matches(wanted, ...texts) {
  const lower = wanted.trim().toLowerCase();
  return lower === "" || texts.some((text) => text.toLowerCase().includes(lower));
}
