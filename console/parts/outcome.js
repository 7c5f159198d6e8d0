// How a pending action ended, in words.
import { html } from "../lib/html.js";
import { href } from "../lib/router.js";
import { may, me } from "../lib/session.js";
import { beginning } from "../lib/visible.js";
import { exact } from "../lib/words.js";
import { Text } from "./text.js";
import { Clock, Time } from "./time.js";

const DONE = {
  approve: "Approved",
  reject: "Rejected",
  edit: "Approved with changes",
  unapproved: "Continued without approval",
  deleted: "Deleted",
  withdrawn: "Withdrawn",
};

/** Of an agent outside of sandboxes that has ended, or was stopped. */
const WITHDRAWN = "Withdrawn: its agent asks no more";

/** Decisions that nobody has taken, by their verb, or with the kind of their actor. */
const HOW = {
  withdrawn: WITHDRAWN,
  "reject expiry": "Rejected: nobody decided in time",
  "unapproved terminal": "Ran although nobody allowed it",
};

/** Who decided, if it was not a key. */
const ACTORS = {
  rule: () => "a rule",
  link: (name) => `${name}, by a link`,
  terminal: (name) => `${name}, at the terminal`,
  expiry: () => "its deadline",
  agent: () => "the agent",
  server: () => "the server",
  lease: () => "its agent's silence",
};

/** Whether a name is that of all who use a server that asks for no key: there it is the reader. */
export const isOpen = (name) => name === "anyone" && me.get()?.name === name;

function actorOf({ actor }) {
  return ACTORS[actor?.kind]?.(actor.name) ?? (actor?.name || "somebody");
}

/** Who decided: "you", where it was the reader. isFirst: it begins a sentence. */
export function whoOf(decision, isFirst = false) {
  const { kind, name } = decision.actor;
  if (["key", "person"].includes(kind) && name === me.get()?.name) return isFirst ? "You" : "you";
  const words = actorOf(decision);
  return isFirst && kind in ACTORS ? words.charAt(0).toUpperCase() + words.slice(1) : words;
}

/**
 * Who decided an action, in the head of its row; for administrators with the way to the audit. id: of the conversation.
 */
export function By({ decision, id }) {
  const { actor, decision: verb, time } = decision,
    isRefused = ["reject", "unapproved", "withdrawn"].includes(verb);
  const words =
    HOW[`${verb} ${actor.kind}`] ??
    HOW[verb] ??
    html`${DONE[verb] ?? verb} by <${Text} text=${whoOf(decision)} prose />`;
  const said = may("admin") ? html`<a href=${href("audit", "", { conversation_id: id })}>${words}</a>` : words;
  const title = actor.kind === "rule" ? `${exact(time)}, rule ${actor.name}` : exact(time);
  return html`<span class="by" data-testid="decided-by" title=${title}>
    <span class=${isRefused ? "high" : "low"} aria-hidden="true">${isRefused ? "✕" : "✓"}</span> ${said} · <${Clock}
      at=${time} />
  </span>`;
}

/** What an edit made of an action, in words; nothing of another decision, or of one of an earlier release. */
export function Became({ decision: { edited_shown } }) {
  return (
    edited_shown?.length > 0 &&
    html`<p class="became muted" data-testid="became">Approved instead: <code class="command"><${Text}
      text=${edited_shown[0].text} /></code></p>`
  );
}

/** How it ended. fate: what this page knows of its own decision; end: what the stream told, or undefined. */
export function Outcome({ fate, end }) {
  const isLost = fate?.state === "lost",
    isMine = fate?.state === "taken";
  if (!end?.decision) {
    return html`<strong>${isMine ? `${DONE[fate.verb]} by you` : isLost ? fate.words : "No longer pending."}</strong>`;
  }
  const done = DONE[end.decision] ?? end.decision,
    actor = actorOf(end),
    own = actor === me.get()?.name;
  const words = end.reason && html`<${Text} text=${beginning(end.reason, 500)} prose />`;
  const reason = words && html` <span class="muted">Reason: ${words}</span>`;
  if (isLost) {
    const who = own ? "Another window with your key" : actor;
    const faster = html`<${Text} text=${who} prose /> was faster: ${done.toLowerCase()} <${Time} at=${end.time} />`;
    return html`<strong>${faster}</strong>${reason}`;
  }
  if (end.event === "expired") return html`<strong>Rejected: it expired</strong> <${Time} at=${end.time} />`;
  if (end.decision === "withdrawn") return html`<strong>${WITHDRAWN}</strong> <${Time} at=${end.time} />`;
  const by = html`${done} by <${Text} text=${isMine ? "you" : actor} prose />`;
  return html`<strong>${by}</strong> <${Time} at=${end.time} />${reason}`;
}
