// Latency: a heat map of one or all destinations, and percentiles.

import { drawHeat } from "../lib/charts.js";
import { byId, el, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { hovering } from "../lib/parts.js";
import { Table, number } from "../lib/table.js";
import { percentile } from "../model/percentile.js";
import { placed } from "./links.js";
import { cellText, summary } from "./overview.js";

export class Latency {
  constructor({ model, palette, redraw }) {
    Object.assign(this, { model, palette });
    this.canvas = byId("latency-heat");
    this.over = hovering(this.canvas, redraw);
    this.choice = byId("latency-destination");
    this.stage = byId("latency-stage");
    for (const input of [this.choice, this.stage]) input.addEventListener("input", redraw);
    const share = (q) => (item) => percentile(item.bucket_counts, item.le_ms, q, item.max_ms) ?? -1;
    const time = (name, value) =>
      number(name, value, (ms) => (ms < 0 ? "–" : format.millis(ms)));
    this.table = new Table(byId("latency-table"), {
      label: "Latency by destination",
      key: (item) => item.destination,
      sort: "Messages",
      isDescending: true,
      empty: "No latency was measured.",
      columns: [
        placed("Destination"),
        number("Messages", (item) => item.count_total, format.brief),
        time("Median", share(0.5)),
        time("p90", share(0.9)),
        time("p99", share(0.99)),
        time("Longest", (item) => item.max_ms),
      ],
    });
  }

  draw() {
    const { model } = this;
    this.#offer(model.timedDestinations());
    const [stage, destination] = [this.stage.value, this.choice.value];
    const sum = model.recentBuckets(stage, destination);
    const found = drawHeat(this.canvas, model.points, {
      palette: this.palette,
      key: destination === "" ? stage : `${stage} ${destination}`,
      bounds: model.bounds,
      sum,
      sayBound: format.millis,
      intervalMs: 1000 * (model.interval || 5),
      hover: this.over.at,
    });
    const figures = summary(sum, model.bounds, model.longest(stage, destination));
    say(byId("latency-figures"), figures);
    this.canvas.setAttribute("aria-label", `Latency over time: ${figures}`);
    say(byId("latency-hover"), cellText(found, model.bounds));
    this.table.update([...model.latency.things.values()].filter((item) => item.stage === stage));
  }

  #offer(names) {
    const state = JSON.stringify(names);
    if (this.offered === state) return;
    this.offered = state;
    const chosen = this.choice.value;
    this.choice.replaceChildren(
      el("option", { value: "" }, "all destinations"),
      ...names.slice(0, 500).map((name) => el("option", { value: name }, name)),
    );
    this.choice.value = names.includes(chosen) ? chosen : "";
  }
}
