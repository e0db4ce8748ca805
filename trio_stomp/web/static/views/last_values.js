// The last values of topics, which new subscribers get first.

import { phrase } from "../lib/dom.js";
import { ask } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { number, operation, words } from "../lib/table.js";
import { ListView } from "../lib/view.js";
import { ownerText, placed } from "./links.js";

export class LastValues extends ListView {
  constructor({ api }) {
    const table = {
      label: "Last values of topics",
      key: (item) => item.destination,
      sort: "Destination",
      empty: "No topic has a last value, or none matches.",
      columns: [
        placed("Destination"),
        words("User", ownerText),
        number("Size", (item) => item.bytes, format.bytes),
        words("Set", (item) => item.set_ms, { text: ({ set_ms: at }) => (at > 0 ? format.moment(at, Date.now()) : "–") }),
        words("Kept", ({ stored }) => (stored ? "stored" : "in memory")),
        operation({ label: "Clear …", verb: "clear", key: (item) => item.destination, act: (item) => this.#remove(item) }),
      ],
    };
    super({ api, name: "last-values", items: (answer) => answer.last_values, table });
  }

  async #remove({ destination }) {
    const answer = await ask({
      title: phrase`Clear the last value of ${destination}?`,
      text: "It is permanently deleted, so new subscribers get none. Present subscribers get no message.",
      yes: "Clear",
      isDangerous: true,
    });
    if (answer === null) return;
    await this.outcome.of(phrase`Clear ${destination}`, async () => {
      const { cleared } = await this.api.post("clear", { destination });
      return cleared > 0 ? phrase`${destination} has no last value now.` : phrase`${destination} had no last value.`;
    });
    this.loader.now();
  }
}
