// Percentiles of histograms.

/**
 * The percentile `q` (0 to 1), interpolated within its bucket and at most `longest`, the greatest
 * value seen. Null if the histogram is empty.
 */
export function percentile(buckets, bounds, q, longest = Infinity) {
  const total = buckets.reduce((sum, value) => sum + value, 0);
  if (total === 0) return null;
  let left = q * total;
  for (let place = 0; place < buckets.length; place += 1) {
    if (left <= buckets[place] && buckets[place] > 0) {
      const low = place === 0 ? 0 : bounds[place - 1];
      // The last bucket is unbounded: without `longest`, use its lower bound.
      const last = Number.isFinite(longest) ? longest : low;
      const high = place < bounds.length ? bounds[place] : last;
      return Math.min(low + (high - low) * (left / buckets[place]), longest);
    }
    left -= buckets[place];
  }
  return Math.min(bounds.at(-1), longest);
}
