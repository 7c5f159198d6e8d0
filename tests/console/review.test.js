// What a changed file is read as. Git is the judge of counts and patches.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { countsOf, inColumns, linesOf, opening, patchOf, rowsOf } from "../../console/conversation/review.js";

const folder = mkdtempSync(join(tmpdir(), "review-"));
test.after(() => rmSync(folder, { recursive: true }));

let seed = 7;
const random = (most) => {
  seed = (seed * 48_271) % 2_147_483_647;
  return seed % most;
};

/** A text of so many lines, and the same with so many lines that go, come or change. */
function edited(length, edits) {
  const lines = Array.from({ length }, () => `${"abcdefgh"[random(8)]} ${random(length)}`);
  const fresh = [...lines];
  for (let edit = 0; edit < edits; edit++) {
    const place = random(fresh.length);
    [() => fresh.splice(place, 1), () => fresh.splice(place, 0, `new ${edit}`), () => (fresh[place] += " x")][
      random(3)
    ]();
  }
  return [lines, fresh].map((text) => `${text.join("\n")}\n`);
}

function counted(before, after) {
  writeFileSync(join(folder, "before"), before);
  writeFileSync(join(folder, "after"), after);
  const words = ["diff", "--no-index", "--minimal", "--numstat", "before", "after"];
  const [added, removed] = spawnSync("git", words, { cwd: folder, encoding: "utf8" }).stdout.split("\t").map(Number);
  return { added, removed };
}

test("a change of 20,000 lines with 200 edits has the lines that Git counts", () => {
  const [before, after] = edited(20_000, 200);
  const { lines, isAligned } = linesOf(before, after);
  assert.ok(isAligned);
  assert.deepEqual(countsOf(lines), counted(before, after));
});

test("changes of any kind have the lines that Git counts", () => {
  for (let round = 0; round < 15; round++) {
    const [before, after] = edited(30, 1 + random(12));
    assert.deepEqual(countsOf(linesOf(before, after).lines), counted(before, after));
  }
});

test("far from a change lines are a gap, which opens a hundred at a time", () => {
  const before = Array.from({ length: 300 }, (_, number) => `${number}\n`).join("");
  const { lines } = linesOf(before, before.replace("0\n", "zero\n"));
  const rows = rowsOf(lines, []);
  const gap = rows.at(-1);
  assert.deepEqual([rows.length, gap], [6, { gap: 296, from: 5 }]);
  assert.deepEqual(rowsOf(lines, [opening(gap)]).at(-1), { gap: 196, from: 105 });
});

test("in two columns what goes stands beside what comes in its place", () => {
  const { lines } = linesOf("a\nb\nc\n", "a\nx\ny\nc\n");
  const shown = inColumns(rowsOf(lines, [])).map(({ left, right }) => [left?.text, right?.text]);
  assert.deepEqual(shown, [
    ["a", "a"],
    ["b", "x"],
    [undefined, "y"],
    ["c", "c"],
  ]);
});

test("Git applies a patch: it changes, makes and deletes files, with and without an end of the last line", () => {
  const tree = mkdtempSync(join(folder, "tree-"));
  execFileSync("git", ["init", "-q"], { cwd: tree });
  const [long, edit] = edited(400, 30);
  const files = {
    "long.txt": [long, edit],
    "no end": ["a\nb", "a\nc"],
    "an end comes": ["a\nb", "a\nb\n"],
    "an end goes": ["a\nb\n", "a\nb"],
    'gr\u00fcn "quoted"': ["x\n", "y\n"],
    "new.txt": [null, "one\n"],
    "new and empty": [null, ""],
    "old.txt": ["one\ntwo\n", null],
  };
  for (const [path, [before]] of Object.entries(files)) if (before !== null) writeFileSync(join(tree, path), before);
  const patch = Object.entries(files)
    .map(([path, [before, after]]) => patchOf(path, before, after))
    .join("");
  execFileSync("git", ["apply", "-"], { cwd: tree, input: patch });
  for (const [path, [, after]] of Object.entries(files)) {
    const found = () => readFileSync(join(tree, path), "utf8");
    after === null ? assert.throws(found, path) : assert.equal(found(), after, path);
  }
});

test("a file of which no line differs has no patch", () => {
  assert.equal(patchOf("a", "x\n", "x\n"), "");
});
