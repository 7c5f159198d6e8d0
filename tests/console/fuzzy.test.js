// What somebody means who types a part of a name.
import assert from "node:assert/strict";
import test from "node:test";
import { match, ranked } from "../../console/lib/fuzzy.js";

const texts = (typed, ...names) =>
  ranked(
    typed,
    names.map((text) => ({ text })),
  ).map(({ text }) => text);
const marked = (typed, text) => match(typed, text)?.marks.map(([start, end]) => text.slice(start, end));

test("nothing typed means everything, in its order, without marks", () => {
  assert.deepEqual(texts("", "Rules", "Audit"), ["Rules", "Audit"]);
  assert.deepEqual(marked(" ", "Rules"), []);
});

test("the start of a name comes before that of a later word, and that before letters within one", () => {
  assert.deepEqual(texts("pa", "Compare", "Date parser", "Pause"), ["Pause", "Date parser", "Compare"]);
});

test("each typed word stands somewhere, in any order", () => {
  assert.deepEqual(marked("parser mend", "Mend the date parser"), ["Mend", "parser"]);
  assert.equal(match("parser rule", "Mend the date parser"), null);
});

test("letters in their order mean a name, at the starts of words where they can", () => {
  assert.deepEqual(marked("mdp", "Mend the date parser"), ["M", "d", "p"]);
  assert.equal(match("pdm", "Mend the date parser"), null);
});

test("large and small letters are the same, and a letter that changes its length keeps its place", () => {
  assert.deepEqual(marked("BUL", "İstanbul"), ["bul"]);
});

test("letters are found within words where the starts of words do not lead on", () => {
  assert.deepEqual(marked("rly", "Rules apply late"), ["R", "l", "y"]);
});
