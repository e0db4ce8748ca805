// Percentiles of histograms.

/**
 * The percentile `q` (0 to 1), interpolated within its bucket and at most `longest`, the greatest
 * value seen. Null if the histogram is empty.
 */
export function percentile(buckets, bounds, q, longest = Infinity) {
  const total = buckets.reduce((sum, value) => sum + value, 0);
  if (total === 0) return null;
  let left = q * total;
  for (let index = 0; index < buckets.length; index += 1) {
    if (left <= buckets[index] && buckets[index] > 0) {
      const low = index === 0 ? 0 : bounds[index - 1];
      // The last bucket is unbounded: without `longest`, use its lower bound.
      const last = Number.isFinite(longest) ? longest : low;
      const high = index < bounds.length ? bounds[index] : last;
      return Math.min(low + (high - low) * (left / buckets[index]), longest);
    }
    left -= buckets[index];
  }
  return Math.min(bounds.at(-1), longest);
}
