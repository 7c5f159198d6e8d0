// A histogram of events that the page knows, in the form of the API's: what a text was found in, which no route counts.
import { millis } from "../lib/words.js";
import { kindOf } from "./rows.js";

/**
 * Events in so many equal parts of a time, by kind or source, the most frequent name first.
 *
 * from, to: of the time; "" for that of the first event, and just after the last one.
 */
export function histogramOf(events, { by, buckets, from = "", to = "" }) {
  const times = events.map(({ timestamp }) => millis(timestamp));
  if (!times.length) return { from: null, to: null, bucket_seconds: 0, total: 0, series: {} };
  const start = from ? millis(from) : times.reduce((least, time) => Math.min(least, time)),
    end = to ? millis(to) : times.reduce((most, time) => Math.max(most, time)) + 1,
    width = (end - start) / buckets,
    counts = new Map();
  for (const [place, event] of events.entries()) {
    const name = by === "kind" ? kindOf(event) : event.source;
    if (!counts.has(name)) counts.set(name, new Array(buckets).fill(0));
    counts.get(name)[Math.min(buckets - 1, Math.max(0, Math.floor((times[place] - start) / width)))] += 1;
  }
  const sum = (parts) => parts.reduce((total, part) => total + part, 0);
  return {
    from: new Date(start).toISOString(),
    to: new Date(end).toISOString(),
    bucket_seconds: width / 1000,
    total: events.length,
    series: Object.fromEntries([...counts].sort(([, one], [, other]) => sum(other) - sum(one))),
  };
}
