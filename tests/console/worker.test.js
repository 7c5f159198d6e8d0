// The worker that rings a device: what it shows, and what a press of a button sends.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

const CODE = readFileSync(new URL("../../console/worker.js", import.meta.url), "utf8");

const RING = {
  title: "Tidy up",
  text: "LOW · terminal · ls",
  tag: "a-tag",
  place: "#/conversations/one",
  quiet: false,
  token: "a-token",
  decides: true,
};

/** A worker below a proxy's path. answers: what the server responds with; pages: windows that are open. */
function started({ answers = () => Promise.reject(new TypeError("no network")), pages = [] } = {}) {
  const handlers = {},
    shown = [],
    sent = [],
    opened = [];
  const self = {
    addEventListener: (name, handle) => (handlers[name] = handle),
    registration: {
      scope: "https://example.org/agents/console/",
      showNotification: async (title, options) => shown.push({ title, ...options }),
    },
    clients: { matchAll: async () => pages, openWindow: async (address) => opened.push(address) },
  };
  const fetch = (address, options) => {
    sent.push([address, options.method, String(options.body)]);
    return answers();
  };
  runInNewContext(CODE, { self, fetch, URL, URLSearchParams });
  const fire = async (name, members) => {
    let done;
    handlers[name]({ ...members, waitUntil: (promise) => (done = promise) });
    await done;
  };
  const press = (action, ring = RING) =>
    fire("notificationclick", { action, notification: { data: ring, close() {} } });
  return { fire, press, shown, sent, opened };
}

const answer = (status, told) => () => Promise.resolve({ status, ok: status < 300, json: async () => told });
const buttons = ({ actions }) => Array.from(actions, ({ title }) => title);

test("what waits is shown with the buttons that decide it, and what has ended without a sound", async () => {
  const worker = started();
  for (const ring of [RING, { ...RING, decides: false }, { ...RING, quiet: true, decides: false, title: "Approved" }])
    await worker.fire("push", { data: { json: () => ring } });

  assert.deepEqual(worker.shown.map(buttons), [["Approve", "Reject"], ["Open"], []]);
  assert.deepEqual(
    worker.shown.map(({ silent, renotify, tag }) => [silent, renotify, tag]),
    [
      [false, true, "a-tag"],
      [false, true, "a-tag"],
      [true, false, "a-tag"],
    ],
  );
});

test("a button sends its decision with the token, below the path of a proxy, and no box that is checked", async () => {
  const worker = started({ answers: answer(200, { title: "Approved", detail: "The action is approved." }) });
  await worker.press("approve");

  assert.deepEqual(worker.sent, [["https://example.org/agents/approvals/a-token", "POST", "decision=approve"]]);
  assert.deepEqual([worker.shown[0].title, worker.shown[0].body], ["Approved", RING.text]);
  assert.equal(worker.shown[0].data.token, undefined);
});

test("a button that is late says who was faster, and decides no more", async () => {
  const detail = "This action was rejected at 10:00 with the key ada.";
  const worker = started({ answers: answer(409, { title: "Nothing to decide", detail }) });
  await worker.press("reject");

  assert.deepEqual([worker.shown[0].title, worker.shown[0].body], ["Nothing to decide", detail]);
  assert.deepEqual(buttons(worker.shown[0]), []);
});

test("a decision that the server did not take can be sent again", async () => {
  for (const answers of [undefined, answer(503, { title: "Try again shortly", detail: "The store does not answer" })]) {
    const worker = started({ answers });
    await worker.press("approve");

    assert.deepEqual(buttons(worker.shown[0]), ["Approve", "Reject"]);
    assert.equal(worker.shown[0].silent, false);
    assert.equal(worker.shown[0].data.token, "a-token");
  }
});

test("a press beside the buttons shows what waits in an open console, else on the page that needs no key", async () => {
  const gone = [];
  const page = { focus: async () => gone.push("focus"), navigate: async (address) => gone.push(address) };
  await started({ pages: [page] }).press("");
  assert.deepEqual(gone, ["focus", "https://example.org/agents/console/#/conversations/one"]);

  const alone = started();
  await alone.press("");
  await alone.press("open", { ...RING, token: undefined });
  assert.deepEqual(alone.opened, [
    "https://example.org/agents/approvals/a-token",
    "https://example.org/agents/console/#/conversations/one",
  ]);
  assert.deepEqual(alone.sent, []);
});
