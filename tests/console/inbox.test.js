// The inbox's places and rows: what is a group, what a key leads to, and that nothing moves by itself.
import assert from "node:assert/strict";
import test from "node:test";
import {
  anew,
  headOf,
  indexOf,
  isOpen,
  merged,
  nextAfter,
  placesOf,
  rowsOf,
  stepFrom,
  targetOf,
} from "../../console/lib/places.js";
import { lineOf } from "../../console/parts/arguments.js";
import {
  areMixed,
  effectsInWords,
  groupingOf,
  highestRisk,
  patternOf,
  placeOf,
  quorumOf,
  whyNot,
} from "../../console/parts/prompt_filters.js";

const item = (action_id, digest = action_id) => ({ conversation_id: "c", action_id, digest, since: action_id });
const groupOf = ({ digest }) => digest;
const held = { isHeld: () => true, groupOf };
const names = (rows) => rows.map(({ places }) => places.map((place) => place.item.action_id).join("+"));
const keyOf = (places, name) => places.find((place) => place.item.action_id === name).key;
const NONE = new Set();

test("the same command is one row, where its first one stands, and its members have rows once it is unfolded", () => {
  const places = merged([], [item("1", "ls"), item("2"), item("3", "ls")], held);
  assert.deepEqual(names(rowsOf(places, NONE)), ["1+3", "2"]);
  assert.deepEqual(names(rowsOf(places, new Set([places[0].group]))), ["1+3", "1", "3", "2"]);
});

test("one that comes joins the group that waits, and moves nothing", () => {
  const before = merged([], [item("1", "ls"), item("2")], held);
  const after = merged(before, [item("1", "ls"), item("2"), item("3", "ls"), item("4")], held);
  assert.deepEqual(names(rowsOf(after, NONE)), ["1+3", "2", "4"]);
  assert.deepEqual(
    rowsOf(after, NONE).map(({ id }) => id),
    [...rowsOf(before, NONE).map(({ id }) => id), headOf(after.at(-1).group)],
  );
});

test("one that comes after the same command has ended is a row of its own, below", () => {
  const before = merged([], [item("1", "ls"), item("2")], held);
  const after = merged(before, [item("2"), item("3", "ls")], held);
  assert.deepEqual(names(rowsOf(after, NONE)), ["1", "2", "3"]);
});

test("an action whose command changes leaves its group, and keeps its key", () => {
  const before = merged([], [item("1", "ls"), item("2", "ls")], held);
  const after = merged(before, [item("1", "ls"), item("2", "rm")], held);
  assert.deepEqual(names(rowsOf(after, NONE)), ["1", "2"]);
  assert.equal(keyOf(after, "2"), keyOf(before, "2"));
});

test("what ended keeps its place while it is held, and goes when it is not", () => {
  const before = merged([], [item("1"), item("2"), item("3")], held);
  const after = merged(before, [item("1"), item("3")], held);
  assert.deepEqual(names(rowsOf(after, NONE)), ["1", "2", "3"]);
  assert.deepEqual(names(rowsOf(merged(after, [item("1"), item("3")], { ...held, isHeld: () => false }), NONE)), [
    "1",
    "3",
  ]);
});

test("in another order what stays keeps its key", () => {
  const before = merged([], [item("1"), item("2")], held);
  const after = anew(before, [item("2"), item("1")], { ...held, order: (a, b) => (a.since < b.since ? 1 : -1) });
  assert.deepEqual(names(rowsOf(after, NONE)), ["2", "1"]);
  assert.equal(keyOf(after, "1"), keyOf(before, "1"));
});

test("a step skips what has ended, stops at both ends, and begins at the first", () => {
  let places = merged([], [item("1"), item("2"), item("3")], held);
  places = merged(places, [item("1"), item("3")], held);
  const rows = rowsOf(places, NONE);
  const [first, , third] = places.map(({ key }) => key);
  assert.equal(stepFrom(rows, null, 1), first);
  assert.equal(stepFrom(rows, first, 1), third);
  assert.equal(stepFrom(rows, third, 1), null);
  assert.equal(stepFrom(rows, third, -1), first);
  assert.equal(stepFrom(rows, first, -1), null);
});

