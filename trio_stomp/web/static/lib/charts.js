// Charts on <canvas>: sparklines, lines over time, a heat map. Colours come from the style sheet.

import { clock } from "./format.js";

const FONT = "11px system-ui, sans-serif";
const LEAST_SPAN_MS = 60_000;

/** The colours of the style sheet in the current theme. */
export class Palette {
  #colours = new Map();
  #probe;

  constructor(probe) {
    this.#probe = probe;
  }

  /** Forget the colours after a change of the theme. */
  forget() {
    this.#colours.clear();
  }

  get(name) {
    if (!this.#colours.has(name)) {
      this.#probe.className = `colour-${name}`;
      this.#colours.set(name, getComputedStyle(this.#probe).color);
    }
    return this.#colours.get(name);
  }
}

/** Fit a canvas to the screen's resolution. Returns its context and its size in CSS pixels. */
function prepare(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  return { context, width, height };
}

/** The time span of a chart: from the first point to the last, at least a minute. */
export function span(points) {
  const end = points.at(-1)?.at ?? 0;
  const begin = Math.min(points[0]?.at ?? 0, end - LEAST_SPAN_MS);
  return { begin, end };
}

/** The next round number, `value` or above. */
export function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999);
}

/** Split points into stretches without gaps: a line breaks where no figures arrived. */
export function stretches(points, read, gapMs) {
  const found = [];
  let last = null;
  for (const point of points) {
    const value = read(point);
    if (value === undefined) continue;
    if (last === null || point.at - last > gapMs) found.push([]);
    found.at(-1).push([point.at, value]);
    last = point.at;
  }
  return found;
}

function trace(context, stretch, x, y) {
  context.beginPath();
  stretch.forEach(([at, value], index) => {
    if (index === 0) context.moveTo(x(at), y(value));
    else context.lineTo(x(at), y(value));
  });
}

function fillBelow(context, stretch, x, bottom, colour, alpha) {
  context.lineTo(x(stretch.at(-1)[0]), bottom);
  context.lineTo(x(stretch[0][0]), bottom);
  context.closePath();
  context.globalAlpha = alpha;
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = 1;
}

/** Draw a small line without axes. */
export function drawSpark(canvas, points, read, colour, gapMs) {
  const { context, width, height } = prepare(canvas);
  const { begin, end } = span(points);
  const lines = stretches(points, read, gapMs);
  const top = Math.max(...lines.flat().map(([, value]) => value), 0) || 1;
  const x = (at) => 1 + ((at - begin) / (end - begin)) * (width - 2);
  const y = (value) => height - 1.5 - (value / top) * (height - 4);
  for (const stretch of lines) {
    trace(context, stretch, x, y);
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.stroke();
    fillBelow(context, stretch, x, height, colour, 0.12);
  }
}

/** Write times of day below a chart, as many as fit. */
function drawTimes(context, { begin, end }, x, height, colour) {
  const width = x(end) - x(begin);
  const steps = [10, 15, 30, 60, 120, 300, 600, 1800, 3600, 10_800, 21_600, 86_400].map((each) => each * 1000);
  const step = steps.find((each) => ((end - begin) / each) * 64 <= width) ?? steps.at(-1);
  context.fillStyle = colour;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) {
    const text = step < 60_000 ? clock(at) : clock(at).slice(0, 5);
    const half = context.measureText(text).width / 2;
    const centre = Math.min(Math.max(x(at), x(begin) + half), x(end) - half);
    if (Math.abs(centre - x(at)) < half / 2) context.fillText(text, centre, height - 2);
  }
}

const LEFT = 56;
const BOTTOM = 18;

/**
 * Draw lines over time with axes.
 *
 * `lines`: {read, colour}; `say` formats a value. Returns the point under `hover`, or null.
 */
