// What has changed in the working folder, file by file; lines can be commented, and the comments go as one message.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, newKey } from "../lib/api.js";
import { html } from "../lib/html.js";
import { may } from "../lib/session.js";
import { counted } from "../lib/words.js";
import { changes } from "../parts/diff.js";
import { Empty, Failure, tell } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { kept, key, messageOf, OF_AGENT } from "./comments.js";

/** Equal lines that are shown around a change; rows that are shown at once, and more with each press; characters of a line. */
const AROUND = 3,
  MOST_ROWS = 600,
  MOST_LINE = 2_000;

/** Characters of a file in which a zero byte, or what is no UTF-8, says that it is no text. */
const LOOKED = 8_000;

const CHANGES = "GET /api/v1/app-conversations/{conversation_id}/git/changes",
  DIFF = "GET /api/v1/app-conversations/{conversation_id}/git/diff";

/** From when changes are shown. The agent server reads a repository; the others are of the folder, which needs none. */
const MOMENTS = { start: "Since the start", turn: "This turn", last: "Last turn", repository: "Since the last commit" };

/** What stands in the place of changes that there are none of. */
const NONE = {
  start: "The files are as they were at the start of the conversation.",
  turn: "The files are as they were before the last message.",
  last: "The turn before this one changed no file.",
  repository: "The files are as the repository has them.",
};

/** The query that a moment stands for; null: there is no such turn. Throws ApiError. */
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

const STATUSES = { ADDED: "Added", DELETED: "Deleted", UPDATED: "Changed", MOVED: "Moved" };

/** The rows of a diff: {sign, text, old, fresh}, with {gap} for equal lines that are far from a change. */
function rowsOf(before, after) {
  let old = 0,
    fresh = 0;
  const all = changes(before, after).map(([sign, text]) => {
    old += Number(sign !== "+");
    fresh += Number(sign !== "-");
    return { sign, text, old, fresh };
  });
  const isNear = new Uint8Array(all.length);
  all.forEach(({ sign }, index) => {
    if (sign !== " ") isNear.fill(1, Math.max(0, index - AROUND), index + AROUND + 1);
  });
  const rows = [];
  all.forEach((row, index) => {
    if (isNear[index]) rows.push(row);
    else if (rows.at(-1)?.gap) rows.at(-1).gap += 1;
    else rows.push({ gap: 1 });
  });
  return rows;
}

function Comment({ text, set, drop }) {
  const field = useRef(null);
  useEffect(() => void (text || field.current.focus()), []);
  return html`<div class="comment">
    <textarea ref=${field} rows="2" data-testid="comment" aria-label="Comment on this line" placeholder="What should the agent change here?" value=${text}
      onInput=${(event) => set(event.target.value)}></textarea>
    <button type="button" class="quiet" data-testid="drop-comment" onClick=${drop}>Remove</button>
  </div>`;
}

/** One changed file's lines. A diff is one stop of Tab: the arrow keys move among its lines. */
function Lines({ path, before, after, comments, setComment }) {
  const rows = useMemo(() => rowsOf(before, after), [before, after]);
  const [most, setMost] = useState(MOST_ROWS),
    [stop, setStop] = useState(null);
  const first = rows.findIndex(({ sign }) => sign === "+" || sign === "-"),
    present = rows[stop]?.sign ? stop : first; // the rows may be others than those in which it was chosen
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.localName !== "button") return;
    const buttons = [...event.currentTarget.querySelectorAll(".number")];
    const next = buttons[buttons.indexOf(event.target) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
  const line = (row, index) => {
    if (row.gap) return html`<p key=${index} class="gap">${counted(row.gap, "unchanged line")}</p>`;
    const name = key(path, row),
      number = row.sign === "-" ? row.old : row.fresh,
      comment = comments[name];
    const shown = row.text.length > MOST_LINE ? `${row.text.slice(0, MOST_LINE)} …` : row.text;
    const what = `${{ "-": "removed line", "+": "added line", " ": "line" }[row.sign]} ${number}`;
    return html`<div key=${index} class=${`line ${{ "-": "removed", "+": "added", " ": "same" }[row.sign]}`}>
      ${
        may("write")
          ? html`<button type="button" class="number" data-testid="comment-line" tabindex=${index === present ? 0 : -1} aria-label=${`Comment on ${what}`} title="Comment on this line"
            onFocus=${() => setStop(index)} onClick=${() => comment === undefined && setComment(name, { path, ...row, comment: "" })}>${number}</button>`
          : html`<span class="number">${number}</span>`
      }
      <code><span class="sign">${row.sign}</span><${Text} text=${shown} /></code>
      ${comment && html`<${Comment} text=${comment.comment} set=${(text) => setComment(name, { ...comment, comment: text })} drop=${() => setComment(name)} />`}
    </div>`;
  };
  if (first < 0)
    return html`<p class="muted">No line differs: what changed is in the ends of lines, or in the rights of the file.</p>`;
  return html`<div class="lines" onKeyDown=${move}>
    ${rows.slice(0, most).map(line)}
    ${rows.length > most && html`<p class="gap"><button type="button" class="quiet" onClick=${() => setMost(most + MOST_ROWS)}>Show more (${counted(rows.length - most, "line")})</button></p>`}
  </div>`;
}

