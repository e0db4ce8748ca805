// The time span of the overview: the last quarter of an hour, or older records of the DIAG stream.

import { problem } from "../lib/api.js";
import { byId, el, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { SPANS, readBack } from "../model/history.js";

export class Span {
  /** Older figures from the stream: {points, since, stepMs}. */
  #history = null;
  #turn = 0;

  constructor({ api, redraw }) {
    Object.assign(this, { api, redraw });
    this.choice = byId("span");
    this.note = byId("span-note");
    this.choice.append(...SPANS.map(({ name }, place) => el("option", { value: place }, name)));
    this.choice.addEventListener("change", () => this.#read());
  }

  /** Forget the older figures, as another user may not see them. */
  forget() {
    this.choice.value = "0";
    this.#read();
  }

  async #read() {
    this.#turn += 1;
    const turn = this.#turn;
    const span = SPANS[this.choice.value];
    this.#history = null;
    say(this.note, span.ms > 0 ? "reading …" : "");
    if (span.ms > 0) {
      try {
        const found = await readBack(this.api, span, Date.now());
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
    const before = this.#history.points.filter(({ at }) => at < begin);
    return { points: [...before, ...points], gapMs: Math.max(2.5 * this.#history.stepMs, gapMs) };
  }
}

/** A text on the beginning of the stream and the interval of samples. */
function sinceText({ since, stepMs, points }, { ms }, now) {
  if (points.length === 0) return "The stream of statistics holds nothing.";
  const far = since > now - ms + 1000 ? `The stream holds ${format.duration((now - since) / 1000)}: since` : "since";
  return `${far} ${format.moment(since, now).replace(/\.\d+$/, "")}, a reading every ${format.duration(stepMs / 1000)}`;
}
