// Durable subscriptions, connected or not.

import { byId, say } from "../lib/dom.js";
import { Outcome, ask } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { ROWS_SHOWN, Table, buttons, number, words } from "../lib/table.js";
import { View } from "../lib/view.js";
import { placed, sessions } from "./links.js";

const keyOf = ({ name, client_id: client, owner, destination }) =>
  [name, client, owner, destination].join(" ");

export class Durables extends View {
  constructor({ api }) {
    super();
    this.api = api;
    this.filter = byId("durables-filter");
    this.outcome = new Outcome(byId("durables-result"));
    this.table = new Table(byId("durables-table"), {
      label: "Durable subscriptions",
      key: keyOf,
      sort: "Waiting",
      isDescending: true,
      empty: "No durable subscription matches.",
      columns: [
        words("Name", (item) => item.name),
        placed("Destination"),
        words("Client", (item) => item.client_id || "shared"),
        words("Owner", (item) => item.owner || "anonymous"),
        words("State", (item) => item.state, { mark: ({ state }) => (state === "away" ? "warn" : "good") }),
        sessions("Session", (item) => item.session_id),
        number("Waiting", (item) => item.waiting, format.brief, { mark: () => "strong" }),
        number("Unacked", (item) => item.unacked, format.brief),
        buttons((item) => item.name, { label: "End …", act: (item) => this.#end(item) }),
      ],
    });
    this.loader = new Loader({
      load: () => api.get("durables", { name: this.filter.value.trim(), limit: ROWS_SHOWN }),
      onAnswer: ({ durables, total }) => {
        say(byId("durables-count"), format.count(total));
        this.table.update(durables, total);
      },
      outcome: this.outcome,
    });
    this.filter.addEventListener("input", () => this.loader.now());
  }

  clear() {
    this.table.update([]);
  }

  async #end({ name, client_id, owner, destination, waiting }) {
    const answer = await ask({
      title: `End ${name}?`,
      text: `The durable subscription of ${destination} ends, and its ${format.some(waiting, "waiting message")} are permanently deleted.`,
      yes: "End it",
      isDangerous: true,
    });
    if (answer === null) return;
    await this.outcome.of(`End ${name}`, async () => {
      await this.api.post("end", { name, client_id, owner, destination });
      return `${name} has ended.`;
    });
    this.loader.now();
  }
}
