// The head of a conversation: its title, its state, and what can be done with the whole of it.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { go } from "../lib/router.js";
import { may } from "../lib/session.js";
import { Question } from "../parts/dialog.js";
import { attempt } from "../parts/notices.js";
import { CONVERSATION, State } from "../parts/state.js";
import { Text } from "../parts/text.js";
import { Export } from "./export.js";

/** Characters of a title at most. */
export const MOST_TITLE = 200;

function Title({ record, onDone }) {
  const [text, setText] = useState(null);
  const field = useRef(null), isOpen = text !== null;
  useEffect(() => field.current?.select(), [isOpen]); // what is typed takes the place of the title
  const title = record.title || "Without a title";
  if (!isOpen) {
    return html`<h1><${Text} prose text=${title} />
      ${may("write") && html` <button type="button" class="quiet" data-testid="edit-title" onClick=${() => setText(record.title ?? "")}>Rename</button>`}
    </h1>`;
  }
  const save = async (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    const body = { title: text.trim() };
    const done = await attempt(() => call("PATCH /api/conversations/{conversation_id}", { path: { conversation_id: record.id }, body }));
    if (done === undefined) return;
    setText(null);
    onDone();
  };
  return html`<form class="rename" onSubmit=${save}>
    <h1 class="hidden"><${Text} prose text=${title} /></h1>
    <input data-testid="title" aria-label="Title" autofocus required maxlength=${MOST_TITLE} value=${text} ref=${field}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => event.key === "Escape" && setText(null)} />
    <button type="submit" data-testid="save-title">Save</button>
    <button type="button" class="secondary" onClick=${() => setText(null)}>Cancel</button>
  </form>`;
}

function Deletion({ record, onClose }) {
  const remove = async () => {
    const done = await attempt(
      () => call("DELETE /api/conversations/{conversation_id}", { path: { conversation_id: record.id } }),
      "The conversation was deleted.",
    );
    onClose();
    if (done !== undefined) go("conversations");
  };
  return html`<${Question} title="Delete the conversation?" yes="Delete" onYes=${remove} onClose=${onClose}>
    This deletes all its events for good, and its sandbox and files unless another conversation uses them. Export it first to keep the events.
  <//>`;
}

/** A button that opens and closes a part of the view. panel: [isOpen, set]. */
function Toggle({ name, label, panel: [isOpen, set], controls, ...others }) {
  return html`<button type="button" class="quiet" data-testid=${name} aria-expanded=${isOpen} aria-controls=${isOpen ? controls : null} ...${others} onClick=${() => set(!isOpen)}>${label}</button>`;
}

/** record: the conversation. number: of its pending actions. total: of its events. wire, filters, details: [isOpen, set].
 * shown, show: what is in the place of the timeline, "changes", "files", "terminal", "preview" or "". onFork(): asks about a fork of all. */
export function Heading({ record, number, total, wire: [isWire, setWire], filters, details, shown, show, onFork, onDone }) {
  const [isAsking, setAsking] = useState(false);
  return html`<header class="heading">
    <div class="title"><${Title} record=${record} onDone=${onDone} /><${State} of=${CONVERSATION} status=${record.execution_status} number=${number} /></div>
    <div class="actions">
      <button type="button" class="quiet" data-testid="changes" aria-pressed=${shown === "changes"} onClick=${() => show(shown === "changes" ? "" : "changes")}>Changes</button>
      ${may("approve") && html`<button type="button" class="quiet" data-testid="files" aria-pressed=${shown === "files"} onClick=${() => show(shown === "files" ? "" : "files")}>Files</button>`}
      ${may("write") && may("approve") && html`<button type="button" class="quiet" data-testid="terminal-button" aria-pressed=${shown === "terminal"} onClick=${() => show(shown === "terminal" ? "" : "terminal")}>Terminal</button>`}
      ${may("write") && may("approve") && html`<button type="button" class="quiet" data-testid="preview-button" aria-pressed=${shown === "preview"} onClick=${() => show(shown === "preview" ? "" : "preview")}>Preview</button>`}
      <${Toggle} name="filters" label="Search" panel=${filters} controls="filters" />
      <button type="button" class="quiet" data-testid="all-events" aria-pressed=${isWire} title="Every event as it was sent, one row each" onClick=${() => setWire(!isWire)}>All events</button>
      ${may("write") && html`<button type="button" class="quiet" data-testid="fork" onClick=${onFork}>Fork</button>`}
      <${Export} record=${record} total=${total} />
      ${may("admin") && html`<button type="button" class="quiet" data-testid="delete" onClick=${() => setAsking(true)}>Delete</button>`}
      <${Toggle} name="details" label="Details" panel=${details} controls="details" />
    </div>
    ${isAsking && html`<${Deletion} record=${record} onClose=${() => setAsking(false)} />`}
  </header>`;
}
