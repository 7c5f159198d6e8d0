// The panel "Changes": the changed files of the working folder. A person can comment on lines, send all comments as one
// message, and download the changes as a patch.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, newKey, save } from "../lib/api.js";
import { html } from "../lib/html.js";
import { usePanel } from "../lib/panels.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { counted } from "../lib/words.js";
import { Empty, Failure, tell } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { ChangedFile, Counts } from "./changed_file.js";
import { kept, messageOf } from "./comments.js";
import { Push } from "./push.js";
import { patchOf } from "./review.js";
import { readList, useFiles, useViewed } from "./review_files.js";

/** Maximum number of files that are open at first. */
const MOST_OPEN = 20;

/** Starting points of the changes. "repository" needs a Git repository; the others compare records of the folder. */
const MOMENTS = { start: "Since the start", turn: "This turn", last: "Last turn", repository: "Since the last commit" };

/** Text if there are no changes. */
const NONE = {
  start: "The files are as they were at the start of the conversation.",
  turn: "The files are as they were before the last message.",
  last: "The turn before this one changed no file.",
  repository: "The files are as the repository has them.",
};

/** Text below an error: where the changes come from. */
const OF_REPOSITORY =
    "The agent server of the sandbox reads these changes from the Git repository in the working folder.",
  OF_RECORDS =
    "The folder of a process sandbox is recorded at the start, at the end of each turn, " +
    "and before a pending action.";

/** Return the query for a starting point; null if there is no such turn. Throws ApiError. */
async function between(id, moment, signal) {
  if (moment === "repository") return {};
  if (moment === "start") return { since: "start" };
  const query = { kind: "MessageEvent", source: "user", sort_order: "TIMESTAMP_DESC", limit: 2 };
  const { items } = await call("GET /api/conversations/{conversation_id}/events/search", {
    path: { conversation_id: id },
    query,
    signal,
  });
  const [newest, before] = items.map((event) => event.id);
  if (moment === "turn") return newest ? { since: newest } : null;
  return before ? { since: before, until: newest } : null;
}

/** Sends the comments. waiting: number of the pending actions, which a message would reject. */
function SendComments({ id, comments, waiting, onSent }) {
  const [isSending, setSending] = useState(false),
    request = useRef(null);
  const written = Object.values(comments).filter(({ comment }) => comment.trim());
  if (!written.length) return null;
  const send = async () => {
    const text = messageOf(written);
    if (request.current?.text !== text) request.current = { text, once: newKey() };
    const body = { role: "user", content: [{ type: "text", text }], run: true, rejects: false };
    setSending(true);
    try {
      await call("POST /api/conversations/{conversation_id}/events", {
        path: { conversation_id: id },
        body,
        once: request.current.once,
      });
      request.current = null;
      tell("The agent has your comments.");
      onSent();
    } catch (fault) {
      if (fault.status) request.current = null; // no response: the message may have arrived, so keep the key
      tell(fault.message, "failed");
    }
    setSending(false);
  };
  return html`<p class="send-comments">
    <button type="button" data-testid="send-comments" aria-busy=${isSending} disabled=${isSending || waiting > 0}
      onClick=${send}>Send ${counted(written.length, "comment")}</button>
    ${waiting > 0 && html`<span class="medium">Decide the pending action first: a message would reject it.</span>`}
  </p>`;
}

/** The changed files by folder. A press moves to the file. */
function ChangedTree({ list, files, isViewed }) {
  const folders = Map.groupBy(list, ({ path }) => path.slice(0, path.lastIndexOf("/") + 1));
  return html`<nav class="changed-tree" aria-label="Changed files" data-testid="changed-tree">
    ${[...folders].map(
      ([folder, some]) => html`<div key=${folder}>
        ${folder && html`<p class="muted"><${Text} text=${folder} /></p>`}
        <ul>${some.map(
          ({ path }) => html`<li key=${path} class=${isViewed(path, files[path]) ? "seen" : ""}>
            <button type="button" class="quiet" onClick=${() => goTo(path)}><${Text}
              text=${path.slice(folder.length)} /></button>
            ${files[path]?.counts && html`<${Counts} ...${files[path].counts} />`}
          </li>`,
        )}</ul>
      </div>`,
    )}
  </nav>`;
}

const heads = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll("details.changed")]);

function goTo(path) {
  const file = heads().find(({ dataset }) => dataset.path === path);
  file.querySelector("summary").focus({ preventScroll: true });
  file.scrollIntoView({ block: "start" });
}

/** Move to the next (1) or previous (-1) file, from the file with the focus. */
function step(by) {
  const all = heads(),
    present = all.findIndex((one) => one.closest(".changed-file").contains(document.activeElement));
  const next = all[present < 0 ? (by > 0 ? 0 : all.length - 1) : present + by];
  if (next) goTo(next.dataset.path);
}

/** Save all changes as a patch. Binary files and unreadable files are left out, and named in a notice. */
async function savePatch(id, list, files, read) {
  const out = [];
  const parts = [];
  for (const { path } of list) {
    const file = files[path] ?? (await read(path));
    if (file.error || file.isBinary) out.push(path);
    else parts.push(patchOf(path, file.before, file.after));
  }
  if (parts.join("")) save(new Blob(parts, { type: "text/x-patch" }), `${id}.patch`);
  const told = parts.join("")
    ? `git apply ${id}.patch makes this change elsewhere.`
    : "No line has changed, so there is no patch.";
  if (out.length)
    tell(`The patch lacks ${counted(out.length, "binary or unreadable file")}: ${out.join(", ")}. ${told}`, "failed");
  else tell(told);
}

