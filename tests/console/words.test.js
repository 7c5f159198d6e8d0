// Times, numbers and bytes in words.
import assert from "node:assert/strict";
import test from "node:test";
import { bytes, counted, fieldOf, millis, timeOf } from "../../console/lib/words.js";

test("a time of the wire without a zone is UTC", () => {
  assert.equal(millis("2026-11-20T10:00:00"), Date.UTC(2026, 10, 20, 10));
  assert.equal(millis("2026-11-20T10:00:00+02:00"), Date.UTC(2026, 10, 20, 8));
  assert.equal(millis("2026-11-20T10:00:00Z"), Date.UTC(2026, 10, 20, 10));
});

test("bytes have one decimal below ten of a unit, and TiB is the largest unit", () => {
  const expected = { 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 10240: "10 KiB" };
  for (const [number, words] of Object.entries(expected)) assert.equal(bytes(Number(number)), words);
  assert.equal(bytes(1024 ** 4), "1.0 TiB");
  assert.equal(bytes(1024 ** 5), "1024 TiB");
  assert.equal(bytes(null), "–");
});

test("a number of things has the plural of its name unless it is exactly one", () => {
  assert.equal(counted(1, "event"), "1 event");
  assert.equal(counted(1, "event", true), "1 or more events");
  assert.equal(counted(1200, "sandbox"), "1,200 sandboxes");
});

test("a time survives the browser's field for times, to the minute", () => {
  assert.equal(timeOf(fieldOf("2026-11-20T10:17:42Z")), "2026-11-20T10:17:00.000Z");
  assert.equal(fieldOf(""), "");
  assert.equal(fieldOf("never"), "");
  assert.equal(timeOf(""), "");
});
