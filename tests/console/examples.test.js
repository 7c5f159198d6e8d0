// The examples of the first page, and the choices of an approval mode.
import assert from "node:assert/strict";
import test from "node:test";
import { approvalsFor, examplesFor, isRuled, withExample } from "../../console/lib/examples.js";
import { repositoryFault } from "../../console/lib/repository.js";

const RULED = { missing: { what: "model" }, approval_mode: "everything" },
  THINKING = { missing: null, approval_mode: null };

test("without a model each example is a line that the agent runs", () => {
  assert.ok(isRuled(RULED) && !isRuled(THINKING) && !isRuled(undefined));
  for (const { message } of examplesFor(RULED)) assert.match(message, /^run: \S/);
  for (const { message } of examplesFor(THINKING)) assert.doesNotMatch(message, /^run:/);
  assert.deepEqual(examplesFor(undefined), []);
});

test("there are three examples, and the last one clones a repository", () => {
  for (const spec of [RULED, THINKING]) {
    const examples = examplesFor(spec);
    assert.equal(examples.length, 3);
    assert.equal(examples[2].label, "Clone a repository");
    assert.equal(repositoryFault(examples[2].repository), "");
  }
});

test("an example fills in the message, keeps a repository that was typed, and takes that of another example away", () => {
  const [command, , clone] = examplesFor(RULED);
  const typed = withExample({ message: "mine", repository: "ada/shop", title: "T" }, command);
  assert.deepEqual(typed, { message: command.message, repository: "ada/shop", title: "T" });
  const cloned = withExample(typed, clone);
  assert.equal(cloned.repository, clone.repository);
  assert.equal(withExample(cloned, command).repository, "");
});

test("the default of the agent is named by what it does, and stands first", () => {
  const modes = [
    { name: "everything", words: "Ask everything", detail: "All waits." },
    { name: "nothing", words: "Ask nothing", detail: "Nothing waits." },
  ];
  const choices = approvalsFor(RULED, modes);
  assert.deepEqual(
    choices.map(({ value, words }) => [value, words]),
    [
      ["", "Ask everything (this agent’s default)"],
      ["nothing", "Ask nothing"],
    ],
  );
  assert.equal(choices[0].detail, "All waits.");
  assert.equal(approvalsFor(THINKING, modes)[0].words, "As this agent’s default says");
  assert.equal(approvalsFor(THINKING, modes).length, 3);
});
