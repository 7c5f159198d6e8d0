// Rows of the timeline, the usage of a conversation, and text as people can read it.
import assert from "node:assert/strict";
import test from "node:test";
import { answerOf, changesMode, kindOf, lastOf, rowsOf, talkOf } from "../../console/conversation/rows.js";
import { usageOf } from "../../console/conversation/usage.js";
import { Store } from "../../console/lib/store.js";
import { beginning, parts, visible } from "../../console/lib/visible.js";

const ACTION = { kind: "ActionEvent", id: "a", tool_call_id: "t", timestamp: "2026-11-20T10:00:00" };
const RESULT = { kind: "ObservationEvent", id: "o", action_id: "a", timestamp: "2026-11-20T10:00:01" };
const message = (id, second) => ({
  kind: "MessageEvent",
  id,
  source: "user",
  timestamp: `2026-11-20T10:00:0${second}`,
});

test("an action and its results are one row, also where an error names the call alone", () => {
  const error = { kind: "AgentErrorEvent", id: "e", tool_call_id: "t" };
  const rows = rowsOf([ACTION, RESULT, error]);
  assert.deepEqual(rows, [{ event: ACTION, results: [RESULT, error] }]);
  assert.equal(lastOf(rows[0]), error);
});

test("a row that has not changed stays the same object, and one with a new result does not", () => {
  const before = rowsOf([message("m", 0), ACTION]);
  const after = rowsOf([before[0].event, ACTION, RESULT], before);
  assert.equal(after[0], before[0]);
  assert.notEqual(after[1], before[1]);
});

test("the kind of an event is its bare name", () => {
  assert.equal(kindOf({ kind: "openhands.sdk.ActionEvent" }), "ActionEvent");
});

test("the last words of an agent are those of its finish, and only text", () => {
  assert.equal(answerOf({ action: { kind: "FinishAction", message: "Done." } }), "Done.");
  assert.equal(answerOf({ action: { kind: "FinishAction", message: 7 } }), null);
  assert.equal(answerOf({ action: { kind: "ExecuteBashAction", message: "ls" } }), null);
});

test("a talk has one line a turn with its actions, time and tokens", () => {
  const state = (id, second, key, value) => ({
    kind: "ConversationStateUpdateEvent",
    id,
    key,
    value,
    timestamp: `2026-11-20T10:00:0${second}`,
  });
  const stats = { usage_to_metrics: { m: { accumulated_token_usage: { prompt_tokens: 5, completion_tokens: 2 } } } };
  const events = [
    message("m1", 0),
    state("s1", 1, "execution_status", "running"),
    ACTION,
    RESULT,
    state("s2", 3, "stats", stats),
    state("s3", 4, "execution_status", "finished"),
    message("m2", 5),
  ];
  const talk = talkOf(rowsOf(events), false);
  const [{ line }] = talk.filter((one) => one.line);
  assert.deepEqual([line.actions, line.milliseconds, line.tokens, line.since], [1, 3_000, 7, null]);
  assert.deepEqual(
    talk.map((one) => one.row?.event.id ?? "line"),
    ["m1", "a", "line", "m2"],
  );
  assert.equal(talkOf(rowsOf(events), false, talk).find((one) => one.line).line, line);
});

test("usage is summed over models, counts what is no number as 0, and is unknown without a model", () => {
  const one = { accumulated_token_usage: { prompt_tokens: 1, completion_tokens: "2" }, accumulated_cost: 0.5 };
  assert.deepEqual(usageOf({ usage_to_metrics: { a: one, b: null, c: one } }), { tokens: 2, dollars: 1 });
  for (const stats of [null, {}, { usage_to_metrics: {} }, { usage_to_metrics: "x" }]) {
    assert.equal(usageOf(stats), null);
  }
});

test("a character that does not show stands as an escape, and prose keeps joiners", () => {
  assert.equal(visible("a\u202eb\u200dc\nd"), "a\\u{202e}b\\u{200d}c\nd");
  assert.deepEqual(parts("a\u200db\u202e", { prose: true }), [
    ["a\u200db", false],
    ["\\u{202e}", true],
  ]);
  assert.deepEqual([beginning("abcd", 4), beginning("abcde", 4)], ["abcd", "abc…"]);
});

test("a store tells each subscriber of a new value, and of no equal one", () => {
  const store = new Store(1);
  const heard = [];
  const end = store.subscribe((value) => heard.push(value));
  for (const value of [1, 2, 2, 3]) store.set(value);
  end();
  store.set(4);
  assert.deepEqual([heard, store.get()], [[2, 3], 4]);
});

test("a change of the approval mode is a step of its own, and another change of the state is not", () => {
  const change = (id, key) => ({ kind: "ConversationStateUpdateEvent", id, key, timestamp: "2026-11-20T10:00:00" });
  const talk = talkOf(rowsOf([change("s", "stats"), change("m", "approval_mode")]), false);
  assert.deepEqual(
    talk.map(({ row, line }) => row?.event.id ?? line.events.map(({ id }) => id)),
    ["m", ["s"]],
  );
  assert.equal(changesMode(change("s", "stats")), false);
});
