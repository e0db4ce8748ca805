// The page of a stream: its range, and a window of records, chosen by a slider over time.

import { byId, el, facts, phrase, say, show } from "../lib/dom.js";
import { Outcome, ask } from "../lib/dialogs.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { block, button, card, pageHead } from "../lib/parts.js";
import { Rights } from "../lib/rights.js";
import { Page } from "../lib/view.js";
import { bodyText, headersOf } from "./messages.js";

/** Records in a window. */
const SHOWN = 50;
/** Steps of the slider. */
const STEPS = 1000;

export class StreamPage extends Page {
  #stream = null;
  #window = null;
  #span = { first: 0, last: 0 };

  constructor({ api }) {
    super("name");
    this.api = api;
    this.rights = new Rights(api);
    this.trim = button("Trim before these …", () => this.#trim());
    this.head = pageHead("Streams", this.trim);
    this.outcome = new Outcome(el("p"));
    this.figures = el("dl", { class: "facts" });
    this.slider = el("input", { type: "range", min: 0, max: STEPS, value: STEPS, "aria-label": "Time" });
    this.slider.oninput = () => say(this.moment, format.moment(this.#chosen(), Date.now()));
    this.slider.onchange = () => this.#read({ time: this.#chosen() });
    this.moment = el("output");
    this.list = el("ol", { class: "messages tall", tabindex: "0", "aria-label": "Records" });
    this.range = el("p", { class: "note" });
    this.older = button("Older", () => this.#read({ offset: Math.max(this.#stream.first, this.#window.offset - SHOWN) }));
    this.newer = button("Newer", () => this.#read({ offset: this.#window.next_offset }));
    this.newest = button("Newest", () => this.#read({ offset: Math.max(this.#stream.first, this.#stream.next - SHOWN) }));
    this.loader = new Loader({
      load: () => api.get("stream", { stream: this.name }),
      onAnswer: (answer) => this.#take(answer),
      outcome: this.outcome,
    });
    const ends = el("p", { class: "ends" }, (this.oldest = el("span")), this.moment, (this.latest = el("span")));
    byId("stream").append(
      this.head.head,
      this.outcome.line,
      card("Figures", [], this.figures),
      card(
        "Records",
        [this.older, this.newer, this.newest],
        this.slider,
        ends,
        this.range,
        this.list,
      ),
    );
  }

  visit(search) {
    super.visit(search);
    this.rights.apply([{ button: this.trim, operation: "trim" }]);
  }

  begin(name) {
    say(this.head.name, name);
  }

  clear() {
    this.#stream = this.#window = null;
    this.list.replaceChildren();
    facts(this.figures, []);
  }

  /** The time chosen by the slider, in milliseconds since 1970. */
  #chosen() {
    const { first, last } = this.#span;
    return Math.round(first + ((last - first) * this.slider.value) / STEPS);
  }

  async #take(stream) {
    const isNew = this.#stream === null;
    this.#stream = stream;
    facts(this.figures, [
      ["Messages", format.count(stream.messages)],
      ["Offsets", stream.messages > 0 ? `${format.count(stream.first)} to ${format.count(stream.next - 1)}` : "none"],
      ["Size", `${format.bytes(stream.bytes)} of at most ${format.bytes(stream.max_bytes)}`],
      ["Kept for", format.millis(stream.max_age_ms)],
      ["Kept", stream.stored ? "on disk" : "in memory"],
      ["Readers", format.count(stream.total)],
      ["Epoch", stream.epoch],
    ]);
    if (!isNew) return;
    await this.#measure();
    await this.#read({ offset: Math.max(stream.first, stream.next - SHOWN) });
  }

  /** Find the range of the slider: the times of the oldest and newest record. */
  async #measure() {
    const { stream, first, next, newest_ms: newest } = this.#stream;
    const at = async (offset) => {
      const { records } = await this.api.get("records", { stream, offset, limit: 1, bytes: 0 });
      return records[0]?.written_ms ?? newest;
    };
    try {
      this.#span = { first: await at(first), last: newest || (await at(next - 1)) };
    } catch (error) {
      this.outcome.fail(error);
    }
    const now = Date.now();
    say(this.oldest, format.moment(this.#span.first, now));
    say(this.latest, format.moment(this.#span.last, now));
  }

  async #read(where) {
    await this.outcome.of("Read", async ({ signal }) => {
      const parameters = { stream: this.name, limit: SHOWN, ...where };
      this.#show(await this.api.get("records", parameters, { signal }));
      return "";
    });
  }

  #show(window) {
    this.#window = window;
    const { records, first, next, next_offset: end } = window;
    const [begin, last] = [records[0], records.at(-1)];
    this.list.replaceChildren(...records.map(recordItem));
    say(
      this.range,
      begin === undefined
        ? "No records."
        : `Offsets ${format.count(begin.offset)} to ${format.count(last.offset)}, of ${format.count(next - first)} messages.`,
    );
    show(this.list, records.length > 0);
    this.older.disabled = window.offset <= first;
    this.newer.disabled = end >= next;
    if (begin === undefined) return;
    const { first: from, last: to } = this.#span;
    this.slider.value = to > from ? Math.round((STEPS * (begin.written_ms - from)) / (to - from)) : STEPS;
    const now = Date.now();
    say(this.moment, `${format.moment(begin.written_ms, now)} – ${format.moment(last.written_ms, now)}`);
    this.slider.setAttribute("aria-valuetext", this.moment.textContent);
  }

  async #trim() {
    const offset = this.#window?.records[0]?.offset ?? this.#stream?.first ?? 0;
    const count = offset - (this.#stream?.first ?? 0);
    const answer = await ask({
      title: phrase`Trim ${this.name}?`,
      text: `Permanently deletes the ${format.some(count, "message")} before offset ${format.count(offset)}.`,
      yes: "Trim",
      isDangerous: true,
    });
    if (answer === null) return;
    await this.outcome.of("Trim", async () => {
      const { first, trimmed } = await this.api.post("trim", { stream: this.name, offset });
      return `${format.some(trimmed, "message")} deleted; the first is ${format.count(first)} now.`;
    });
    this.loader.now();
  }
}

/** The list item of a record: offset, time, topic, then the body, as text. */
function recordItem(record) {
  const { offset, written_ms: at, headers, size } = record;
  const about = [format.count(offset), format.moment(at, Date.now()), headers.destination ?? "", `${format.count(size)} bytes`];
  return el(
    "li",
    {},
    el("p", { class: "head" }, ...about.map((text) => el("span", {}, text))),
    block(bodyText(record)),
    headersOf(headers),
  );
}
