// The time span of charts: the last quarter of an hour, or older records of the DIAG stream.

import { problem } from "../lib/api.js";
import { el, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { SAMPLED, SPANS } from "../model/history.js";

export class Span {
  /** Older figures from the stream: {points, since, stepMs}. */
  #history = null;
  #turn = 0;
  #isSampled = false;

  /** `read(span, now)` requests the older figures of a span of `SPANS`. */
  constructor({ read, redraw }) {
    Object.assign(this, { read, redraw });
    const options = SPANS.map(({ name }, index) => el("option", { value: index }, name));
    this.choice = el("select", { onchange: () => this.#read() }, ...options);
    this.note = el("p", { class: "note span-note", role: "status" });
    /** The elements for the page. */
    this.parts = [this.note, el("label", { class: "span" }, "Last ", this.choice)];
  }

  /** Forget the older figures, as another user may not see them. */
  forget() {
    this.choice.value = "0";
    this.#read();
  }

  /** Read samples of the shortest span, too, as its records are too many to read. */
  fill() {
    this.#isSampled = true;
    if (this.choice.value === "0") this.#read();
  }

  async #read() {
    this.#turn += 1;
    const turn = this.#turn;
    const chosen = SPANS[this.choice.value];
    const span = chosen.ms === 0 && this.#isSampled ? SAMPLED : chosen;
    this.#history = null;
    say(this.note, span.ms > 0 ? "reading …" : "");
    if (span.ms > 0) {
      try {
        const found = await this.read(span, Date.now());
        if (turn !== this.#turn) return;
        this.#history = found;
        say(this.note, sinceText(found, span, Date.now()));
      } catch (error) {
        if (turn === this.#turn) say(this.note, problem(error));
      }
    }
    this.redraw();
  }

  /** The points to show, and the gap in milliseconds at which a line breaks. */
  shown(points, gapMs) {
    if (this.#history === null) return { points, gapMs };
    const begin = points[0]?.at ?? Infinity;
    const oldest = this.choice.value === "0" ? Date.now() - SAMPLED.ms : -Infinity;
    const before = this.#history.points.filter(({ at }) => at < begin && at >= oldest);
    return { points: [...before, ...points], gapMs: Math.max(2.5 * this.#history.stepMs, gapMs) };
  }
}

/** A text on the beginning of the stream and the interval of samples. */
function sinceText({ since, stepMs, points }, { ms }, now) {
  if (points.length === 0) return "The stream of statistics has no such figures.";
  const far = since > now - ms + 1000 ? `The stream holds ${format.duration((now - since) / 1000)}: since` : "since";
  return `${far} ${format.moment(since, now).replace(/\.\d+$/, "")}, a reading every ${format.duration(stepMs / 1000)}`;
}
