// Agents outside of sandboxes: who asks, and when only the terminal answers.
import assert from "node:assert/strict";
import test from "node:test";
import { askerOf, isInTerminal } from "../../console/parts/asker.js";
import { whyNot } from "../../console/parts/prompt_filters.js";

const UNTIL = "2027-01-31T09:00:00Z",
  at = (seconds) => Date.parse(UNTIL) + seconds * 1000;
const item = (members = {}) => ({
  can: ["approve", "reject"],
  asked_from: {
    agent: "claude-code",
    machine: "laptop",
    person: "ada",
    folder: "/home/ada/shop",
    kind: "permission",
    order: "first",
    answerable_until: UNTIL,
    in_terminal: false,
    ...members,
  },
});

test("who asks is its agent, its person with the machine, and its folder", () => {
  assert.equal(askerOf(item().asked_from), "claude-code · ada@laptop · /home/ada/shop");
  assert.equal(askerOf(item({ person: "", folder: "" }).asked_from), "claude-code · laptop");
});

test("once its hook waits no longer, only the terminal answers; of a gate no terminal asks", () => {
  assert.equal(isInTerminal(item(), at(-1)), false);
  assert.equal(isInTerminal(item(), at(1)), true);
  assert.equal(isInTerminal(item({ in_terminal: true }), at(-1)), true);
  assert.equal(isInTerminal(item({ kind: "gate" }), at(1)), false);
  assert.equal(isInTerminal({ asked_from: null }, at(1)), false);
});

test("nobody decides here what only the terminal answers", () => {
  assert.match(whyNot({ ...item({ in_terminal: true }), can: [] }), /in the terminal of ada@laptop/);
  assert.equal(whyNot({ asked_from: null, can: ["approve"] }), "");
});
