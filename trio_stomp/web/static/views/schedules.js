// Scheduled messages with their users, and the largest users of shared resources.

import { byId, matches, phrase, say } from "../lib/dom.js";
import { Outcome, ask } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { Table, number, operation, words } from "../lib/table.js";
import { View } from "../lib/view.js";
import { ownerText, placed } from "./links.js";

/** Limit of items in a list. */
const LISTED = 1000;

/** The time of the next SEND, in UTC. */
export const due = ({ due_ms: at }) =>
  `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;

export class Schedules extends View {
  #items = [];
  #total = 0;

  constructor({ api }) {
    super();
    this.api = api;
    this.filter = byId("schedules-filter");
    this.outcome = new Outcome(byId("schedules-result"));
    this.filter.addEventListener("input", () => this.draw());
    byId("schedules-again").addEventListener("click", () => this.visit());
    this.table = new Table(byId("schedules-table"), {
      label: "Scheduled messages",
      key: (item) => item.id,
      sort: "Due",
      empty: "No message matches.",
      columns: [
        words("Id", (item) => item.id),
        words("User", ownerText, { title: ({ user }) => (user === null ? "an older broker stored it" : "") }),
        placed("Destination"),
        number("Messages", (item) => item.messages, format.brief),
        number("Size", (item) => item.bytes, format.bytes),
        words("Due", due),
        number("Sent", (item) => item.sent, format.brief),
        words("Repeats", ({ repeats }) => (repeats ? "yes" : "no")),
        words("Kept", ({ stored }) => (stored ? "stored" : "in memory")),
        operation({ label: "Cancel …", verb: "cancel", key: (item) => item.id, act: (item) => this.#cancel(item) }),
      ],
    });
    this.quotas = new Table(byId("quotas-table"), QUOTAS);
    this.loader = new Loader({
      load: async () => {
        const [own, all] = await Promise.allSettled([api.get("schedules", { limit: LISTED }), api.get("overview")]);
        if (own.status === "rejected") throw own.reason;
        const { schedules: items, total } = own.value;
        // The overview needs the right to monitor; the user's own messages do not.
        const { quotas = [], quota_refusals_total: refused } = all.value ?? {};
        return { items, total, quotas, refused };
      },
      onAnswer: ({ items, total, quotas, refused }) => {
        this.#items = items;
        this.#total = total;
        this.quotas.update(quotas);
        say(byId("quotas-refused"), `Refused by quotas since the start: ${format.count(refused)}`);
        this.draw();
      },
      outcome: this.outcome,
    });
  }

  /** Do nothing: the list is loaded on request only. */
  refresh() {}

  clear() {
    this.#items = [];
    this.quotas.update([]);
    this.draw();
  }

  draw() {
    const wanted = this.filter.value;
    say(byId("schedules-count"), format.count(this.#total));
    this.table.update(this.#items.filter((each) => matches(wanted, ownerText(each), each.destination)));
  }

  async #cancel(item) {
    const { id, messages, destination } = item;
    const isSure = await ask({
      title: `Cancel ${format.some(messages, "message")}?`,
      text: phrase`What ${ownerText(item)} has scheduled for ${destination} is deleted permanently, and will not be sent.`,
      yes: "Cancel it",
      isDangerous: true,
    });
    if (isSure === null) return;
    await this.outcome.of(`Cancel ${id}`, async () => {
      const { cancelled } = await this.api.post("cancel", { id });
      return `${id}: ${format.some(cancelled, "message")} cancelled.`;
    });
    this.loader.now();
  }
}

const QUOTAS = {
  label: "Largest users of shared resources",
  key: ({ kind, owner: name }) => `${kind} ${name}`,
  sort: "In memory",
  isDescending: true,
  empty: "No quota is in use.",
  columns: [
    words("User or network", (item) => item.owner),
    words("Kind", ({ kind }) => kind),
    number("In memory", (item) => item.kept_bytes, format.bytes),
    number("Stored", (item) => item.stored_bytes, format.bytes),
    number("Names and subscriptions", (item) => item.tables_bytes, format.bytes),
    number("Destinations", (item) => item.destinations, format.brief),
    number("Schedules", (item) => item.scheduled, format.brief),
    number("Refused", (item) => item.refused_total, format.brief),
  ],
};
