// Histograms of events that the page knows.
import assert from "node:assert/strict";
import test from "node:test";
import { histogramOf } from "../../console/conversation/histogram.js";

const event = (second, kind = "MessageEvent", source = "user") => ({
  kind,
  source,
  timestamp: `2026-11-20T10:00:0${second}Z`,
});

test("each event is in one bucket of its series, and the most frequent series is first", () => {
  const events = [event(0, "openhands.ActionEvent", "agent"), event(1), event(5), event(9)];
  const found = histogramOf(events, { by: "kind", buckets: 3 });
  assert.deepEqual(found.series, { MessageEvent: [1, 1, 1], ActionEvent: [1, 0, 0] });
  assert.deepEqual([found.total, found.from], [4, "2026-11-20T10:00:00.000Z"]);
  assert.deepEqual(Object.keys(histogramOf(events, { by: "source", buckets: 1 }).series), ["user", "agent"]);
});

test("the time is that of the filter where there is one", () => {
  const found = histogramOf([event(4)], {
    by: "kind",
    buckets: 10,
    from: "2026-11-20T10:00:00Z",
    to: "2026-11-20T10:00:10Z",
  });
  assert.deepEqual(found.series.MessageEvent, [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
  assert.equal(found.bucket_seconds, 1);
});

test("a histogram of nothing has no series", () => {
  assert.deepEqual(histogramOf([], { by: "kind", buckets: 5 }).series, {});
});
