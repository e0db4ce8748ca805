// The parts of the dashboard that need no page, with Node's own test runner: node --test

import assert from "node:assert/strict";
import { test } from "node:test";

const at = new URL("../../trio_stomp/web/static/", import.meta.url);
const load = (name) => import(new URL(name, at));
const { Model, MAX_EVENTS, MAX_ENDED, MAX_POINTS } = await load("model/model.js");
const { percentile } = await load("model/percentile.js");
const { Trail } = await load("model/trail.js");
const { readBack, readQueue, rollUp, sampleOf } = await load("model/history.js");
const { isGrave, origin, targets, waitsThere } = await load("model/letters.js");
const { addressOf, Api } = await load("lib/api.js");
const format = await load("lib/format.js");
const { roundUp, span, stretches, usedBuckets, warmth } = await load("lib/charts.js");
const { Findings, MAX_FINDINGS } = await load("model/findings.js");
const { backOff, Watch } = await load("lib/watch.js");
const { filled, outcome, parseHeaders, pythonSnippet, javascriptSnippet } = await load("views/try.js");
const { together } = await load("views/cluster.js");
const { decided, horizonText, linkTo, parts, questionOf, tone } = await load("views/explain.js");

const START = Date.parse("2026-11-21T12:00:00Z");
const BOUNDS = [1, 2, 4];

function record(second, more = {}, boot = "a") {
  const ts = new Date(START + 1000 * second).toISOString();
  return { v: 1, broker_id: "north", epoch: "e", offset: second, ts, interval_s: 1, boot, ...more };
}

const list = (second, items, more = {}, boot = "a") =>
  record(second, { part: 1, parts: 1, full: false, items, ...more }, boot);

const destination = (name, sent, given = 0) => ({
  destination: name,
  type: "topic",
  subscribers: 1,
  enqueued_total: sent,
  delivered_total: given,
  dropped_total: 0,
  bytes_in_total: 10 * sent,
  bytes_out_total: 0,
  depth: 0,
  unacked: 0,
});

const timed = (name, counts) => ({
  destination: name,
  stage: "delivery",
  count_total: counts.reduce((sum, each) => sum + each, 0),
  sum_ms_total: 1,
  max_ms: 1,
  le_ms: BOUNDS,
  bucket_counts: counts,
});

test("a rate is the growth of counters over the time between two lists", () => {
  const model = new Model();
  model.apply("DIAG/destinations", list(0, [destination("/a", 100)], { full: true }));
  assert.equal(model.points.at(-1).in, undefined);
  model.apply("DIAG/destinations", list(2, [destination("/a", 110), destination("/b", 4)]));
  assert.equal(model.points.at(-1).in, 7);
  assert.equal(model.points.at(-1).bytesIn, 70);
  assert.equal(model.destinations.things.get("/a").rates.in, 5);
  assert.equal(model.destinations.things.get("/b").rates.in, 2);
});

test("an item missing from a list of changes is unchanged and stays", () => {
  const model = new Model();
  model.apply("DIAG/destinations", list(0, [destination("/a", 0), destination("/b", 0)], { full: true }));
  model.apply("DIAG/destinations", list(1, [destination("/a", 5), destination("/b", 5)]));
  model.apply("DIAG/destinations", list(2, [destination("/b", 6)]));
  assert.equal(model.destinations.things.get("/a").rates.in, 0);
  assert.equal(model.points.at(-1).in, 1);
});

test("the first figures of a counter are not counted as new traffic", () => {
  const model = new Model();
  model.apply("DIAG/destinations", list(0, [destination("/a", 0)]));
  model.apply("DIAG/destinations", list(1, [destination("/old", 1e6)]));
  assert.equal(model.points.at(-1).in, 0);
});

test("only a complete list removes items", () => {
  const model = new Model();
  const all = [destination("/a", 1), destination("/b", 1)];
  model.apply("DIAG/destinations", list(0, all, { full: true }));
  model.apply("DIAG/destinations", list(1, [all[0]], { full: true, part: 2, parts: 2 }));
  assert.equal(model.destinations.things.size, 2, "part 1 of 2 was missed");
  model.apply("DIAG/destinations", list(2, [all[0]], { full: true, part: 1, parts: 2 }));
  assert.equal(model.destinations.things.size, 2);
  model.apply("DIAG/destinations", list(2, [], { full: true, part: 2, parts: 2 }));
  assert.deepEqual([...model.destinations.things.keys()], ["/a"]);
});

test("a new boot starts its counters at zero and adds an event", () => {
  const model = new Model();
  model.apply("DIAG/destinations", list(0, [destination("/a", 100)], { full: true }));
  model.apply("DIAG/destinations", list(5, [destination("/a", 3)], { full: true }, "b"));
  model.apply("DIAG/destinations", list(6, [destination("/a", 5)], {}, "b"));
  assert.equal(model.points.at(-1).in, 2);
  assert.equal(model.events[0].name, "start");
  assert.equal(new Model().events.length, 0);
});

