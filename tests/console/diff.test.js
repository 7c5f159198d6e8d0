// A change of a text, line by line.
import assert from "node:assert/strict";
import test from "node:test";
import { changes } from "../../console/parts/diff.js";

const written = (before, after) => changes(before, after).map(([sign, line]) => sign + line);

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
    const lines = changes(before, after);
    const side = (sign) => lines.flatMap(([one, line]) => (one === " " || one === sign ? `${line}\n` : [])).join("");
    assert.deepEqual([side("-"), side("+")], [before, after]);
  }
});

test("a change beyond the bound is all that goes, then all that comes", () => {
  const many = (letter) => Array.from({ length: 600 }, (_, number) => `${letter}${number}\n`).join("");
  const signs = changes(many("a"), many("b")).map(([sign]) => sign);
  assert.equal(signs.join(""), "-".repeat(600) + "+".repeat(600));
});