test("after a decision the focus goes on to the next, at the end to the one above, and never to the top", () => {
  const all = ["1", "2", "3", "4"].map((name) => item(name));
  const before = merged([], all, held);
  const decided = (...gone) =>
    merged(
      before,
      all.filter((one) => !gone.includes(one.action_id)),
      held,
    );
  const nextOf = (name, ...gone) => {
    const places = decided(name, ...gone),
      key = nextAfter(rowsOf(places, NONE), keyOf(places, name));
    return places.find((place) => place.key === key)?.item.action_id ?? null;
  };
  assert.equal(nextOf("2"), "3");
  assert.equal(nextOf("2", "3"), "4");
  assert.equal(nextOf("4"), "3");
  assert.equal(nextOf("4", "3"), "2");
  assert.equal(nextOf("1", "2", "3", "4"), null);
});

test("after one of a group the focus goes to the rest of it, and after the group to the next row", () => {
  const all = [item("1"), item("2", "ls"), item("3", "ls"), item("4", "ls"), item("5")];
  const before = merged([], all, held),
    { group } = before[1];
  const open = new Set([group]);
  const afterOne = merged(before, [all[0], all[2], all[3], all[4]], held);
  assert.equal(nextAfter(rowsOf(afterOne, open), keyOf(before, "2")), keyOf(before, "3"));
  assert.equal(nextAfter(rowsOf(afterOne, NONE), keyOf(before, "2")), headOf(group));
  const afterAll = merged(before, [all[0], all[4]], held);
  for (const unfolded of [open, NONE])
    assert.equal(nextAfter(rowsOf(afterAll, unfolded), headOf(group)), keyOf(before, "5"));
});

test("a group of which one waits leads to that one, and a decision about a group is about its places alone", () => {
  const before = merged([], [item("1", "ls"), item("2", "ls"), item("3")], held);
  const after = merged(before, [item("2", "ls"), item("3")], held);
  const [row] = rowsOf(after, NONE);
  assert.equal(targetOf(rowsOf(before, NONE)[0]), headOf(before[0].group));
  assert.equal(targetOf(row), keyOf(after, "2"));
  const about = placesOf(before, headOf(before[0].group));
  assert.deepEqual(
    about.map((place) => place.item.action_id),
    ["1", "2"],
  );
  assert.ok(about.every(isOpen));
});

test("what is current is found in its group's row while that is folded, and in its own row once it is unfolded", () => {
  const places = merged([], [item("0"), item("1", "ls"), item("2", "ls")], held);
  assert.equal(indexOf(rowsOf(places, NONE), places[2].key), 1);
  assert.equal(indexOf(rowsOf(places, new Set([places[1].group])), places[2].key), 3);
  assert.equal(indexOf(rowsOf(places, NONE), "gone"), -1);
});

test("a row has the command; of a change of a file the path; of any other tool its name and its first text", () => {
  const line = (tool_name, given) => lineOf({ tool_name, arguments: given });
  assert.deepEqual(line("terminal", { command: "make\nmake test", reset: false }), ["", "make …"]);
  assert.deepEqual(
    line("file_editor", { command: "str_replace", path: "/workspace/src/a.py", old_str: "x", new_str: "y" }),
    ["Change", "…/src/a.py"],
  );
  assert.deepEqual(line("Write", { file_path: "/b", content: "" }), ["Write", "/b"]);
  assert.deepEqual(line("create_issue", { number: 7, title: "It flickers" }), ["create_issue", "It flickers"]);
  assert.deepEqual(line("browser", { index: 3 }), ["browser", '{"index":3}']);
  assert.deepEqual(line("odd", [1]), ["odd", "[1]"]);
  assert.deepEqual(line("execute", { data: { command: "make", cwd: "/w" } }), ["", "make"]);
  assert.deepEqual(line("execute", { data: { kind: "execute", title: "make", _incomplete: "" } }), ["execute", "make"]);
});