test("a counter that fell has started again from zero", () => {
  const model = new Model();
  model.apply("DIAG/destinations", list(0, [destination("/a", 100)], { full: true }));
  model.apply("DIAG/destinations", list(1, [destination("/a", 3)]));
  assert.equal(model.points.at(-1).in, 3);
});

test("latency is the growth of the buckets in each interval", () => {
  const model = new Model();
  model.apply("DIAG/latency", list(0, [timed("/a", [5, 0, 0, 0])], { full: true }));
  assert.equal(model.points.at(-1).heat.size, 0);
  model.apply("DIAG/latency", list(1, [timed("/a", [6, 2, 0, 0]), timed("/b", [0, 1, 0, 0])]));
  assert.deepEqual(model.recentBuckets("delivery"), [1, 3, 0, 0]);
  assert.deepEqual(model.recentBuckets("delivery", "/a"), [1, 2, 0, 0]);
  assert.deepEqual(model.recentBuckets("ingress"), [0, 0, 0, 0]);
  assert.deepEqual(model.timedDestinations(), ["/a", "/b"]);
});

test("a percentile is interpolated in its bucket", () => {
  assert.equal(percentile([0, 10, 0, 0], BOUNDS, 0.5), 1.5);
  assert.equal(percentile([10, 0, 0, 0], BOUNDS, 0.99), 0.99);
  assert.equal(percentile([0, 0, 0, 3], BOUNDS, 0.5), 4);
  assert.equal(percentile([0, 0, 0, 0], BOUNDS, 0.5), null);
  assert.equal(percentile([1, 0, 0, 1], BOUNDS, 1), 4);
});

test("no percentile exceeds the maximum", () => {
  // 10,000 observations of 2.1 in the bucket from 2 to 4.
  for (const q of [0.5, 0.9, 0.99, 1]) {
    assert.ok(percentile([0, 0, 10_000, 0], BOUNDS, q, 2.1) <= 2.1);
    assert.ok(percentile([0, 0, 0, 7], BOUNDS, q, 9) <= 9);
    assert.ok(percentile([0, 0, 0, 7], BOUNDS, q, 9) > 4);
  }
  assert.equal(percentile([0, 10, 0, 0], BOUNDS, 0.5, 1.9), 1.5);
});

test("the maximum latency is kept by stage and destination", () => {
  const model = new Model();
  assert.equal(model.longest("delivery"), Infinity);
  const items = [{ ...timed("/a", [1, 0, 0, 0]), max_ms: 0.5 }, { ...timed("/b", [0, 0, 0, 1]), max_ms: 9 }];
  model.apply("DIAG/latency", list(0, items, { full: true }));
  assert.equal(model.longest("delivery"), 9);
  assert.equal(model.longest("delivery", "/a"), 0.5);
  assert.equal(model.longest("delivery", "/gone"), 9);
  assert.equal(model.longest("ingress"), Infinity);
  model.apply("DIAG/latency", list(0, [timed("/a", [1, 0, 0, 0])], { full: true }, "b"));
  assert.equal(model.longest("delivery"), 9);
});

const event = (second, name, more = {}) =>
  record(second, { name, session_id: "s", user: "u", destination: "", reason: "", detail: "", ...more });

test("events, endings and drops are kept, within bounds", () => {
  const model = new Model();
  model.apply("DIAG/event/connect", event(0, "connect"));
  model.apply("DIAG/event/disconnect", event(7, "disconnect", { reason: "slow-consumer", detail: "from x:1" }));
  assert.equal(model.ended[0].reason, "slow-consumer");
  assert.equal(model.ended[0].remote, "x:1");
  assert.equal(model.ended[0].at - model.ended[0].began, 7000);
  model.apply("DIAG/event/drop", event(8, "drop", { reason: "no-subscriber", detail: "4" }));
  model.apply("DIAG/event/drop", event(9, "drop", { reason: "no-subscriber", detail: "3" }));
  assert.equal(model.drops.get("no-subscriber").lost, 7);
  for (let n = 0; n < 2000; n += 1) {
    model.apply("DIAG/event/disconnect", event(10, "disconnect", { reason: `r${n}` }));
    model.apply("DIAG/event/drop", event(10, "drop", { reason: `r${n}`, detail: "what?" }));
  }
  assert.equal(model.events.length, MAX_EVENTS);
  assert.equal(model.ended.length, MAX_ENDED);
  assert.ok(model.endings.size <= 100);
  assert.ok(model.drops.size <= 100);
});

test("each event has its own number, also that of a new boot", () => {
  const model = new Model();
  model.apply("DIAG/event/connect", event(0, "connect"));
  model.apply("DIAG/event/connect", record(1, { name: "connect", session_id: "t", detail: "" }, "b"));
  assert.deepEqual(model.events.map(({ name }) => name), ["connect", "start", "connect"]);
  assert.equal(new Set(model.events.map(({ id }) => id)).size, 3);
});

test("a connection that is not open is shown for one list only", () => {
  const model = new Model();
  const connection = (id, state) => ({ session_id: id, state, frames_in_total: 0, frames_out_total: 0 });
  const all = [connection("a", "open"), connection("b", "opening"), connection("c", "closed")];
  model.apply("DIAG/connections", list(0, all, { full: true }));
  assert.equal(model.connections.things.size, 3);
  model.apply("DIAG/connections", list(1, []));
  assert.deepEqual([...model.connections.things.keys()], ["a"]);
});

