// The start of a conversation: what was typed, and the start task until the agent is there and has its first message.
import { ApiError, call, newKey } from "./api.js";
import { repositoryFault } from "./repository.js";
import { ours } from "./root.js";
import { Store } from "./store.js";

/** What the browser's session keeps: what was typed, and the start that goes on. */
const DRAFT = ours("agent-server-start"),
  UNDER_WAY = ours("agent-server-start-under-way");

/**
 * Milliseconds between two polls of a start task; most looks for one whose request is not over yet, or is not repeated.
 */
const POLL = 400,
  MOST_LOOKS = 150,
  MOST_LOOKS_ALONE = 25;

/** Most files of one start: each is a request of its own. */
export const MOST_FILES = 500;

/** What is left out of a folder: what a tool makes again, and a repository's own files. */
const LEFT_OUT = /(^|\/)(\.git|node_modules|\.venv|__pycache__)\//;

/** Names of archives, which are unpacked where they are uploaded. */
const ARCHIVE = /\.(zip|tgz|tar(\.(gz|bz2|xz|zst))?)$/i;

export const BLANK = {
  spec: "",
  title: "",
  message: "",
  mode: "",
  tags: "",
  repository: "",
  branch: "",
  model: "",
  stays: false,
};

/** Draft of the form. It survives a reload and ends when a conversation has begun with it. */
export const draft = new Store({ ...BLANK, ...kept(DRAFT) });

draft.subscribe((value) => keep(DRAFT, value));

/**
 * Files for the working folder: [{file, path}]; secrets: [{name, value}]. The browser keeps neither when the page is
 * loaded again.
 */
export const files = new Store([]),
  secrets = new Store([]);

/**
 * The present start: {asked, task, step, sent, error}, or null. It goes on when the page is loaded again.
 *
 * asked: {body, once, model, message, files, hasSecrets}, files their number; body is without the secrets. task: null
 * before the server's response. step: what is being done, or what failed: "start", or one of STEPS. sent: files that
 * are there.
 */
export const start = new Store(kept(UNDER_WAY) && { task: null, error: null, ...kept(UNDER_WAY) });

start.subscribe((value) => {
  const isOver = !value || value.task?.status === "ERROR" || (value.error && !value.task);
  keep(UNDER_WAY, isOver ? null : { asked: value.asked, step: value.step });
});

// other files may have been chosen for a second try
files.subscribe(() => start.get() && start.set({ ...start.get(), sent: 0 }));

function kept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

function keep(name, value) {
  try {
    value ? sessionStorage.setItem(name, JSON.stringify(value)) : sessionStorage.removeItem(name);
  } catch {
    // the draft is too long for the browser's storage: the page keeps it while it stays open
  }
}

