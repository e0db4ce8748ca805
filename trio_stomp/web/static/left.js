// Schedules: what users have left that acts later, and whose it is; some of it can be cancelled.
// Beneath it, who has most of what all share.

import { cancel, left } from "./actions.js";
import { Table, byId, el, matches, say, show } from "./dom.js";
import * as format from "./format.js";
import { number, place, words } from "./lists.js";
import { ask } from "./queues.js";

/** Parts of a list that are asked for, one after the other: the page shows 200 rows anyway. */
const MAX_PARTS = 10;
const NO_SHARES = { left: [], refused_total: 0 };

/** Whose something is, in words. */
export const owner = ({ user }) => user ?? "unknown";

/** When something is sent next: a time of day near now, else the date as well. */
export function due({ due_ms: at }) {
  return at === undefined ? "" : `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

export class Left {
  #items = [];
  #shares = NO_SHARES;
  #turn = 0;
  #refused = new Set();

  constructor(credentials) {
    Object.assign(this, { credentials });
    this.what = byId("schedules-what");
    this.filter = byId("schedules-filter");
    this.result = byId("schedules-result");
    this.what.addEventListener("change", () => this.visit());
    this.filter.addEventListener("input", () => this.draw());
    byId("schedules-again").addEventListener("click", () => this.visit());
    this.table = new Table(byId("schedules-table"), {
      label: "Scheduled messages",
      key: (item) => item.id ?? item.destination,
      sort: "Due",
      empty: "No messages are left.",
      columns: [
        words("Id", ({ id = "" }) => id),
        words("User", owner, { title: ({ user }) => (user === null ? "an older broker stored it" : "") }),
        place("Destination"),
        number("Messages", ({ messages = 1 }) => messages, format.brief),
        number("Size", (item) => item.bytes, format.bytes),
        words("Due", due),
        number("Sent", ({ sent = 0 }) => sent, format.brief),
        words("Repeats", ({ repeats = false }) => (repeats ? "yes" : "no")),
        words("Kept", ({ stored }) => (stored ? "stored" : "in memory")),
        { name: "Actions", isHidden: true, node: (item, cell) => this.#action(item, cell) },
      ],
    });
    this.quotas = new Table(byId("quotas-table"), {
      label: "Largest users of shared resources",
      key: ({ kind, owner }) => `${kind} ${owner}`,
      sort: "In memory",
      isDescending: true,
      empty: "No quota is in use.",
      columns: [
        words("User or network", ({ owner }) => owner),
        words("Kind", ({ kind }) => kind),
        number("In memory", (item) => item.kept_bytes, format.bytes),
        number("Stored", (item) => item.stored_bytes, format.bytes),
        number("Names and subscriptions", (item) => item.tables_bytes, format.bytes),
        number("Destinations", (item) => item.destinations, format.brief),
        number("Schedules", (item) => item.scheduled, format.brief),
        number("Refused", (item) => item.refused_total, format.brief),
      ],
    });
  }

  /** Ask for the list; it is not kept up to date by itself. */
  async visit() {
    this.#turn += 1;
    const turn = this.#turn;
    const question = { what: this.what.value };
    const items = [];
    try {
      const shares = await left(this.credentials(), { what: "quotas" });
      if (turn !== this.#turn) return;
      this.#shares = shares;
      for (let part = 0; part < MAX_PARTS; part += 1) {
        const answer = await left(this.credentials(), question);
        if (turn !== this.#turn) return;
        items.push(...answer.left);
        if (answer.next === undefined) break;
        question.after = answer.next;
      }
    } catch (error) {
      if (turn === this.#turn) this.#tell(error, "");
      return;
    }
    show(this.result, false);
    this.#items = items;
    this.draw();
  }

  /** Forget the list: somebody else may not see it. */
  leave() {
    this.#turn += 1;
    this.#items = [];
    this.#shares = NO_SHARES;
    this.#refused.clear();
    show(this.result, false);
    this.draw();
  }

  draw() {
    const wanted = this.filter.value;
    say(byId("schedules-count"), format.count(this.#items.length));
    this.table.update(this.#items.filter((each) => matches(wanted, owner(each), each.destination)));
    this.quotas.update(this.#shares.left);
    const refused = this.#shares.refused_total;
    say(byId("quotas-refused"), `Refused by quotas since the start: ${format.count(refused)}`);
  }

  #action(item, cell) {
    if (item.id === undefined) return;
    if (cell.firstChild === null) {
      const { id } = item;
      const onclick = () => this.#cancel(id);
      const label = `Cancel ${id}`;
      cell.append(el("button", { type: "button", class: "small", "aria-label": label, onclick }, "Cancel"));
    }
    const isRefused = this.#refused.has(item.id);
    cell.firstChild.disabled = isRefused;
    cell.firstChild.title = isRefused ? "It no longer exists, or you lack the right" : "";
  }

  async #cancel(id) {
    const item = this.#items.find((each) => each.id === id);
    if (item === undefined) return;
    const isSure = await ask({
      title: `Cancel ${format.some(item.messages, "message")}?`,
      text: `What ${owner(item)} has scheduled for ${item.destination} is deleted permanently, and will not be sent.`,
      yes: "Cancel it",
      isDangerous: true,
    });
    if (isSure === null) return;
    try {
      if ((await cancel(this.credentials(), id)) === 0) this.#refused.add(id);
      else this.#items = this.#items.filter((each) => each.id !== id);
      this.draw();
    } catch (error) {
      this.#tell(error, `Cancel ${id}: `);
    }
  }

  #tell(error, what) {
    const code = error.code ? ` (${error.code})` : "";
    say(this.result, `${what}${error.message}${code}`);
    this.result.classList.toggle("wrong", true);
    show(this.result, true);
  }
}
