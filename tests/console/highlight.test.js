// Code as tokens, whose texts are always those of the file.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { languageOf, piecesOf } from "../../console/parts/highlight.js";
import { tokenLines } from "../../console/parts/tokens.js";

const signal = new AbortController().signal;

const shown = async (text, language) => {
  const lines = await tokenLines(text, language, signal);
  return text.split("\n").map((line, index) => piecesOf(line, lines[index]).map(([piece, kind]) => [piece, kind]));
};

test("a text of several lines is one string to the last of them", async () => {
  assert.deepEqual(await shown('x = """a\n  b"""\ny = 1', "python"), [
    [
      ["x = ", ""],
      ['"""a', "string"],
    ],
    [['  b"""', "string"]],
    [
      ["y = ", ""],
      ["1", "number"],
    ],
  ]);
});

test("what is read in parts has the tokens of what is read at once", async () => {
  for (const [path, language] of [
    ["runtimes/git.py", "python"],
    ["supervisor/start_tasks.py", "python"],
    ["console/vendor/diff/base.js", "javascript"],
    ["console/styles/base.css", "css"],
    ["store/scripts/append_events.lua", "lua"],
  ]) {
    const text = await readFile(new URL(`../../${path}`, import.meta.url), "utf8");
    const [parts, whole] = [
      await tokenLines(text, language, signal),
      await tokenLines(text, language, signal, text.length),
    ];
    assert.deepEqual(parts, whole, path);
  }
});

test("every grammar of this server can be loaded, and keeps the text as it is", async () => {
  for (const name of "bash c cpp csharp css dockerfile go ini java javascript json kotlin lua makefile markdown php python ruby rust sql swift typescript xml yaml".split(
    " ",
  )) {
    assert.equal(languageOf(name), name);
    const text = "<a b='1'>\r\n/* x */ \"\u202e\" # \ud800\n\n\t1";
    const lines = await tokenLines(text, name, signal);
    const lengths = lines.map((line) => line.reduce((sum, [length]) => sum + length, 0));
    assert.deepEqual(
      lengths,
      text.split("\n").map((line) => line.length),
      name,
    );
  }
});

test("a text in one token beyond all bounds is read to its end", async () => {
  const text = `/*${"x\n".repeat(60_000)}*/ 1`;
  assert.equal((await tokenLines(text, "javascript", signal)).length, 60_001);
});

test("a text that is left is read no further", async () => {
  assert.equal(await tokenLines("x", "python", AbortSignal.abort()), null);
});

test("a language is known by the end of a path, by the name of a file, and by that of a block", () => {
  const known = [
    "src/a.py",
    "Dockerfile",
    "Dockerfile.dev",
    "Makefile",
    "web/x.TSX",
    "js",
    "a/b.unknown",
    "LICENSE",
    "",
  ];
  assert.deepEqual(known.map(languageOf), [
    "python",
    "dockerfile",
    "dockerfile",
    "makefile",
    "typescript",
    "javascript",
    undefined,
    undefined,
    undefined,
  ]);
});

test("words that have changed and tokens cut a line together", () => {
  const pieces = piecesOf(
    "let name = 1",
    [
      [3, "keyword"],
      [8, ""],
      [1, "number"],
    ],
    [
      ["let na", false],
      ["me", true],
      [" = 1", false],
    ],
  );
  assert.deepEqual(pieces, [
    ["let", "keyword", false],
    [" na", "", false],
    ["me", "", true],
    [" = ", "", false],
    ["1", "number", false],
  ]);
});

test("a line is whole without tokens, and with those of another one", () => {
  assert.deepEqual(piecesOf("abc"), [["abc", "", false]]);
  assert.deepEqual(piecesOf("abc", [[1, "keyword"]]), [
    ["a", "keyword", false],
    ["bc", "", false],
  ]);
  assert.deepEqual(piecesOf("abc", [[9, "keyword"]]), [["abc", "keyword", false]]);
});
