// Canonical and exact JSON, and the verification of an audit chain.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";
import { canonical, verify } from "../../console/lib/audit_chain.js";
import { parseExactly } from "../../console/lib/exact.js";

test("canonical JSON sorts the members of every object and keeps the order of lists", () => {
  assert.equal(canonical({ b: [2, { d: null, c: "é" }], a: true }), '{"a":true,"b":[2,{"c":"é","d":null}]}');
});

test("exact JSON reads short numbers as numbers and refuses what is not JSON", () => {
  assert.deepEqual(parseExactly('{"a": [1, 2.5, "3"]}'), { a: [1, 2.5, "3"] });
  assert.throws(() => parseExactly("{a: 1}"), SyntaxError);
});

function chain(length) {
  const lines = [];
  let previous = "";
  for (let seq = 1; seq <= length; seq++) {
    const content = { chain: "c", previous, seq };
    const hash = createHash("sha256").update(canonical(content)).digest("hex");
    lines.push(`${canonical({ ...content, hash })}\n`);
    previous = hash;
  }
  return lines;
}

test("a whole chain is verified up to its last hash", async () => {
  const lines = chain(3);
  assert.deepEqual(await verify(lines.join(""), "c"), { number: 3, hash: JSON.parse(lines[2]).hash });
  assert.deepEqual(await verify("", "c"), { number: 0, hash: "" });
});

test("a chain with a change, a gap or a broken end is refused with the entry", async () => {
  const lines = chain(3);
  const differs = [
    [[lines[0], lines[2]], /^Error: Entry 2: seq 3 stands here/],
    [[lines[0].replace('"seq":1', '"seq":4')], /^Error: Entry 1: its hash is/],
    [[lines[0], " ", lines[1]], /^Error: Entry 2: its bytes/],
    [[lines[0], "no JSON\n"], /^Error: Entry 2: it is not JSON/],
    [[lines[0], lines[1].slice(0, -1)], /^Error: Entry 2: the export breaks off/],
  ];
  for (const [some, words] of differs) await assert.rejects(verify(some.join(""), "c"), words);
  await assert.rejects(verify(lines.join(""), "another"), /it is of another chain/);
});