/**
 * id: id of the conversation. waiting: number of its pending actions. status: its status. When it changes, the changed
 * files are read again.
 */
export default function Changes({ id, waiting, status, onDone, since = "start" }) {
  const [{ found, moments, error }, setState] = useState(/** @type {any} */ ({})),
    [moment, setMoment] = useState(Object.hasOwn(MOMENTS, since) ? since : "start");
  const [unrecorded, setUnrecorded] = useState("");
  const [comments, setComments] = useState(() => kept.get(id));
  const [isPushing, setPushing] = useState(false);
  const [isSplit, setSplit] = usePanel("split");
  const [isViewed, setViewed] = useViewed(id);
  const { files, read: readFile } = useFiles(id, found, moments);
  const reading = useRef(null);
  const read = () => {
    reading.current?.abort(); // an older request could end later, and overwrite the result
    const ending = (reading.current = new AbortController());
    const { signal } = ending;
    const show = async () => {
      const moments = await between(id, moment, signal);
      const found = moments ? await readList(id, moments, signal) : [];
      if (!signal.aborted) setState({ found, moments });
    };
    show().catch((fault) => {
      if (signal.aborted) return;
      if (fault.status !== 409 || moment !== "start" || unrecorded)
        return setState((before) => ({ ...before, error: fault }));
      setUnrecorded(fault.message); // without a record of the start, show the changes of the repository
      setMoment("repository");
    });
    return () => ending.abort();
  };
  const again = () => (setState({}), read());
  useEffect(read, [id, status, moment]);
  useEffect(() => kept.set(id, comments), [comments]);
  useShortcuts({
    "]": { label: "Next changed file", run: () => step(1) },
    "[": { label: "Previous changed file", run: () => step(-1) },
  });
  const setComment = (name, comment) =>
    setComments(({ [name]: _, ...others }) => (comment ? { ...others, [name]: comment } : others));
  const sent = () => (setComments({}), onDone());
  const choose = (event) => (setState({}), setMoment(event.target.value));
  const choice = html`<select aria-label="From when" data-testid="changes-since" value=${moment} onChange=${choose}>
    ${Object.entries(MOMENTS).map(([name, words]) => html`<option key=${name} value=${name}>${words}</option>`)}
  </select>`;
  if (error)
    return html`<section class="beside" aria-label="Changes" data-testid="changes-panel">
    <header><strong>Changes</strong>${choice}</header>
    ${
      error.status === 409
        ? html`<${Empty} title="No changes to show"><${Text} prose text=${error.message} />.<//>`
        : html`<${Failure} error=${error} again=${again} />`
    }
    <p class="muted">${moment === "repository" ? error.status !== 409 && OF_REPOSITORY : OF_RECORDS}
      ${unrecorded && moment === "repository" && ` ${unrecorded}`}</p>
  </section>`;
  const total = { added: 0, removed: 0 };
  for (const { path } of found ?? []) {
    total.added += files[path]?.counts?.added ?? 0;
    total.removed += files[path]?.counts?.removed ?? 0;
  }
  const seen = found?.filter(({ path }) => isViewed(path, files[path])).length;
  return html`<section class="beside review" aria-label="Changes" data-testid="changes-panel">
    <header><strong>${found ? counted(found.length, "changed file") : "Changes"}</strong>
      ${found?.length > 0 && html`<${Counts} ...${total} />`}
      ${seen > 0 && html`<span class="seen-number">${seen} of ${found.length} viewed</span>`}
      ${choice}
      <button type="button" class="quiet" data-testid="split" aria-pressed=${isSplit}
        onClick=${() => setSplit(!isSplit)}>Two columns</button>
      ${
        found?.length > 0 &&
        html`<button type="button" class="quiet" data-testid="patch"
        onClick=${() => savePatch(id, found, files, readFile)}>Download patch</button>`
      }
      ${
        found &&
        may("write") &&
        may("approve") &&
        html`<button type="button" class="quiet" data-testid="push" disabled=${status === "running"}
        title=${
          status === "running"
            ? "The agent is running: its files still change"
            : "As a branch of the repository's remote, with a pull request if its host has one"
        }
        onClick=${() => setPushing(true)}>Push branch…</button>`
      }
      <button type="button" class="quiet" data-testid="read-changes" onClick=${read}>Refresh</button></header>
    ${unrecorded && moment === "repository" && html`<p class="muted">${unrecorded}</p>`}
    ${!found && html`<p aria-busy="true">Loading</p>`}
    ${found?.length === 0 && html`<${Empty} title="No changes">${NONE[moment]}<//>`}
    ${
      found?.length > 0 &&
      html`<div class="columns">
      ${found.length > 1 && html`<${ChangedTree} list=${found} files=${files} isViewed=${isViewed} />`}
      <div class="changed-files">${found.map(
        (
          change,
          index,
        ) => html`<${ChangedFile} key=${`${moment} ${change.path}`} change=${change} file=${files[change.path]}
          read=${() => readFile(change.path)}
          isOpen=${index < MOST_OPEN} isViewed=${isViewed(change.path, files[change.path])}
            setViewed=${(is) => setViewed(change.path, files[change.path], is)}
          isSplit=${isSplit} comments=${comments} setComment=${setComment} />`,
      )}</div>
    </div>`
    }
    <${SendComments} id=${id} comments=${comments} waiting=${waiting} onSent=${sent} />
    ${isPushing && html`<${Push} id=${id} onClose=${() => setPushing(false)} />`}
  </section>`;
}
