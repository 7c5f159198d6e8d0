// The filters of the audit: when a span of days begins.
import assert from "node:assert/strict";
import test from "node:test";
import { beginOf } from "../../console/parts/audit_filters.js";

test("a span of days begins at a midnight of this place, and has today in it", () => {
  const noon = new Date(2026, 2, 3, 12);
  assert.equal(beginOf(1, noon), new Date(2026, 2, 3).toISOString());
  assert.equal(beginOf(7, noon), new Date(2026, 1, 25).toISOString());
});
