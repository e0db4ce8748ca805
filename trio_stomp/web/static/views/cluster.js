// The nodes of a cluster: which of them owns which partition, and how the log advances.

import { Outcome } from "../lib/dialogs.js";
import { byId, say } from "../lib/dom.js";
import * as format from "../lib/format.js";
import { Loader } from "../lib/loader.js";
import { LineCard, Tile } from "../lib/parts.js";
import { partitionsOf } from "../lib/poll.js";
import { Table, number, words } from "../lib/table.js";
import { View } from "../lib/view.js";
import { Trail } from "../model/trail.js";
import { gap } from "./overview.js";

/** The role shown for a partition whose owner does not answer. */
const LOST = "no owner";

/** The colours of roles. */
const ROLES = { owner: "good", draining: "warn", [LOST]: "wrong" };

const NODES = {
  label: "Nodes",
  key: ({ partition, node }) => `${partition} ${node}`,
  sort: "Partition",
  empty: "No node has reported yet.",
  columns: [
    number("Partition", ({ partition }) => partition, format.count),
    words("Node", ({ node }) => node, { mark: ({ role }) => (role === "owner" ? "strong" : "") }),
    words("Role", ({ role }) => role, { mark: ({ role }) => ROLES[role] ?? "soft" }),
    number("Behind", ({ behind }) => behind, format.count, {
      title: () => "entries of the log that the node has not applied",
      mark: ({ behind }) => (behind > 0 ? "warn" : "soft"),
    }),
    number("Clients", ({ clients }) => clients, format.count),
    words("Address", ({ address }) => address, { mark: () => "soft" }),
    words("Version", ({ version }) => version, { mark: () => "soft" }),
    words("Differs from the owner in", ({ differs }) => differs.join(", ") || "–", {
      mark: ({ differs }) => (differs.length > 0 ? "wrong" : "soft"),
    }),
  ],
};

const TILES = [
  {
    name: "Appends",
    colour: "in",
    read: (point) => point.appends,
    value: ({ appends }, now) => [`${format.rate(now.appends)}/s`, `${format.brief(appends)} since the owner began`],
  },
  {
    name: "Records an append",
    colour: "out",
    read: perAppend,
    value: ({ records }, now) => [format.rate(perAppend(now)), `${format.brief(records)} since the owner began`],
  },
  {
    name: "Time of an append",
    colour: "hot",
    read: delay,
    value: (cluster, now) => [format.millis(delay(now)), "mean of the last interval"],
  },
  {
    name: "Farthest behind",
    colour: "warn",
    read: (point) => point.behind,
    value: ({ nodes }, now) => [format.brief(now.behind), `entries, of ${format.some(new Set(nodes.map(({ node }) => node)).size, "node")}`],
  },
];

/** The records in an append, on average; undefined without appends. */
function perAppend({ appends, records }) {
  return appends > 0 ? records / appends : undefined;
}

/** The time of an append in milliseconds, on average. */
function delay({ appends, busy }) {
  return appends > 0 ? (1000 * busy) / appends : undefined;
}

/**
 * Combine the overviews of partitions, null or undefined for those without an owner: sums, and the
 * nodes of each partition. Returns null if the broker is not part of a cluster.
 */
export function together(overviews) {
  const found = overviews.filter(Boolean);
  if (found.length === 0) return null;
  const sum = (field) => found.reduce((total, { cluster }) => total + cluster[field], 0);
  const lost = { node: "–", role: LOST, behind: 0, clients: 0, address: "", version: "", differs: [] };
  return {
    ts: found.at(-1).ts,
    // Counters restart with each owner.
    boot: overviews.map((each) => (each ? `${each.boot} ${each.cluster.epoch}` : "")).join(),
    name: found[0].cluster.name,
    appends: sum("appends"),
    records: sum("records"),
    append_s: sum("append_s"),
    nodes: overviews.flatMap((each, partition) =>
      (each?.cluster.nodes ?? [lost]).map((node) => ({ ...node, partition })),
    ),
  };
}

export class Cluster extends View {
  #trail = new Trail();
  #cluster = null;

  constructor({ model, api, palette, redraw }) {
    super();
    Object.assign(this, { model, palette });
    this.outcome = new Outcome(byId("cluster-result"));
    this.tiles = TILES.map((tile) => ({ tile, shown: new Tile(byId("cluster-tiles"), tile.name) }));
    this.chart = new LineCard({
      title: "Log",
      unit: "a second",
      say: format.rate,
      palette,
      redraw,
      lines: [
        { name: "records", read: (point) => point.records, colour: "out" },
        { name: "appends", read: (point) => point.appends, colour: "in" },
      ],
    });
    byId("cluster-tiles").after(this.chart.card);
    this.table = new Table(byId("cluster-table"), NODES);
    this.loader = new Loader({
      load: () => this.#load(api),
      onAnswer: (cluster) => {
        this.#cluster = cluster;
        if (cluster !== null) this.#trail.addCluster(cluster);
        else this.outcome.tell("This broker is not part of a cluster.");
        redraw();
      },
      outcome: this.outcome,
    });
  }

  /** Request the figures of all partitions, each from its owner. */
  async #load(api) {
    const numbers = Array.from({ length: await partitionsOf(api) }, (_, number) => number);
    // A broker without partitions has no such parameter.
    const parameters = (partition) => (numbers.length > 1 ? { partition } : {});
    const ask = (partition) => api.get("overview", parameters(partition));
    const answers = await Promise.allSettled(numbers.map(ask));
    if (answers.every(({ status }) => status === "rejected")) throw answers[0].reason;
    return together(answers.map(({ value }) => value?.cluster && value));
  }

  clear() {
    this.#trail = new Trail();
    this.#cluster = null;
    this.table.update([]);
  }

  draw() {
    const { points } = this.#trail;
    this.chart.draw(points, gap(this.model));
    if (this.#cluster === null) return;
    const now = points.at(-1);
    for (const { tile, shown } of this.tiles) {
      shown.show(tile.value(this.#cluster, now));
      shown.chart(points, tile.read, this.palette.get(tile.colour), gap(this.model));
    }
    say(byId("cluster-name"), this.#cluster.name);
    this.table.update(this.#cluster.nodes);
  }
}
