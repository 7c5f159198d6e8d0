// Lines of what was printed: folds, what is found, rows, and the lines that an address names.
import assert from "node:assert/strict";
import test from "node:test";
import {
  carriedOf,
  firstAt,
  foldsOf,
  found,
  lineAt,
  linesOf,
  MOST_FOUND,
  plainOf,
  rangeName,
  rangeOf,
  topsOf,
} from "../../console/parts/lines.js";
import { placesOf } from "../../console/lib/visible.js";

const numbered = (number) => Array.from({ length: number }, (_, place) => `line ${place + 1}`);
const words = (parts) => parts.map(({ from, to, isShown }) => `${from}-${to}${isShown ? "" : " folded"}`);

test("the line end at the end of a text begins no further line, and CR LF is one line end", () => {
  assert.deepEqual(linesOf("a\r\nb\n\nc\n"), ["a", "b", "", "c"]);
  assert.deepEqual(linesOf(""), [""]);
  assert.deepEqual(linesOf("\n\n"), ["", ""]);
});

test("a folded output shows its last 14 lines, and folds no single line", () => {
  assert.deepEqual(words(foldsOf(14)), ["0-14"]);
  assert.deepEqual(words(foldsOf(15)), ["0-15"]);
  assert.deepEqual(words(foldsOf(402)), ["0-388 folded", "388-402"]);
});

test("while a text is sought, a folded output shows the lines about its first five matches", () => {
  const at = (...lines) => lines.map((line) => ({ line, start: 0, end: 1 }));
  assert.deepEqual(words(foldsOf(100, at(10, 12, 50))), [
    "0-8 folded",
    "8-15",
    "15-48 folded",
    "48-53",
    "53-100 folded",
  ]);
  assert.deepEqual(words(foldsOf(100, at(0))), ["0-3", "3-100 folded"]);
  assert.deepEqual(words(foldsOf(100, at(97))), ["0-95 folded", "95-100"]);
  assert.equal(words(foldsOf(100, at(10, 20, 30, 40, 50, 60))).at(-1), "53-100 folded");
});

test("a text is found whatever its case, in each line, and matches do not overlap", () => {
  assert.deepEqual(found(["Error: error", "fine", "ERRORERROR"], "error"), [
    { line: 0, start: 0, end: 5 },
    { line: 0, start: 7, end: 12 },
    { line: 2, start: 0, end: 5 },
    { line: 2, start: 5, end: 10 },
  ]);
  assert.deepEqual(found(["aaa"], "aa"), [{ line: 0, start: 0, end: 2 }]);
  assert.deepEqual(found(["a"], ""), []);
  assert.equal(found(["a".repeat(MOST_FOUND + 5)], "a").length, MOST_FOUND);
});

test("places stay true where small letters are longer than large ones", () => {
  assert.deepEqual(placesOf("İstanbul and Rome", "Rome"), [[13, 17]]);
});

test("the last line of a hundred thousand is found", () => {
  const lines = numbered(100_000);
  assert.deepEqual(
    found(lines, "line 100000").map(({ line }) => line),
    [99_999],
  );
});

test("the first match at or below a line is found among sorted ones", () => {
  const matches = [2, 2, 5, 9].map((line) => ({ line }));
  assert.deepEqual(
    [0, 2, 3, 9, 10].map((line) => firstAt(matches, line)),
    [0, 0, 2, 3, 4],
  );
});

test("a colour that a line leaves on goes on in the next ones, until it is reset", () => {
  assert.deepEqual(
    carriedOf(["\u001b[31mred", "still", "\u001b[1mbold", "\u001b[0mplain", "end", "\u001b[0;32mgreen", "."]),
    ["", "\u001b[31m", "\u001b[31m", "\u001b[31m\u001b[1m", "", "", "\u001b[0;32m"],
  );
  const endless = carriedOf([...Array.from({ length: 1_000 }, () => "\u001b[31m"), ""]);
  assert.equal(endless.at(-1).length, 32 * "\u001b[31m".length);
});

test("a plain line has no escape sequences, and the words of a link", () => {
  assert.equal(
    plainOf("\u001b[1;38;2;1;2;3ma\u001b[0m\u001b[2Kb \u001b]8;;http://x.test/\u0007c\u001b]8;;\u001b\\d"),
    "ab cd",
  );
});

test("a wrapped line is as many rows as its characters need, and a measured one as many as were measured", () => {
  const lines = ["a".repeat(25), "", "b".repeat(10)];
  assert.deepEqual([...topsOf(lines, 10)], [0, 3, 4, 5]);
  assert.deepEqual([...topsOf(lines, 0)], [0, 1, 2, 3]);
  const tops = topsOf(lines, 10, new Map([[2, 4]]));
  assert.deepEqual([...tops], [0, 3, 4, 8]);
  assert.deepEqual(
    [-5, 0, 2, 3, 4, 7, 99].map((row) => lineAt(tops, row)),
    [0, 0, 0, 1, 2, 2, 2],
  );
  assert.equal(lineAt(topsOf([], 0), 3), 0);
});

test("an address names a line or a range, within the lines that there are", () => {
  assert.deepEqual(rangeOf("12", 20), [12, 12]);
  assert.deepEqual(rangeOf("15-12", 20), [12, 15]);
  assert.deepEqual(rangeOf("12-99", 20), [12, 20]);
  assert.deepEqual(rangeOf("0", 20), [1, 1]);
  for (const odd of [undefined, "", "x", "1-", "-1", "1-2-3", "9".repeat(30)]) assert.equal(rangeOf(odd, 20), null);
  assert.deepEqual([rangeName(3, 3), rangeName(3, 5)], ["3", "3-5"]);
});
