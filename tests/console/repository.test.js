// The rule for the repository of a start, by the table that the server's rule is tested against too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { CLONED, repositoryFault } from "../../console/lib/repository.js";

const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const { accepted, refused } = read("../core/repositories.json");

test("what Git can clone is accepted", () => {
  for (const text of accepted) assert.equal(repositoryFault(text), "", text);
});

test("what can be no repository is refused with what to write, and an empty field is none", () => {
  for (const text of refused.filter(Boolean)) assert.match(repositoryFault(text), /^Write owner\/name or a URL/, text);
  assert.equal(repositoryFault(""), "");
});

test("the rule is the one that the server publishes", () => {
  const { schemas } = read("../../docs/openapi.json").components;
  const { pattern } = schemas.AppConversationStartRequest.properties.selected_repository;
  assert.equal(new RegExp(pattern).source, CLONED.source);
});