/** A new id; `crypto.randomUUID` is missing where the page came without TLS. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const content = (message) => [{ type: "text", text: message }];

/** The chosen files with their paths in the working folder: of a folder, what is in it. */
export function placed(chosen) {
  const all = [...chosen].map((file) => ({ file, path: file.webkitRelativePath.replace(/^[^/]*\//, "") || file.name }));
  return all.filter(({ path }) => !LEFT_OUT.test(path));
}

/** Quote a text as one word of a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const typedSecrets = () =>
  secrets
    .get()
    .map(({ name, value }) => ({ name: name.trim(), value }))
    .filter(({ name, value }) => name || value);

/** Errors of the form, in words by field. The server checks the rest. */
export function faultsOf({ repository, branch }) {
  const faults = {},
    typed = typedSecrets();
  const fault = repositoryFault(repository.trim());
  if (fault) faults.repository = fault;
  if (branch.trim() && !repository.trim()) faults.repository = "Name the repository that has this branch.";
  if (files.get().length > MOST_FILES) faults.files = `At most ${MOST_FILES} files: put more of them into an archive.`;
  if (typed.some(({ name, value }) => !name || !value)) faults.secrets = "Give each secret a name and a value.";
  else if (new Set(typed.map(({ name }) => name)).size < typed.length)
    faults.secrets = "Two secrets have the same name.";
  return faults;
}

/** Members of a start request, and the fields that they come from. */
const FIELDS = {
  title: "title",
  tags: "tags",
  sandbox_spec_id: "spec",
  selected_repository: "repository",
  selected_branch: "repository",
  secrets: "secrets",
  initial_message: "message",
  approval_mode: "mode",
};

/** What the server says of single fields of a start, in words by field. */
export function faultsIn(error) {
  const faults = {},
    detail = Array.isArray(error?.body?.detail) ? error.body.detail : [];
  for (const { loc: [, member, ...rest] = [], msg } of detail) {
    const field = FIELDS[member];
    if (field)
      faults[field] ??= [rest.filter((part) => typeof part === "string").join(" "), msg].filter(Boolean).join(": ");
  }
  return faults;
}

/** The tags of "team=core, issue=12", by name; undefined: none. What is wrong with one, the server says. */
function tagsOf(text) {
  const pairs = text
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean)
    .map((one) => one.split(/=(.*)/s, 2).map((part) => part.trim()));
  return pairs.length ? Object.fromEntries(pairs.map(([name, value = ""]) => [name, value])) : undefined;
}

/** Characters of a title that is taken from the message. */
const MOST_TITLE = 80;

/** The title that a message stands for: its first line, of a command without the rule's word. */
function titleOf(message) {
  const letters = [...message.trim().split("\n")[0].replace(/^run:/, "").trim()];
  return (
    (letters.length > MOST_TITLE ? `${letters.slice(0, MOST_TITLE - 1).join("")}…` : letters.join("")) || undefined
  );
}

/** Take what was typed for the present start, which `finish` sends. failed: id of a start task that this one follows
 * without its repository. */
export function prepare(failed = undefined) {
  const { spec, title, message, mode, tags, repository, branch, model, stays } = draft.get();
  const body = {
    conversation_id: newId(),
    sandbox_spec_id: spec || undefined,
    title: title.trim() || titleOf(message),
    tags: tagsOf(tags),
    selected_repository: repository.trim() || undefined,
    selected_branch: branch.trim() || undefined,
    goes_on_when_allowed: stays ? false : undefined,
    approval_mode: mode || undefined,
    failed_start_id: failed,
  };
  const number = files.get().length;
  if (message.trim() && !model && !number) body.initial_message = { content: content(message) };
  const asked = { body, once: newKey(), model, message, files: number, hasSecrets: typedSecrets().length > 0 };
  start.set({ asked, task: null, step: "start", sent: 0, error: null });
}

/**
 * Start a conversation with what was typed. Resolves to its id and what was not done, or to null after a failure, which
 * `start` tells.
 */
export async function begin(signal, failed = undefined) {
  prepare(failed);
  return finish(signal);
}

/** The start task of a request, which is sent again where its response got lost, and has one effect. */
async function created({ body, once, hasSecrets }, signal) {
  const typed = Object.fromEntries(typedSecrets().map(({ name, value }) => [name, value]));
  if (hasSecrets && !Object.keys(typed).length) return alone(body.conversation_id, signal);
  for (let looks = 0; ; looks++) {
    try {
      return await call("POST /api/v1/app-conversations", {
        body: hasSecrets ? { ...body, secrets: typed } : body,
        once,
      });
    } catch (error) {
      const found = await known(body.conversation_id);
      if (found) return found;
      const isUnderWay = error.status === 409 && looks < MOST_LOOKS; // this page sent it before it was loaded again
      if (!isUnderWay) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (signal.aborted) throw signal.reason;
  }
}

/** The start task of a request that is not repeated: its secrets are gone with the page that sent it. */
async function alone(id, signal) {
  for (let looks = 0; looks < MOST_LOOKS_ALONE; looks++) {
    const found = await known(id);
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (signal.aborted) throw signal.reason;
  }
  throw new ApiError(
    0,
    "The page was loaded again before the server had this start, and it keeps no secrets: enter them again.",
  );
}

/** The start task of a conversation, or undefined. */
async function known(id) {
  const query = { conversation_id__eq: id, limit: 1 };
  const { items } = await call("GET /api/v1/app-conversations/start-tasks/search", { query }).catch(() => ({
    items: [],
  }));
  return items[0];
}

/** Go on with a start: wait for the agent, then do what comes after. Resolves as `begin` does. */
export async function finish(signal) {
  const present = start.get();
  try {
    if (!present.task) start.set({ ...present, task: await created(present.asked, signal), error: null });
    const task = await watched(start.get().task, signal);
    if (task.status !== "READY") return null;
    await afterwards(present.asked, task, present.step, signal);
    start.set(null);
    draft.set({ ...BLANK, spec: draft.get().spec, mode: draft.get().mode, stays: draft.get().stays });
    files.set([]);
    secrets.set([]);
    return { id: task.app_conversation_id ?? task.request.conversation_id, notDone: task.detail };
  } catch (error) {
    if (!signal.aborted) start.set({ ...start.get(), error });
    return null;
  }
}

/** End the present start, whose follower then sees its end. Throws ApiError; 409: it has just become READY. */
export async function end() {
  const path = { start_task_id: start.get().task.id };
  await call("DELETE /api/v1/app-conversations/start-tasks/{start_task_id}", { path });
}

/**
 * What is done once the agent is ready, in this order: no message may come before the files that it speaks of. Each:
 * whether it is wanted, and what does it.
 */
const STEPS = {
  model: [
    ({ model }) => model,
    ({ model }, path) =>
      call("POST /api/conversations/{conversation_id}/switch_profile", { path, body: { profile_name: model } }),
  ],
  files: [(asked) => asked.files, upload],
  message: [({ message, body }) => message.trim() && !body.initial_message, sendMessage],
};

async function afterwards(asked, task, from, signal) {
  const path = { conversation_id: task.app_conversation_id },
    names = Object.keys(STEPS);
  for (const name of names.slice(Math.max(0, names.indexOf(from)))) {
    const [isWanted, take] = STEPS[name];
    if (!isWanted(asked)) continue;
    start.set({ ...start.get(), task, step: name, error: null });
    await take(asked, path, signal);
    if (signal.aborted) throw signal.reason;
  }
}

async function sendMessage({ message, once }, path) {
  const body = { content: content(message) };
  await call("POST /api/v1/app-conversations/{conversation_id}/send-message", { path, body, once: `${once}-message` });
}

/** Upload one file after the other. A second try continues with the file that failed. */
async function upload(_asked, path, signal) {
  const chosen = files.get();
  if (!chosen.length)
    throw new ApiError(0, "The page was loaded again, and keeps no files: choose them again, then try again.");
  for (let sent = start.get().sent ?? 0; sent < chosen.length; sent++) {
    start.set({ ...start.get(), sent });
    const { file, path: name } = chosen[sent];
    await call("POST /api/conversations/{conversation_id}/file/upload", {
      path,
      query: { path: name },
      file,
      isLong: true,
      signal,
    });
    if (ARCHIVE.test(name) && !file.webkitRelativePath) await unpack(name, path, signal);
  }
}

async function unpack(name, path, signal) {
  const archive = quoted(`./${name}`),
    zip = `if command -v unzip; then unzip -qo ${archive}; else python3 -m zipfile -e ${archive} .; fi`;
  const command = `{ ${/\.zip$/i.test(name) ? zip : `tar -xf ${archive}`}; } >/dev/null && rm -- ${archive}`;
  const options = { path, body: { command }, isLong: true, signal };
  const { exit_code: code, stderr } = await call(
    "POST /api/conversations/{conversation_id}/bash/execute_bash_command",
    options,
  );
  const lines = (stderr ?? "").trim().split("\n"),
    said = lines.at(lines[0].startsWith("Traceback") ? -1 : 0);
  if (code !== 0) throw new ApiError(0, `${name} cannot be unpacked: ${said || `exit code ${code}`}`);
}

async function watched(first, signal) {
  let task = first;
  while (task.status !== "READY" && task.status !== "ERROR") {
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (signal.aborted) throw signal.reason;
    let found;
    try {
      [found] = await call("GET /api/v1/app-conversations/start-tasks", { query: { ids: task.id }, signal });
    } catch (error) {
      if (error.status !== 0 && error.status < 500) throw error;
      continue; // the server is away for a moment: the start goes on without this page
    }
    if (!found)
      throw new ApiError(
        404,
        "The server has forgotten this start. Its conversation may be in the list of conversations.",
      );
    task = found;
    start.set({ ...start.get(), task });
  }
  return task;
}
