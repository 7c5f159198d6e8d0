// Times, numbers and bytes in words.
import assert from "node:assert/strict";
import test from "node:test";
import { bytes, clock, counted, day, exact, fieldOf, millis, timeOf, took } from "../../console/lib/words.js";

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

test("what took less than ten seconds has tenths, and what took longer is rounded more", () => {
  const expected = { 0: "0 s", 40: "0 s", 50: "0.1 s", 400: "0.4 s", 3000: "3 s", 9940: "9.9 s", 9960: "10 s" };
  for (const [milliseconds, words] of Object.entries(expected)) assert.equal(took(Number(milliseconds)), words);
  assert.equal(took(12_345), "12 s");
  assert.equal(took(59_960), "1 min 0 s");
  assert.equal(took(250_000), "4 min 10 s");
  assert.equal(took(7_500_000), "2 h 5 min");
  assert.equal(took(-5), "0 s");
});

test("a time of the clock has seconds, an exact one names its zone, and a time that is none says nothing", () => {
  const at = new Date(2026, 10, 20, 12, 41, 48).toISOString();
  assert.equal(clock(at), "12:41:48");
  assert.match(exact(at), /^20 Nov 2026, 12:41:48 \S+$/);
  assert.match(day(at), /^Friday,? 20 November 2026$/);
  assert.deepEqual([clock("never"), day("never")], ["", ""]);
});
