// How far back the overview looks: a quarter of an hour, or what the stream of DIAG holds.

import { problem } from "../lib/api.js";
import { byId, el, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { SPANS, readBack } from "../model/history.js";

export class Span {
  /** What the stream told of before: {points, since, stepMs}. */
  #history = null;
  #turn = 0;

  constructor({ api, redraw }) {
    Object.assign(this, { api, redraw });
    this.choice = byId("span");
    this.note = byId("span-note");
    this.choice.append(...SPANS.map(({ name }, place) => el("option", { value: place }, name)));
    this.choice.addEventListener("change", () => this.#read());
  }

  /** Forget what was read: somebody else may not see it. */
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

  /** The points to show, and how long a line may be silent before it breaks. */
  shown(points, gapMs) {
    if (this.#history === null) return { points, gapMs };
    const begin = points[0]?.at ?? Infinity;
    const before = this.#history.points.filter(({ at }) => at < begin);
    return { points: [...before, ...points], gapMs: Math.max(2.5 * this.#history.stepMs, gapMs) };
  }
}

/** How far back the stream holds, and how close its readings are. */
function sinceText({ since, stepMs, points }, { ms }, now) {
  if (points.length === 0) return "The stream of statistics holds nothing.";
  const far = since > now - ms + 1000 ? `The stream holds ${format.duration((now - since) / 1000)}: since` : "since";
  return `${far} ${format.moment(since, now).replace(/\.\d+$/, "")}, a reading every ${format.duration(stepMs / 1000)}`;
}
