// Insight: what `trio-stomp spark watch --insight` publishes, by a connection of its own, since a
// refused SUBSCRIBE ends the connection.

import { connect } from "../lib/connection.js";
import { byId, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { Table, words } from "../lib/table.js";
import { Findings } from "../model/findings.js";
import { placed } from "./links.js";

const TOPICS = "/topic/insight/>";
const AGAIN_MS = 5000;

export class Insight {
  #connection = null;
  #timer = 0;

  constructor({ redraw, credentials }) {
    Object.assign(this, { redraw, credentials, findings: new Findings(), problem: "" });
    this.table = new Table(byId("insight-table"), {
      label: "Findings, the newest first",
      key: (item) => item.key,
      empty: "No finding came since this view was opened. One that holds comes each minute.",
      columns: [
        words("Last", (item) => format.clock(item.at)),
        words("Since", (item) => format.clock(item.since), { mark: () => "soft" }),
        words("Rule", (item) => item.rule, { mark: () => "kind warn" }),
        placed("Destination"),
        words("Finding", (item) => item.text),
      ].map(({ value, ...column }) => column),
    });
  }

  /** Connect on the first visit, and stay connected, so that nothing is missed behind other views. */
  visit() {
    if (this.#connection === null || this.#connection.isOver) this.#connect();
  }

  forget() {
    clearTimeout(this.#timer);
    this.#connection?.close();
    this.#connection = null;
    this.findings = new Findings();
  }

  draw() {
    const { heardAt } = this.findings;
    const heard = heardAt
      ? `The last figures are of ${format.clock(heardAt)}.`
      : "No figures came yet. They are published each minute by “trio-stomp spark watch --insight”.";
    say(byId("insight-result"), this.problem || heard);
    this.table.update(this.findings.list());
  }

  #connect() {
    clearTimeout(this.#timer);
    this.problem = "";
    const connection = connect({
      credentials: this.credentials(),
      onEnd: (ended) => connection === this.#connection && this.#ended(ended),
    });
    this.#connection = connection;
    connection.opened.then(
      () => connection.subscribe(TOPICS, {}, (message) => this.#take(message)),
      () => {},
    );
  }

  #ended({ code, message, retryAfterMs }) {
    this.problem = code ? `The broker refused ${TOPICS}: ${message}` : `Disconnected: ${message}`;
    // A refusal stays one, until somebody looks again.
    if (code === "") this.#timer = setTimeout(() => this.#connect(), Math.max(AGAIN_MS, retryAfterMs));
    this.redraw();
  }

  #take(message) {
    try {
      this.findings.take(JSON.parse(message.body));
    } catch {
      return; // it is not insight
    }
    this.redraw();
  }
}
