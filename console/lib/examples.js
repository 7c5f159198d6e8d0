// What a person may begin with: examples that fill in the start, of which each works as it stands.

/** A small public repository of GitHub’s. */
const REPOSITORY = "octocat/Hello-World";

/** For an agent without a model, which runs the lines that begin with `run: `. */
const COMMANDS = [
  { label: "See where it runs", message: "run: uname -a" },
  { label: "Write a file", message: "run: echo 'Hello from the sandbox' > hello.txt && cat hello.txt" },
  {
    label: "Clone a repository",
    message: "run: cd Hello-World && git log --oneline && cat README",
    repository: REPOSITORY,
  },
];

/** For an agent that thinks. */
const TASKS = [
  {
    label: "Look around",
    message: "Which languages and tools are installed here? Make a short table of them with their versions.",
  },
  {
    label: "Write a program",
    message: "Write a Python script that lists the ten largest files below a folder, with a test, and run both.",
  },
  {
    label: "Clone a repository",
    message: "Read this repository, and tell me in five lines what it is and how one tries it.",
    repository: REPOSITORY,
  },
];

/** The examples for an agent: [{label, message, repository}]. spec: its spec; undefined before that is known. */
export function examplesFor(spec) {
  if (!spec) return [];
  return isRuled(spec) ? COMMANDS : TASKS;
}

/** Whether the agent of a spec has no model, and so only runs lines that begin with `run: `. */
export const isRuled = (spec) => spec?.missing?.what === "model";

/** What was typed, with an example in it: the repository of another example goes. */
export function withExample(draft, { message, repository = "" }) {
  const kept = draft.repository === REPOSITORY ? "" : draft.repository;
  return { ...draft, message, repository: repository || kept };
}

/** The choices of an approval mode: [{value, words, detail}], first the default of the spec. modes: of the server. */
export function approvalsFor(spec, modes) {
  const own = modes.find(({ name }) => name === spec?.approval_mode),
    others = modes.filter((mode) => mode !== own);
  const first = {
    value: "",
    words: own ? `${own.words} (this agent’s default)` : "As this agent’s default says",
    detail: own?.detail ?? "",
  };
  return [first, ...others.map(({ name, words, detail }) => ({ value: name, words, detail }))];
}