test("points are bounded in number and age", () => {
  const model = new Model();
  for (let n = 0; n < 5000; n += 1) model.apply("DIAG/stale", record(n / 10, { stale_queue_size: 0 }));
  assert.equal(model.points.length, MAX_POINTS);
  model.apply("DIAG/stale", record(100_000, { stale_queue_size: 0 }));
  assert.equal(model.points.length, 1);
});

test("the broker's input queue is no queue, even beside a topic of that name", () => {
  const model = new Model();
  const queue = (name, more) => ({ destination: name, input_depth: 0, ack_depth: 0, stale_depth: 0, ...more });
  model.apply(
    "DIAG/queues",
    list(0, [queue("input", { input_depth: 9 }), queue("/queue/a", { input_depth: 2 }), queue("input", { stale_depth: 1 })], { full: true }),
  );
  assert.equal(model.input.input_depth, 9);
  assert.deepEqual([...model.queues.keys()], ["/queue/a", "input"]);
  assert.equal(model.points.at(-1).waiting, 2);
});

test("unknown topics are ignored", () => {
  const model = new Model();
  model.apply("DIAG/news", record(0, { items: 3 }));
  assert.equal(model.events.length, 0);
});

test("processor use is relative to the time between two records", () => {
  const model = new Model();
  const used = (second, user) =>
    record(second, { cpu_user_s_total: user, cpu_sys_s_total: 1, rss_bytes: 5, loop_lag_ms_p99: 1 });
  model.apply("DIAG/process", used(0, 1));
  model.apply("DIAG/process", used(4, 2));
  assert.equal(model.points.at(-1).cpu, 25);
});

test("targets are counted, and topics that keep messages are known", () => {
  const to = (name) => ({ headers: name ? { "original-destination": name } : {} });
  const found = targets([to("/a"), to("/b"), to("/b"), to("")]);
  assert.deepEqual(found.map(([name, { length }]) => [name, length]), [["/b", 2], ["/a", 1], ["", 1]]);
  assert.ok(waitsThere("/queue/a"));
  for (const name of ["/topic/a", "#a", "", "/queue/a,/topic/b", "/queue/monitor"]) assert.ok(!waitsThere(name));
  assert.equal(origin("/queue/DLQ.a"), "/queue/a");
  assert.equal(origin("/queue/DLQ.topic/a"), "/topic/a");
  for (const name of ["/queue/DLQ.", "/queue/deadletter", "/queue/trouble"]) assert.equal(origin(name), "");
  assert.ok(isGrave("/queue/DLQ.a") && isGrave("/queue/deadletter") && !isGrave("/queue/a"));
});

test("findings are kept once for each thing and rule, and bounded", () => {
  const found = new Findings();
  const minute = (at) => new Date(START + 60_000 * at).toISOString();
  const take = (at, destination, more = {}) =>
    found.take({ rule: "queue-filling", broker_id: "b", minute: minute(at), destination, text: `${at}`, ...more });
  for (const record of [null, 7, {}, { minute: "soon" }]) found.take(record);
  assert.equal(found.heardAt, 0);
  take(0, "/queue/a");
  take(1, "/queue/b");
  take(2, "/queue/a", { text: { toString: null } });
  take(3, "/queue/a");
  assert.deepEqual(
    found.list().map(({ destination, text, since }) => [destination, text, since - START]),
    [["/queue/a", "3", 0], ["/queue/b", "1", 60_000]],
  );
  assert.equal(found.heardAt - START, 180_000);
  for (let number = 0; number < MAX_FINDINGS; number++) take(4, `/queue/${number}`);
  assert.equal(found.list().length, MAX_FINDINGS);
  assert.equal(found.list().at(-1).destination, "/queue/0");
});

test("delays between attempts grow, vary at random, and are bounded", () => {
  assert.equal(backOff(0, 0), 250);
  assert.equal(backOff(0, 1), 500);
  assert.equal(backOff(3, 1), 4000);
  assert.equal(backOff(99, 1), 30_000);
  assert.equal(backOff(5000, 0), 15_000);
});

test("figures are formatted for people", () => {
  assert.equal(format.rate(0), "0");
  assert.equal(format.rate(0.01), "<0.1");
  assert.equal(format.rate(12.34), "12.3");
  assert.equal(format.rate(undefined), "–");
  assert.equal(format.brief(9999), "9,999");
  assert.equal(format.brief(12_345), "12.3K");
  assert.equal(format.bytes(1536), "1.5 KiB");
  assert.equal(format.bytes(3), "3 B");
  assert.equal(format.bytes(1e18), "909,495 TiB");
  assert.equal(format.bytes(null), "–");
  assert.equal(format.millis(0.051), "0.051 ms");
  assert.equal(format.millis(1638.4), "1.6 s");
  assert.equal(format.duration(3723), "1 h 2 min");
  assert.equal(format.duration(86400 * 3), "3 d 0 h");
  assert.deepEqual([7, 200, 9000, 1e6, undefined].map(format.age), ["7 s", "3.3 min", "2.5 h", "11.6 d", "–"]);
  assert.equal(format.some(1, "subscription"), "1 subscription");
  assert.equal(format.cut("abcdef", 3), "abc…");
});

