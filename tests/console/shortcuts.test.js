// What keys of the keyboard mean: one, or two one after the other.
import assert from "node:assert/strict";
import test from "node:test";
import { matchOf } from "../../console/lib/shortcuts.js";

const NAMES = ["a", "g i", "g c", "?", ":Forget the key"];

test("a key that is a shortcut is found", () => {
  assert.equal(matchOf(NAMES, "a"), "found");
  assert.equal(matchOf(NAMES, "?"), "found");
});

test("the first key of a sequence begins it, and the second one ends it", () => {
  assert.equal(matchOf(NAMES, "g"), "begun");
  assert.equal(matchOf(NAMES, "g i"), "found");
});

test("a key after the first one of a sequence is not the shortcut of that key alone", () => {
  assert.equal(matchOf(NAMES, "g a"), "");
});

test("an action without a key is begun by none", () => {
  assert.equal(matchOf([": a b"], ":"), "");
});
