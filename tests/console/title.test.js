// The title of the document.
import assert from "node:assert/strict";
import test from "node:test";
import { titleOf } from "../../console/lib/title.js";

test("a title begins with the view's own name, so that tabs and the history tell them apart", () => {
  assert.equal(titleOf({ name: "Inbox" }), "Inbox – Agent Server");
});

test("a conversation's title has its state", () => {
  const title = titleOf({ name: "Mend the date parser", state: "Waiting (1)" });
  assert.equal(title, "Mend the date parser · Waiting (1) – Agent Server");
});

test("what waits elsewhere is counted before the name, and nothing else is", () => {
  assert.equal(titleOf({ name: "Rules", elsewhere: 2 }), "(2) Rules – Agent Server");
  assert.equal(titleOf({ name: "Rules", elsewhere: -1 }), "Rules – Agent Server");
});

test("a title shows characters that hide, and is cut", () => {
  assert.equal(titleOf({ name: "a\u202eb" }), "a\\u{202e}b – Agent Server");
  assert.equal(titleOf({ name: "x".repeat(99) }), `${"x".repeat(79)}… – Agent Server`);
});
