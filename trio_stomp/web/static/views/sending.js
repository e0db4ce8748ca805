// A form that sends a message and shows the broker's answer.

import { el } from "../lib/dom.js";
import { Outcome } from "../lib/dialogs.js";
import { card } from "../lib/parts.js";
import { outcome, parseHeaders } from "./try.js";

export class SendForm {
  /** `onSent()` is called when the broker has accepted a message. */
  constructor({ api, onSent }) {
    Object.assign(this, { api, onSent });
    this.headers = el("textarea", { name: "headers", rows: "2", spellcheck: "false", placeholder: "priority:7" });
    this.body = el("textarea", { name: "body", rows: "4", spellcheck: "false" });
    this.outcome = new Outcome(el("p"));
    const form = el(
      "form",
      {},
      el("label", {}, "Headers, one a line ", this.headers),
      el("label", {}, "Body ", this.body),
      (this.button = el("button", { type: "submit", class: "main" }, "Send")),
    );
    form.onsubmit = (event) => {
      event.preventDefault();
      this.#send();
    };
    this.card = card("Send", [], form, this.outcome.line);
    this.card.classList.add("send");
  }

  /** The button with the operation that it requests. */
  needs() {
    return [{ button: this.button, operation: "send", at: this.destination }];
  }

  /** Choose the destination. */
  to(destination) {
    this.destination = destination;
    this.outcome.hide();
  }

  async #send() {
    const isSent = await this.outcome.of("Send", async () => {
      const header = Object.entries(parseHeaders(this.headers.value)).map((each) => each.join(":"));
      const parameters = { destination: this.destination, header };
      const { receipt } = await this.api.post("send", parameters, { body: this.body.value });
      return outcome(receipt);
    });
    if (isSent) this.onSent();
  }
}
