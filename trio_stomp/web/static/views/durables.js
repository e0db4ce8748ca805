// Durable subscriptions, connected or not.

import { phrase } from "../lib/dom.js";
import { ask } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { number, operation, words } from "../lib/table.js";
import { ListView } from "../lib/view.js";
import { placed, sessions } from "./links.js";

export class Durables extends ListView {
  constructor({ api }) {
    const table = {
      label: "Durable subscriptions",
      key: ({ name, client_id: client, owner, destination }) => [name, client, owner, destination].join(" "),
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
        operation({ label: "End …", verb: "end", key: (item) => item.name, act: (item) => this.#end(item) }),
      ],
    };
    super({ api, name: "durables", items: ({ durables }) => durables, table });
  }

  async #end({ name, client_id, owner, destination, waiting }) {
    const answer = await ask({
      title: phrase`End ${name}?`,
      text: phrase`The durable subscription of ${destination} ends, and its ${format.some(waiting, "waiting message")} are permanently deleted.`,
      yes: "End it",
      isDangerous: true,
    });
    if (answer === null) return;
    await this.outcome.of(phrase`End ${name}`, async () => {
      await this.api.post("end", { name, client_id, owner, destination });
      return phrase`${name} has ended.`;
    });
    this.loader.now();
  }
}