export function drawLines(canvas, points, lines, { palette, say, gapMs, hover }) {
  const { context, width, height } = prepare(canvas);
  const when = span(points);
  const drawn = lines.map((line) => ({ ...line, found: stretches(points, line.read, gapMs) }));
  const values = drawn.flatMap(({ found }) => found.flat().map(([, value]) => value));
  const top = roundUp(Math.max(...values, 1));
  const bottom = height - BOTTOM;
  const x = (at) => LEFT + ((at - when.begin) / (when.end - when.begin)) * (width - LEFT - 2);
  const y = (value) => bottom - (value / top) * (bottom - 10);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) {
    const lineY = Math.round(y(top * share)) + 0.5;
    context.fillStyle = palette.get("line");
    context.fillRect(LEFT, lineY - 0.5, width - LEFT, 1);
    context.fillStyle = palette.get("soft");
    context.fillText(say(top * share), LEFT - 7, lineY);
  }
  drawTimes(context, when, x, height, palette.get("soft"));
  for (const { found, colour } of drawn) {
    for (const stretch of found) {
      trace(context, stretch, x, y);
      context.strokeStyle = colour;
      context.lineWidth = 1.8;
      context.lineJoin = "round";
      context.stroke();
      fillBelow(context, stretch, x, bottom, colour, 0.1);
    }
  }
  if (hover === null) return null;
  const point = nearest(points, when.begin + ((hover - LEFT) / (width - LEFT - 2)) * (when.end - when.begin));
  if (point === null) return null;
  context.fillStyle = palette.get("soft");
  context.fillRect(Math.round(x(point.at)), 8, 1, bottom - 8);
  return point;
}

function nearest(points, at) {
  let best = null;
  for (const point of points) {
    if (best === null || Math.abs(point.at - at) < Math.abs(best.at - at)) best = point;
  }
  return best;
}

/** The buckets that a heat map shows: the used ones with a margin of one, and at least six. */
export function usedBuckets(sum) {
  const used = sum.map((value, index) => (value > 0 ? index : -1)).filter((index) => index >= 0);
  if (used.length === 0) return { low: 0, high: Math.min(7, sum.length - 1) };
  let [low, high] = [Math.max(0, used[0] - 1), Math.min(sum.length - 1, used.at(-1) + 1)];
  while (high - low < 5 && high < sum.length - 1) high += 1;
  while (high - low < 5 && low > 0) low -= 1;
  return { low, high };
}

/** The darkness of a cell, 0 to 1. Logarithmic, so that few messages are visible beside many. */
export function warmth(value, most) {
  return value <= 0 ? 0 : 0.12 + 0.88 * (Math.log1p(value) / Math.log1p(most));
}

/**
 * Draw latency over time: a column for each interval, a row for each bucket, the slowest on top.
 *
 * Returns the cell under `hover` ({x, y} or null), as {point, bucket, value}, or null.
 */
export function drawHeat(canvas, points, options) {
  const { palette, key, bounds, sum, sayBound, intervalMs, hover } = options;
  const { context, width, height } = prepare(canvas);
  const when = span(points);
  const { low, high } = usedBuckets(sum);
  const rows = high - low + 1;
  const tall = (height - BOTTOM) / rows;
  const left = LEFT;
  const begin = when.begin - intervalMs;
  const x = (at) => left + ((at - begin) / (when.end - begin)) * (width - left);
  const wide = Math.max(1.5, x(intervalMs) - x(0));
  const top = (bucket) => (high - bucket) * tall;
  let most = 1;
  for (const point of points) {
    for (const value of point.heat.get(key) ?? []) most = Math.max(most, value);
  }
  context.fillStyle = palette.get("cold");
  context.fillRect(left, 0, width - left, rows * tall);
  let found = null;
  for (const point of points) {
    const cells = point.heat.get(key);
    const from = x(point.at) - wide;
    const isUnder = hover !== null && hover.x >= from && hover.x < from + wide;
    for (let bucket = low; bucket <= high; bucket += 1) {
      const value = cells?.[bucket] ?? 0;
      if (value > 0) {
        context.globalAlpha = warmth(value, most);
        context.fillStyle = palette.get("hot");
        context.fillRect(from, top(bucket) + 0.5, wide - (wide > 4 ? 1 : 0), tall - 1);
        context.globalAlpha = 1;
      }
      if (isUnder && hover.y >= top(bucket) && hover.y < top(bucket) + tall) {
        found = { point, bucket, value };
      }
    }
  }
  drawBounds(context, { low, high, tall, left, top, bounds, sayBound, palette });
  drawTimes(context, when, x, height, palette.get("soft"));
  return found;
}

function drawBounds(context, { low, high, tall, left, top, bounds, sayBound, palette }) {
  const every = Math.max(1, Math.ceil(15 / tall));
  context.fillStyle = palette.get("soft");
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let bucket = low; bucket < high; bucket += every) {
    // A bound is the upper edge of its bucket.
    context.fillText(sayBound(bounds[bucket]), left - 7, Math.max(top(bucket), 7));
  }
}