const seenAs = (action_id, ...effects) => ({
  ...item(action_id, "same"),
  risk: "HIGH",
  seen: { risk: "HIGH", effects: effects.map((effect) => ({ effect, words: effect, because: "make" })) },
});

test("members of a group have the same effects, in whatever order the server names them", () => {
  const both = seenAs("1", "deletes", "network"),
    turned = seenAs("2", "network", "deletes"),
    one = seenAs("3", "deletes"),
    none = { ...item("4", "same"), risk: "HIGH" };
  const keyOfItem = groupingOf([both, turned, one, none], {});
  assert.equal(keyOfItem(both), keyOfItem(turned));
  assert.equal(new Set([both, one, none].map(keyOfItem)).size, 3);
  assert.equal(effectsInWords(both), "deletes · network");
  assert.equal(effectsInWords(none), "");
});

test("what several people must approve says who has, and why the reader may not", () => {
  const held = { needed: 2, approved_by: ["ada"], own: false, voted: false },
    can = ["approve", "reject"];
  assert.equal(quorumOf({ quorum: held }), "1 of 2 approved: ada");
  assert.equal(quorumOf({ quorum: { ...held, approved_by: [] } }), "0 of 2 approved");
  assert.equal(quorumOf({}), "");
  assert.equal(whyNot({ quorum: held, can }), "");
  assert.match(whyNot({ quorum: { ...held, voted: true }, can: ["reject"] }), /already/);
  assert.match(whyNot({ quorum: { ...held, own: true }, can: ["reject"] }), /asked for it/);
  assert.match(whyNot({ can: [] }), /no right/);
});

const liked = (action_id, command, pattern, others = {}) => ({
  ...item(action_id, command),
  tool_name: "terminal",
  like: pattern && { command: { command: pattern } },
  ...others,
});

test("actions that one rule would approve are a group, whatever their risks; others are where they are the same", () => {
  const items = [
    liked("1", "git status -s", "git status *"),
    liked("2", "git status -v", "git status *", { risk: "HIGH" }),
    liked("3", "git log", "git log *"),
    liked("4", "make", null),
    liked("5", "make", null),
    liked("6", "git status -s", "git status *", { tool_name: "bash" }),
  ];
  const places = merged([], items, { ...held, groupOf: groupingOf(items, {}) });
  assert.deepEqual(names(rowsOf(places, NONE)), ["1+2", "3", "4+5", "6"]);
  assert.deepEqual([areMixed(items.slice(0, 2)), areMixed(items.slice(3, 5))], [true, false]);
  assert.equal(highestRisk(items.slice(0, 2)), "HIGH");
  assert.equal(patternOf(items[0]), "git status *");
  assert.equal(patternOf({ like: { path: { path: "src/**" }, command: { equals: "create" } } }), "src/**");
  assert.equal(patternOf(items[3]), "");
});

test("what is asked for is in no group, and what an agent decides together neither", () => {
  const items = [
    { ...item("1", "a"), asked: {} },
    { ...item("2", "a"), asked: {} },
    liked("3", "ls", "ls *", { decided_together: true }),
    liked("4", "ls", "ls *", { decided_together: true }),
  ];
  const places = merged([], items, { ...held, groupOf: groupingOf(items, {}) });
  assert.deepEqual(names(rowsOf(places, NONE)), ["1", "2", "3", "4"]);
});

test("a row names its repository, else the end of its folder", () => {
  assert.equal(placeOf({ repository: "github.com/ada/shop", folder: "/home/ada/shop" }), "ada/shop");
  assert.equal(placeOf({ folder: "/home/ada/work/shop" }), "work/shop");
  assert.equal(placeOf({}), "");
});
