// What returns leave behind, of the events of a window.
import assert from "node:assert/strict";
import { test } from "node:test";
import { leftBehind } from "../../console/conversation/rows.js";

const said = (id) => ({ id, kind: "MessageEvent", source: "user" });
const back = (id, to) => ({ id, kind: "ConversationStateUpdateEvent", key: "returned_to", value: { event_id: to } });

const left = (...events) => [...leftBehind(events)].map(([id, gone]) => `${id}: ${gone.map((one) => one.id)}`);

test("a return leaves behind what came after its event", () => {
  assert.deepEqual(left(said("a"), said("b"), said("c"), back("r", "a"), said("d")), ["r: b,c"]);
});

test("a return that is undone leaves nothing behind, and its undoing leaves the return", () => {
  assert.deepEqual(left(said("a"), said("b"), back("r", "a"), said("c"), back("u", "b")), ["u: r,c"]);
});

test("a return to an event before the window leaves behind all that the window has before it", () => {
  assert.deepEqual(left(said("b"), said("c"), back("r", "a"), said("d")), ["r: b,c"]);
});

test("without a return nothing is left behind", () => {
  assert.deepEqual(left(said("a"), said("b")), []);
});
