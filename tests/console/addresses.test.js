// Addresses: of operations, of views, of links in Markdown, and the filters that they carry.
import assert from "node:assert/strict";
import test from "node:test";
import { address, newKey } from "../../console/lib/api.js";
import { byAge } from "../../console/lib/pending.js";
import { ROOT } from "../../console/lib/root.js";
import { href } from "../../console/lib/router.js";
import { followable } from "../../console/parts/markdown.js";
import { fits, isFiltered, riskOf } from "../../console/parts/prompt_filters.js";

test("an operation's address encodes its path, repeats lists and leaves out what is empty", () => {
  const found = address("GET /api/v1/things/{id}/logs", {
    path: { id: "a/b c" },
    query: { kind: ["x", "y"], text: "", from: null, limit: 0 },
  });
  assert.equal(found, `${ROOT}api/v1/things/a%2Fb%20c/logs?kind=x&kind=y&limit=0`);
  assert.equal(address("GET /ready"), `${ROOT}ready`);
});

test("keys of requests are 32 hexadecimal digits and differ", () => {
  assert.match(newKey(), /^[0-9a-f]{32}$/);
  assert.notEqual(newKey(), newKey());
});

test("the address of a view encodes its id", () => {
  assert.match(href("conversations", "a/b"), /^#\/conversations\/a%2Fb/);
});

test("a link may lead elsewhere over http or by mail, and not into this server", () => {
  for (const one of ["https://example.org/a", "http://example.org:81/", "mailto:a@example.org"]) {
    assert.equal(followable(one)?.href, one);
  }
  const refused = ["javascript:alert(1)", "/console/", "https://agents.example/x", "http://agents.example./"];
  for (const one of [...refused, "https://me@example.org/", `https://${"a".repeat(270)}/`]) {
    assert.equal(followable(one), null, one);
  }
});

test("an item passes the filters of its risk, its tags and its text", () => {
  const item = { tool_name: "bash", tags: { team: "red" }, arguments: { command: "make Test" } };
  assert.ok(fits(item, { security_risk: "UNKNOWN", tag: "team=red", text: "MAKE test" }));
  assert.ok(!fits(item, { security_risk: "HIGH" }));
  assert.ok(!fits(item, { text: "other" }));
  assert.deepEqual([isFiltered({ group: "tool_name" }), isFiltered({ text: "a" })], [false, true]);
});

test("the risk of an item is the greater one, and its effects are filters", () => {
  const effects = [{ effect: "deletes", words: "Deletes", because: "rm a" }];
  const item = { security_risk: "LOW", risk: "HIGH", seen: { risk: "HIGH", effects } };
  assert.equal(riskOf(item), "HIGH");
  assert.equal(riskOf({ security_risk: "LOW" }), "LOW");
  assert.ok(fits(item, { security_risk: "HIGH", effect: "deletes" }));
  assert.ok(!fits(item, { effect: "network" }));
  assert.ok(!fits({ security_risk: "LOW" }, { effect: "deletes" }));
});

test("items are in the order in which they began to wait", () => {
  const items = [{ since: "2" }, { since: "1" }, { since: "3" }];
  assert.deepEqual(
    items.sort(byAge).map(({ since }) => since),
    ["1", "2", "3"],
  );
});
