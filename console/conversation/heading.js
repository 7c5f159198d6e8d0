// The head of a conversation: its title, its state, and what can be done with the whole of it.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { go } from "../lib/router.js";
import { may } from "../lib/session.js";
import { Asker } from "../parts/asker.js";
import { Question } from "../parts/dialog.js";
import { Menu } from "../parts/menu.js";
import { attempt } from "../parts/notices.js";
import { CONVERSATION, State } from "../parts/state.js";
import { Text } from "../parts/text.js";
import { Export } from "./export.js";

/** Maximum length of a title, in characters. */
export const MOST_TITLE = 200;

/** The title of a conversation without one. */
export const UNTITLED = "Without a title";

/** A form that replaces the title. */
function Rename({ record, onClose, onDone }) {
  const [text, setText] = useState(record.title ?? ""),
    field = useRef(null);
  useEffect(() => field.current.select(), []); // what is typed takes the place of the title
  const save = async (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    const body = { title: text.trim() };
    const done = await attempt(() =>
      call("PATCH /api/conversations/{conversation_id}", { path: { conversation_id: record.id }, body }),
    );
    if (done === undefined) return;
    onClose();
    onDone();
  };
  return html`<form class="rename" onSubmit=${save}>
    <h1 class="hidden"><${Text} prose text=${record.title || UNTITLED} /></h1>
    <input data-testid="title" aria-label="Title" autofocus required maxlength=${MOST_TITLE} value=${text} ref=${field}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => event.key === "Escape" && onClose()} />
    <button type="submit" data-testid="save-title">Save</button>
    <button type="button" class="secondary" onClick=${onClose}>Cancel</button>
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
    This deletes all its events for good, and its sandbox and files unless another conversation uses them. Export it
      first to keep the events.
  <//>`;
}

/** A button that opens and closes a part of the view. panel: [isOpen, set]. */
function Toggle({ name, label, panel: [isOpen, set], controls, ...others }) {
  return html`<button type="button" class="quiet" data-testid=${name} aria-expanded=${isOpen}
    aria-controls=${isOpen ? controls : null} ...${others} onClick=${() => set(!isOpen)}>${label}</button>`;
}

/**
 * What may stand in the place of the talk: its name in the address, its button's name in tests, its label, the scopes
 * it needs.
 */
export const PLACES = [
  { name: "changes", testid: "changes", label: "Changes", scopes: [] },
  { name: "files", testid: "files", label: "Files", scopes: ["approve"] },
  { name: "terminal", testid: "terminal-button", label: "Terminal", scopes: ["write", "approve"] },
  { name: "preview", testid: "preview-button", label: "Preview", scopes: ["write", "approve"] },
];

/** Shortcut of a panel. 1 shows the talk. */
export const keyOf = (name) => PLACES.findIndex((one) => one.name === name) + 2;

/** Whether the access key may open a panel. */
const mayOpen = ({ scopes }) => scopes.every((scope) => may(scope));

/**
 * What may be opened of a conversation: nothing of an agent outside of sandboxes, whose files are on its own machine.
 */
export const placesOf = (record) => (record?.external ? [] : PLACES.filter(mayOpen));

/** Whether a button is the export's, which shows its progress in the open menu. */
const isExport = (button) => button.dataset.testid === "export";

/**
 * record: the conversation. number: of what waits for a decision in it. total: of its events. wire, filters, details:
 * [isOpen, set]. shown, show: what is in the place of the timeline, "changes", "files", "terminal", "preview" or "".
 * ahead(name): it may be shown soon. onFork(): asks about a fork of all.
 */
export function Heading({
  record,
  number,
  total,
  wire: [isWire, setWire],
  filters,
  details,
  shown,
  show,
  ahead,
  onFork,
  onDone,
}) {
  const [isAsking, setAsking] = useState(false),
    [isNaming, setNaming] = useState(false);
  return html`<header class="heading">
    <div class="title">${
      isNaming
        ? html`<${Rename} record=${record} onClose=${() => setNaming(false)} onDone=${onDone} />`
        : html`<h1><${Text} prose text=${record.title || UNTITLED} /></h1>`
    }<${State} of=${CONVERSATION}
      status=${number ? "waiting_for_confirmation" : record.execution_status} number=${number} /></div>
    ${record.external && html`<${Asker} of=${record.external} />`}
    <div class="actions">
      ${placesOf(record).map(
        ({ name, testid, label }) => html`<button type="button" key=${name} class="quiet" data-testid=${testid}
          aria-keyshortcuts=${keyOf(name)} aria-pressed=${shown === name}
        onPointerEnter=${() => ahead(name)} onFocus=${() => ahead(name)}
          onClick=${() => show(shown === name ? "" : name)}>${label}</button>`,
      )}
      <span class="gap"></span>
      <${Toggle} name="filters" label="Search" panel=${filters} controls="filters" aria-keyshortcuts="/" />
      <${Toggle} name="details" label="Details" panel=${details} controls="details" aria-keyshortcuts="d" />
      <${Menu} id="more-menu" text="More" staysFor=${isExport}>
        ${
          may("write") &&
          html`<button type="button" class="quiet" data-testid="edit-title"
          onClick=${() => setNaming(true)}>Rename</button>`
        }
        <button type="button" class="quiet" data-testid="all-events" aria-pressed=${isWire}
          title="Every event as it was sent, one row each" onClick=${() => setWire(!isWire)}>All events</button>
        ${onFork && html`<button type="button" class="quiet" data-testid="fork" onClick=${onFork}>Fork</button>`}
        <${Export} record=${record} total=${total} />
        ${
          may("admin") &&
          html`<button type="button" class="quiet danger-text" data-testid="delete"
          onClick=${() => setAsking(true)}>Delete</button>`
        }
      <//>
    </div>
    ${isAsking && html`<${Deletion} record=${record} onClose=${() => setAsking(false)} />`}
  </header>`;
}