test("axes end at round numbers, and lines break where figures are missing", () => {
  assert.deepEqual([0, 1, 3, 7, 1500, 0.03].map(roundUp), [1, 1, 5, 10, 2000, 0.05]);
  const points = [0, 1, 2, 9, 10].map((second) => ({ at: second * 1000, value: second }));
  const found = stretches(points, (point) => point.value, 2500);
  assert.deepEqual(found.map((each) => each.length), [3, 2]);
  assert.deepEqual(span([]), { begin: -60_000, end: 0 });
});

test("a heat map shows the buckets used, and few messages beside many", () => {
  assert.deepEqual(usedBuckets([0, 0, 5, 0, 0, 0, 0, 0, 0]), { low: 1, high: 6 });
  assert.deepEqual(usedBuckets([0, 0, 0, 0, 0, 0, 0, 1]), { low: 2, high: 7 });
  assert.deepEqual(usedBuckets([]), { low: 0, high: -1 });
  assert.equal(warmth(0, 100), 0);
  assert.equal(warmth(100, 100), 1);
  assert.ok(warmth(1, 1e6) > 0.12);
});

test("the address of a question contains all of it, with any names", () => {
  const odd = "/topic/a?b=c&d#e %41+\u2603";
  for (const question of [
    { "message-id": "mwq.a-17" },
    { destination: odd },
    { destination: odd, session: "1795" },
    { destination: odd, user: "anna & bob" },
  ]) {
    const link = linkTo(question);
    assert.match(link, /^#explain\?[!-~]+$/);
    assert.deepEqual(questionOf(link.slice("#explain?".length)), question);
  }
  assert.deepEqual(questionOf("id=a&destination=b"), { "message-id": "a" });
  assert.deepEqual(questionOf("destination=/a&session=&user=u"), { destination: "/a", user: "u" });
  assert.deepEqual(questionOf("destination=/a&session=s&user=u"), { destination: "/a", session: "s" });
  for (const nothing of ["", "id=", "session=5", "destination="]) assert.equal(questionOf(nothing), null);
});

test("message-ids in a sentence are found, and no character of it is lost", () => {
  const text = "3 ACKs: mwqq.3-17 … mwqq.3-19, and all before";
  const found = parts(text);
  assert.deepEqual(found.map(([, id]) => id), ["", "mwqq.3-17", "", "mwqq.3-19", ""]);
  assert.equal(found.map(([part]) => part).join(""), text);
  assert.deepEqual(parts("mwqq.1s-4"), [["mwqq.1s-4", "mwqq.1s-4"]]);
  assert.deepEqual(parts("from 127.0.0.1:5 to session 1795"), [["from 127.0.0.1:5 to session 1795", ""]]);
  assert.deepEqual(parts(""), []);
});

test("the deciding rule comes from its field, not from the sentence", () => {
  const lost = { what: "lost", text: "2 queue-full by overflow = 'by me'", count: 2, fate: "queue-full" };
  const rule = "overflow = 'by me'";
  assert.deepEqual(decided({ ...lost, rule, policy: "'/queue/*' (p.toml:3)" }), {
    text: "2 queue-full",
    rule,
    policy: "'/queue/*' (p.toml:3)",
  });
  assert.deepEqual(decided({ ...lost, rule }), { text: "2 queue-full", rule, policy: "" });
  assert.deepEqual(decided({ ...lost, rule: "", policy: "" }), { text: lost.text, rule: "", policy: "" });
  const other = { what: "event", text: "1 connect by nobody" };
  assert.deepEqual(decided(other), { text: other.text, rule: "", policy: "" });
  assert.equal(decided({ ...other, rule }).text, other.text);
});

test("a lost message looks worse than a moved one", () => {
  const tones = (what, fate) => tone({ what, fate, text: "5 moved" });
  assert.equal(tones("acknowledged"), "good");
  assert.equal(tones("rejected"), "bad");
  assert.equal(tones("lost", "slow-consumer"), "bad");
  assert.equal(tones("lost", "moved"), "warn");
  // Whether a delivery has done any good, its ACK will tell.
  for (const what of ["queued", "sent", "delivered", "shown", "given"]) assert.equal(tones(what), "");
  assert.equal(tones("constructor", "moved"), "");
});

test("the horizon is written as a duration and as a moment", () => {
  const now = new Date(2026, 10, 21, 12, 0, 30, 250).getTime();
  assert.equal(
    horizonText({ horizon_s: 90.25 }, now),
    "Everything of the last 1 min 30 s is remembered, back to 11:59:00.000.",
  );
  assert.match(horizonText({ horizon_s: 86_400 }, now), /back to Nov 20 12:00:30\.250\.$/);
  for (const nothing of [0, undefined, null]) {
    assert.match(horizonText({ horizon_s: nothing }, now), /explain_events/);
  }
  assert.equal(format.moment(NaN, now), "–");
});

test("headers are read as they are typed, and refused with their line", () => {
  assert.deepEqual(parseHeaders(" priority: 7\n\nx:a:b\n"), { priority: "7", x: "a:b" });
  assert.deepEqual(parseHeaders(""), {});
  assert.throws(() => parseHeaders("priority 7"), /priority 7/);
  assert.throws(() => parseHeaders(":7"), /name:value/);
});

test("a template is filled, and unknown fields stay", () => {
  const message = { headers: { destination: "/topic/a", kind: "pear" }, body: "b$&" };
  const noon = new Date(2026, 10, 21, 12).getTime();
  const print = (template) => filled(template, message, 3, noon);
  assert.equal(print("{n} {time} {destination}: {body}"), "3 12:00:00 /topic/a: b$&");
  assert.equal(print("{headers}|{header:kind}|{header:constructor}"), "destination:/topic/a kind:pear|pear|");
  assert.equal(print("{{body}} {constructor} {"), "{body} {constructor} {");
});

test("a RECEIPT is described in words", () => {
  assert.equal(outcome({ matched: "0" }), "The broker has accepted it; no subscribers.");
  assert.equal(outcome({ stored: "memory" }), "The broker has accepted it; it waits, stored in memory.");
  assert.equal(outcome({ duplicate: "true" }), "A duplicate: accepted before.");
  assert.equal(outcome({}), "The broker has accepted it.");
});

test("snippets name the address of the page", () => {
  const here = { hostname: "[::1]", port: "", protocol: "https:" };
  assert.match(pythonSnippet(here), /Connection12\(\[\("::1", 443\)\]\)/);
  assert.match(pythonSnippet({ hostname: "a", port: "61613", protocol: "http:" }), /\("a", 61613\)/);
  assert.match(javascriptSnippet('ws://x/"'), /brokerURL: "ws:\/\/x\/\\""/);
});

test("messages to topics without subscribers do not count as lost", () => {
  const model = new Model();
  const item = (name, dropped, more = {}) => ({ ...destination(name, 0), dropped_total: dropped, ...more });
  const all = (dropped) => [item("/unheard", dropped, { subscribers: 0 }), item("/heard", dropped)];
  model.apply("DIAG/destinations", list(0, all(0), { full: true }));
  model.apply("DIAG/destinations", list(1, all(3)));
  assert.equal(model.points.at(-1).dropped, 6);
  assert.equal(model.points.at(-1).lost, 3);
});

test("the history of a queue is kept, and items missing from a list of changes are unchanged", () => {
  const model = new Model();
  const queue = (depth) => ({ destination: "/queue/a", input_depth: depth, ack_depth: 1, stale_depth: 0, oldest_input_age_s: 7 });
  const input = { destination: "input", input_depth: 0 };
  model.apply("DIAG/queues", list(0, [input, queue(0)], { full: true }));
  model.apply("DIAG/destinations", list(0, [destination("/queue/a", 10)], { full: true }));
  model.apply("DIAG/queues", list(1, [input, queue(5)], { full: true }));
  model.apply("DIAG/destinations", list(1, [destination("/queue/a", 15, 2)]));
  model.apply("DIAG/queues", list(2, [input, queue(5)], { full: true }));
  const { points } = model.trails.get("/queue/a");
  assert.deepEqual(points.map(({ waiting, age, in: rate, out }) => [waiting, age, rate, out]), [
    [0, 0, 0, 0], [5, 7, 5, 2], [5, 7, 0, 0],
  ]);
  for (let n = 0; n < 3000; n += 1) model.apply("DIAG/queues", list(3, [input, { ...queue(0), destination: `/queue/${n}` }]));
  assert.ok(model.trails.size <= 1000);
});

test("a trail is bounded, and counters that fell have started again from zero", () => {
  const trail = new Trail();
  const answer = (second, sent, boot = "a") =>
    record(second, { input_depth: 1, ack_depth: 0, oldest_input_age_s: null, enqueued_total: sent, acked_total: 0 }, boot);
  trail.addQueue(answer(0, 10));
  trail.addQueue(answer(2, 20));
  trail.addQueue(answer(1, 0)); // late: it is not a point
  assert.deepEqual(trail.points.map((point) => point.in), [undefined, 5]);
  trail.addQueue(answer(3, 1, "b"));
  assert.equal(trail.points.at(-1).in, undefined);
  for (let n = 0; n < 5000; n += 1) trail.note(START + 10_000 + n, {});
  assert.equal(trail.points.length, MAX_POINTS);
  trail.note(START + 10_000_000, {});
  assert.equal(trail.points.length, 1);
});

const reading = (second, received, boot = "a", cpu = 0) => ({
  session: record(second, { stomp_connected: 3, subscriptions: 4, received_total: received, delivered_total: 0, dropped_total: 0 }, boot),
  process: record(second, { cpu_user_s_total: cpu, cpu_sys_s_total: 0, rss_bytes: 9, loop_lag_ms_p99: 1 }, boot),
});

test("partitions of a cluster are added up, one without an owner is shown, a new owner starts at zero", () => {
  const node = (name, role, behind) => ({ node: name, role, behind, clients: 1, address: "", version: "", differs: [] });
  const overview = (second, epoch, appends) =>
    record(second, {
      cluster: { name: "c", epoch, appends, records: 10 * appends, append_s: 0.5, nodes: [node("a", "owner", 0), node("b", "standby", 7)] },
    });
  assert.equal(together([null]), null);
  const trail = new Trail();
  trail.addCluster(together([overview(0, 1, 10), overview(0, 1, 20)]));
  trail.addCluster(together([overview(2, 1, 20), overview(2, 1, 30)]));
  const { behind, appends, records } = trail.points[1];
  assert.deepEqual({ behind, appends, records }, { behind: 7, appends: 10, records: 100 });
  const torn = together([overview(4, 1, 20), undefined]);
  assert.deepEqual(torn.nodes.map(({ partition, node: name, role }) => [partition, name, role]), [
    [0, "a", "owner"],
    [0, "b", "standby"],
    [1, "–", "no owner"],
  ]);
  trail.addCluster(torn);
  trail.addCluster(together([overview(6, 1, 20), overview(6, 9, 40)]));
  assert.deepEqual(trail.points.map((point) => point.appends), [undefined, 10, undefined, undefined]);
});

test("readings of the stream become points with rates between them, in the order of time", () => {
  const points = rollUp([reading(60, 700, "a", 6), reading(0, 100), {}, reading(0, 100), reading(120, 5, "b")]);
  assert.deepEqual(points.map((point) => [point.in, point.cpu]), [[undefined, undefined], [10, 10], [undefined, undefined]]);
  assert.equal(points[0].connections, 3);
  assert.equal(points[0].memory, 9);
});

test("a reading is the first complete record of each kind", () => {
  const record = (topic, body) => ({ headers: { destination: topic }, body });
  const found = sampleOf([
    record("DIAG/event/connect", "{}"),
    record("DIAG/connections", '{"items": ['),
    record("DIAG/session", '{"received_total": 1}'),
    record("DIAG/session", '{"received_total": 2}'),
    record("DIAG/process", '{"cut": '),
  ]);
  assert.deepEqual(found, { session: { received_total: 1 } });
});

test("history is read as far back as the stream holds, and no further than requested", async () => {
  const requests = [];
  const oldest = START;
  const api = {
    get: async (verb, parameters) => {
      requests.push(parameters);
      if (parameters.time === undefined) return { records: [{ written_ms: oldest, headers: {}, body: "" }] };
      const second = (parameters.time - START) / 1000;
      const { session } = reading(second, second);
      return { records: [{ headers: { destination: "DIAG/session" }, body: JSON.stringify(session) }] };
    },
  };
  const hour = { ms: 3_600_000, readings: 60 };
  const whole = await readBack(api, hour, START + 7_200_000);
  assert.equal(whole.since, START + 3_600_000);
  assert.equal(whole.points.length, 60);
  assert.ok(whole.points.slice(1).every((point) => Math.abs(point.in - 1) < 1e-9));
  const half = await readBack(api, hour, START + 1_800_000);
  assert.equal(half.since, START);
  assert.equal(half.stepMs, 30_000);
  assert.ok(requests.every(({ stream, bytes }) => stream === "/stream/DIAG" && bytes > 0));
  const none = await readBack({ get: async () => ({ records: [] }) }, hour, START);
  assert.deepEqual(none.points, []);
});

test("the history of a cluster is the sum of its partitions, as far as all their streams hold", async () => {
  const asked = [];
  const api = {
    get: async (verb, { partition, time }) => {
      asked.push(partition);
      const late = partition === 1 ? 600_000 : 0; // its stream begins later
      if (time === undefined) return { records: [{ written_ms: START + late, headers: {}, body: "" }] };
      const second = (time - START) / 1000 + partition; // each has its own times
      const { session } = reading(second, 10 * second);
      return { records: [{ headers: { destination: "DIAG/session" }, body: JSON.stringify(session) }] };
    },
  };
  const { points, since } = await readBack(api, { ms: 3_600_000, readings: 60 }, START + 3_600_000, 3);
  assert.deepEqual([since, points.length], [START + 600_000, 60]);
  assert.ok(points.slice(1).every((point) => Math.abs(point.in - 30) < 1e-9));
  assert.ok(points.every(({ connections }) => connections === undefined)); // that is of nodes
  assert.deepEqual([...new Set(asked)].sort(), [0, 1, 2]);
  asked.length = 0;
  await readBack(api, { ms: 3_600_000, readings: 60 }, START + 3_600_000, 64);
  assert.equal(asked.length, 64 * 13);
});

test("the history of a queue omits unknown figures", async () => {
  const point = { waiting: 3, unacked: 1, bytes: 9, oldest_age_s: 7.5, in_per_s: 2, out_per_s: 1 };
  const points = [
    { ...point, ts_ms: 1000, in_per_s: null, out_per_s: null },
    { ...point, ts_ms: 2000 },
    { ...point, ts_ms: 3000, waiting: 0, oldest_age_s: null },
  ];
  const requests = [];
  const api = {
    get: async (...request) => {
      requests.push(request);
      return { points, since_ms: 900, step_ms: 50 };
    },
  };
  const found = await readQueue(api, "/queue/a", { ms: 5000, readings: 60 }, 7000);
  assert.deepEqual(requests, [["history", { queue: "/queue/a", since: 2000, points: 60 }]]);
  assert.deepEqual([found.since, found.stepMs], [900, 50]);
  assert.deepEqual(found.points, [
    { at: 1000, waiting: 3, unacked: 1, age: 7.5 },
    { at: 2000, waiting: 3, unacked: 1, age: 7.5, in: 2, out: 1 },
    { at: 3000, waiting: 0, unacked: 1, age: 0, in: 2, out: 1 },
  ]);
});

test("parameters of a request are escaped, repeated, and left out if empty", () => {
  assert.equal(addressOf("overview", {}), "api/v1/overview");
  assert.equal(
    addressOf("purge", { queue: "/queue/a&b?", id: ["1", "2"], selector: "", since: undefined, offset: 0 }),
    "api/v1/purge?queue=%2Fqueue%2Fa%26b%3F&id=1&id=2&offset=0",
  );
});

async function asking(response, options = {}, credentials = null) {
  const calls = [];
  const before = globalThis.fetch;
  globalThis.fetch = async (address, given) => {
    calls.push({ address, ...given });
    if (response instanceof Error) throw response;
    return response;
  };
  try {
    return { calls, answer: await new Api(() => credentials).post("purge", {}, options) };
  } catch (error) {
    return { calls, error };
  } finally {
    globalThis.fetch = before;
  }
}

test("the login of the page is sent, and the browser asks for none", async () => {
  const { calls, answer } = await asking(new Response('{"purged": 3}'), {}, { login: "änna", passcode: "s:t" });
  assert.deepEqual(answer, { purged: 3 });
  assert.equal(calls[0].credentials, "omit");
  const [scheme, text] = calls[0].headers.Authorization.split(" ");
  assert.equal(scheme, "Basic");
  assert.equal(Buffer.from(text, "base64").toString(), "änna:s:t");
  assert.equal((await asking(new Response("{}"))).calls[0].headers.Authorization, undefined);
});

test("a refusal has its code, and what was done before it", async () => {
  const body = '{"error": "it is full", "code": "queue-full", "moved": 2}';
  const { error } = await asking(new Response(body, { status: 409 }));
  assert.deepEqual([error.message, error.code, error.answer.moved], ["it is full", "queue-full", 2]);
  const { error: lost } = await asking(new TypeError("x"));
  assert.match(lost.message, /does not answer/);
  const { error: cut } = await asking(new Response('{"purged": '));
  assert.match(cut.message, /unreadable/);
});

test("progress comes in lines, in any pieces, and the last one is the result", async () => {
  const pieces = ['{"seen": 1, "tot', 'al": 3}\n{"seen": 2, "total": 3}\n{"pur', 'ged": 3}\n'];
  const stream = () =>
    new ReadableStream({
      start(controller) {
        for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
        controller.close();
      },
    });
  const seen = [];
  const onProgress = (line) => seen.push(line.seen);
  const lines = () => new Response(stream(), { headers: { "Content-Type": "application/x-ndjson" } });
  const { answer, calls } = await asking(lines(), { onProgress });
  assert.deepEqual(answer, { purged: 3 });
  assert.deepEqual(seen.filter(Boolean), [1, 2]);
  assert.equal(calls[0].headers.Accept, "application/x-ndjson");
  pieces.push('{"error": "no such queue", "code": "no-such-queue"}\n');
  const { error } = await asking(lines(), { onProgress });
  assert.equal(error.code, "no-such-queue");
});

const { Poll, recordsOf } = await load("lib/poll.js");

const answersOfPartitions = (sent) => ({
  overview: {
    ts: "2026-11-26T12:00:00Z",
    session: { stomp_connected: 3, subscriptions: 2 },
    stale: { stale_queue_size: 1 },
    process: { rss_bytes: 5 },
  },
  connections: { total: 1, connections: [{ session_id: "1", node: "n0" }] },
  destinations: {
    total: 4,
    le_ms: [1, 2],
    destinations: [
      { destination: "/queue/a", type: "queue", partition: 1, enqueued_total: sent, latency: { delivery: { bucket_counts: [1] } } },
      { destination: "DIAG/session", type: "diag", partition: 0, latency: {} },
      { destination: "DIAG/session", type: "diag", partition: 1, latency: {} },
    ],
  },
  queues: { total: 1, input: { destination: "input" }, queues: [{ destination: "/queue/a" }] },
});

test("figures of all partitions become the records that the page takes from one broker", () => {
  const records = new Map(recordsOf(answersOfPartitions(7)));
  assert.equal(records.get("DIAG/session").stomp_connected, 3);
  const places = records.get("DIAG/destinations");
  assert.deepEqual(places.items.map(({ destination }) => destination), ["/queue/a", "DIAG/session"]);
  assert.equal(places.full, false); // one more is not in the answer
  const queues = records.get("DIAG/queues");
  assert.deepEqual([queues.part, queues.parts, queues.full], [1, 1, true]);
  assert.equal(queues.items[0].destination, "input");
  assert.deepEqual(records.get("DIAG/latency").items, [
    { destination: "/queue/a", stage: "delivery", bucket_counts: [1], le_ms: [1, 2] },
  ]);
});

for (const [partitions, figures, events] of [["1", ["one"], ["event"]], ["3", [], ["event"]]]) {
  test(`with ${partitions} partitions, figures come from ${partitions === "1" ? "the stream" : "requests"}`, async () => {
    const asked = [];
    const got = [];
    const answers = answersOfPartitions(7);
    const api = {
      get: async (verb) => {
        asked.push(verb);
        return verb === "settings" ? { settings: [{ value: partitions }] } : answers[verb];
      },
    };
    const poll = new Poll({ api, onRecord: (topic, record) => got.push([topic, record]), period: 1e6 });
    await poll.start();
    assert.equal(asked.includes("overview"), partitions !== "1");
    const before = got.length;
    poll.take("DIAG/session", { boot: "one" });
    poll.take("DIAG/event/drop", { boot: "one", name: "event" });
    const later = got.slice(before);
    assert.deepEqual(later.filter(([topic]) => topic === "DIAG/session").map(([, { boot }]) => boot), figures);
    assert.deepEqual(later.filter(([, { name }]) => name).map(([, { name }]) => name), events);
    // One identity for all records, so that none begins a new boot.
    assert.equal(new Set(got.map(([, { boot }]) => boot)).size, 1);
    poll.stop();
  });
}

test("a client's text within a sentence is an element of its own", async () => {
  class Fake {
    constructor(tag = "") {
      Object.assign(this, { tag, children: [] });
    }
    append(...parts) {
      this.children.push(...parts);
    }
    replaceChildren(...parts) {
      this.children = parts;
    }
    get textContent() {
      return this.children.map((part) => part.textContent ?? part).join("");
    }
  }
  const { phrase, plain, say } = await load("lib/dom.js");
  globalThis.document = { createElement: (tag) => new Fake(tag) };
  try {
    const title = new Fake("h2");
    const hostile = "/queue/\u202e?egrup ton oD";
    say(title, phrase`Purge ${hostile}?`);
    assert.deepEqual(title.children.map((part) => part.tag ?? part), ["Purge ", "bdi", "?"]);
    assert.equal(title.textContent, `Purge ${hostile}?`);
    assert.equal(plain("text"), "text");
    say(title, undefined);
    assert.equal(title.textContent, "");
  } finally {
    delete globalThis.document;
  }
});

test("a history that is too long begins again, without the points before the hole", async () => {
  const subscriptions = [];
  globalThis.document = { baseURI: "http://127.0.0.1/" };
  globalThis.location = { hostname: "127.0.0.1" };
  globalThis.window = {
    StompJs: {
      Versions: class {},
      Client: class {
        activate() {
          queueMicrotask(() => this.onConnect({ headers: {} }));
        }
        subscribe(name, onMessage, headers) {
          const own = { onMessage, headers, unsubscribe: () => subscriptions.splice(subscriptions.indexOf(own), 1) };
          subscriptions.push(own);
          return own;
        }
      },
    },
  };
  const model = new Model();
  let shortened = 0;
  const watch = new Watch({
    onRecord: (topic, body) => model.apply(topic, body),
    onState: () => {},
    onShortened: () => {
      shortened += 1;
      model.forgetPoints();
    },
  });
  const tell = (second, bytes) =>
    subscriptions.at(-1).onMessage({
      headers: { destination: "DIAG/session" },
      body: JSON.stringify(record(second, { stomp_connected: 1, subscriptions: 1 })),
      binaryBody: { length: bytes },
    });
  watch.start();
  await new Promise((resolve) => setTimeout(resolve, 0));
  tell(900, 100); // the newest one, to find the end of the stream
  tell(0, 4e6);
  tell(1, 4e6);
  tell(2, 4e6); // beyond the limit
  assert.equal(shortened, 1);
  tell(840, 100);
  tell(900, 100);
  assert.deepEqual(model.points.map(({ at }) => (at - START) / 1000), [840, 900]);
  assert.equal(watch.state.name, "live");
});

test("the end of a connection has its error apart from its address", () => {
  const model = new Model();
  const detail = "from 127.0.0.1:1; queue-full: /queue/a has 1 messages; consume some";
  model.apply("DIAG/event/disconnect", record(1, { name: "disconnect", session_id: "1", user: "", reason: "limit-exceeded", detail }));
  model.apply("DIAG/event/disconnect", record(2, { name: "disconnect", session_id: "2", user: "", reason: "client-disconnect", detail: "from unix" }));
  assert.deepEqual(
    model.ended.map(({ remote, error }) => [remote, error]),
    [
      ["unix", ""],
      ["127.0.0.1:1", "queue-full: /queue/a has 1 messages; consume some"],
    ],
  );
});
