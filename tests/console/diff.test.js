// A change of a text, line by line.
import assert from "node:assert/strict";
import test from "node:test";
import { changedWords, changes } from "../../console/parts/diff.js";

const written = (before, after) => changes(before, after).lines.map(([sign, line]) => sign + line);

test("equal texts have no changed line, and empty ones have no line", () => {
  assert.deepEqual(written("a\nb\n", "a\nb\n"), [" a", " b"]);
  assert.deepEqual(written("", ""), []);
});

test("a line that is replaced goes before its successor comes", () => {
  assert.deepEqual(written("a\nb\nc\n", "a\nx\nc\n"), [" a", "-b", "+x", " c"]);
});

test("a new text only adds, and an emptied one only removes", () => {
  assert.deepEqual(written("", "a\nb\n"), ["+a", "+b"]);
  assert.deepEqual(written("a\nb\n", ""), ["-a", "-b"]);
});

test("a line end that is missing on one side shows as an empty line", () => {
  assert.deepEqual(written("a", "a\n"), [" a", "+"]);
});

test("repeated lines are not counted twice as beginning and end", () => {
  assert.deepEqual(written("a\na\n", "a\n"), [" a", "-a"]);
});

test("lines of any change give back both texts", () => {
  let seed = 7;
  const random = (most) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % most;
  };
  const text = () => Array.from({ length: random(12) }, () => `${"abc"[random(3)]}\n`).join("");
  for (let round = 0; round < 500; round++) {
    const [before, after] = [text(), text()];
    const { lines } = changes(before, after);
    const side = (sign) => lines.flatMap(([one, line]) => (one === " " || one === sign ? `${line}\n` : [])).join("");
    assert.deepEqual([side("-"), side("+")], [before, after]);
  }
});

test("what is too large to align is all of the old text, and then all of the new one", () => {
  const text = (name) => Array.from({ length: 2_001 }, (_, number) => `${name} ${number}\n`).join("");
  const { lines, isAligned } = changes(text("old"), text("new"));
  assert.equal(isAligned, false);
  assert.deepEqual(lines.map(([sign]) => sign).join(""), "-".repeat(2_001) + "+".repeat(2_001));
});

test("the words of a changed line are told apart", () => {
  assert.deepEqual(changedWords("let x = 1;", "let y = 1;"), [
    [
      ["let ", false],
      ["x", true],
      [" = 1;", false],
    ],
    [
      ["let ", false],
      ["y", true],
      [" = 1;", false],
    ],
  ]);
});

test("lines with little in common have no words of their own", () => {
  assert.equal(changedWords("return parse(text)", "raise TooLong"), null);
});