/** A changed file, which is read when it is opened, and again with each reading of the list. */
function File({ id, change, moments, number: reading, isFirst, comments, setComment }) {
  const [isOpen, setOpen] = useState(isFirst),
    [found, setFound] = useState(null),
    [error, setError] = useState(null);
  const read = () => {
    setError(null);
    const query = { path: change.path, ...moments };
    call(DIFF, { path: { conversation_id: id }, query }).then(setFound, setError);
  };
  useEffect(() => void (isOpen && read()), [isOpen, reading]);
  const isBinary = [found?.original, found?.modified].some((text) => /[\0\ufffd]/.test(text?.slice(0, LOOKED) ?? ""));
  const number = Object.values(comments).filter(({ path, comment }) => path === change.path && comment.trim()).length;
  let shown = html`<p aria-busy="true">Loading</p>`;
  if (error) shown = html`<${Failure} error=${error} again=${read} />`;
  else if (isBinary) shown = html`<p class="muted">This file is not text.</p>`;
  else if (found)
    shown = html`<${Lines} path=${change.path} before=${found.original ?? ""} after=${found.modified ?? ""} comments=${comments} setComment=${setComment} />`;
  return html`<details class="changed" data-testid="changed" open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}>
    <summary><code><${Text} text=${change.path} /></code> <span class=${`status ${change.status.toLowerCase()}`}>${STATUSES[change.status] ?? "Changed"}</span>
      ${number > 0 && html` <span class="muted">${counted(number, "comment")}</span>`}</summary>
    ${isOpen && shown}
  </details>`;
}

/** Sends the comments. waiting: number of the pending actions, which a message would reject. */
function Send({ id, comments, waiting, onSent }) {
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
      if (fault.status) request.current = null; // without a response it may have come: the same key sends it once
      tell(fault.message, "failed");
    }
    setSending(false);
  };
  return html`<p class="send-comments">
    <button type="button" data-testid="send-comments" aria-busy=${isSending} disabled=${isSending || waiting > 0} onClick=${send}>Send ${counted(written.length, "comment")}</button>
    ${waiting > 0 && html`<span class="medium">Decide the pending action first: a message would reject it.</span>`}
  </p>`;
}

/** id: of the conversation. waiting: the number of its pending actions. status: of the conversation, which is read again when it changes. */
export default function Changes({ id, waiting, status, onDone }) {
  const [{ found, moments, error, number }, setState] = useState(/** @type {any} */ ({ number: 0 })),
    [moment, setMoment] = useState("start");
  const [unrecorded, setUnrecorded] = useState("");
  const [comments, setComments] = useState(() => kept.get(id));
  const reading = useRef(null);
  const read = () => {
    reading.current?.abort(); // it may be of another moment, and end later
    const ending = (reading.current = new AbortController());
    const { signal } = ending;
    const show = async () => {
      const moments = await between(id, moment, signal);
      const all = moments
        ? await call(CHANGES, { path: { conversation_id: id }, query: { path: ".", ...moments }, signal })
        : [];
      const found = all.filter(({ path }) => !path.startsWith(`${OF_AGENT}/`));
      if (!signal.aborted) setState((before) => ({ found, moments, number: before.number + 1 }));
    };
    show().catch((fault) => {
      if (signal.aborted) return;
      if (fault.status !== 409 || moment !== "start" || unrecorded)
        return setState((before) => ({ ...before, error: fault }));
      setUnrecorded(fault.message); // a repository may tell more than the folder
      setMoment("repository");
    });
    return () => ending.abort();
  };
  const again = () => (setState(({ number }) => ({ number })), read());
  useEffect(read, [id, status, moment]);
  useEffect(() => kept.set(id, comments), [comments]);
  const setComment = (name, comment) =>
    setComments(({ [name]: _, ...others }) => (comment ? { ...others, [name]: comment } : others));
  const sent = () => (setComments({}), onDone());
  const choose = (event) => (setState(({ number }) => ({ number })), setMoment(event.target.value));
  const choice = html`<select aria-label="From when" data-testid="changes-since" value=${moment} onChange=${choose}>
    ${Object.entries(MOMENTS).map(([name, words]) => html`<option key=${name} value=${name}>${words}</option>`)}
  </select>`;
  if (error)
    return html`<section class="beside" aria-label="Changes" data-testid="changes-panel">
    <header><strong>Changes</strong>${choice}</header>
    ${error.status === 409 ? html`<${Empty} title="No changes to show"><${Text} prose text=${error.message} />.<//>` : html`<${Failure} error=${error} again=${again} />`}
    <p class="muted">${
      moment === "repository"
        ? error.status !== 409 &&
          "These changes are those of a Git repository in the working folder, as the agent server of its sandbox reads them."
        : "The folder of a sandbox that is a process is recorded at the start, at the end of each turn and before an action that waits."
    }
      ${unrecorded && moment === "repository" && ` ${unrecorded}`}</p>
  </section>`;
  return html`<section class="beside" aria-label="Changes" data-testid="changes-panel">
    <header><strong>${found ? counted(found.length, "changed file") : "Changes"}</strong>
      ${choice}
      <button type="button" class="quiet" data-testid="read-changes" onClick=${read}>Refresh</button></header>
    ${unrecorded && moment === "repository" && html`<p class="muted">${unrecorded}</p>`}
    ${!found && html`<p aria-busy="true">Loading</p>`}
    ${found?.length === 0 && html`<${Empty} title="No changes">${NONE[moment]}<//>`}
    ${found?.map((change, index) => html`<${File} key=${`${moment} ${change.path}`} id=${id} change=${change} moments=${moments} number=${number} isFirst=${index === 0} comments=${comments} setComment=${setComment} />`)}
    <${Send} id=${id} comments=${comments} waiting=${waiting} onSent=${sent} />
  </section>`;
}
