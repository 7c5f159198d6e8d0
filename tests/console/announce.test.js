// Where a notification of the page leads.
import assert from "node:assert/strict";
import test from "node:test";

const shown = [];
Object.assign(globalThis, {
  isSecureContext: true,
  focus: () => {},
  Notification: class {
    static permission = "granted";
    constructor(title, options) {
      shown.push(Object.assign(this, { title, ...options }));
    }
    close() {}
  },
});
const { announce, wish } = await import("../../console/lib/announce.js");
wish.set("on");

const item = (id, action) => ({
  conversation_id: id,
  action_id: action,
  conversation_title: "Tidy up",
  tool_name: "terminal",
});

test("a notification of one action leads to its event, and one of several to the inbox", () => {
  announce(item("one", "a-1"));
  shown.at(-1).onclick();
  assert.equal(location.hash, "#/conversations/one?event=a-1");

  announce(item("two", "a-2"));
  shown.at(-1).onclick();
  assert.equal(location.hash, "#/inbox");
});
