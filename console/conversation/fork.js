// The question before a fork: of all events, or of the log up to one of them.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { beginning } from "../lib/visible.js";
import { go } from "../lib/router.js";
import { Dialog } from "../parts/dialog.js";
import { attempt, tell } from "../parts/notices.js";
import { Time } from "../parts/time.js";
import { Label } from "./event.js";
import { MOST_TITLE } from "./heading.js";

/** record: the conversation. event: the last one to copy; undefined: all. */
export function Fork({ record, event, onClose }) {
  const [title, setTitle] = useState(beginning(`Fork of ${record.title || "a conversation"}`, MOST_TITLE));
  const [isBusy, setBusy] = useState(false);
  const fork = async (submission) => {
    submission.preventDefault();
    setBusy(true);
    const body = { title: title.trim() || null, from_event_id: event?.id ?? null };
    const copy = await attempt(() =>
      call("POST /api/conversations/{conversation_id}/fork", { path: { conversation_id: record.id }, body }),
    );
    setBusy(false);
    if (!copy) return;
    onClose();
    tell("This is the fork. The other conversation stays as it was.");
    go("conversations", copy.id);
  };
  return html`<${Dialog} title=${event ? "Fork from this event" : "Fork the conversation"} onClose=${onClose}>
    <form onSubmit=${fork}>
      ${event && html`<p data-testid="fork-event"><strong><${Label} event=${event} /></strong> <${Time} at=${event.timestamp} /></p>`}
      <p>A fork has a copy of ${event ? "the log up to this event" : "all events"} and goes its own way. In a sandbox its agent copies it too${event && "; the files there stay as they are now"}.</p>
      <label>Title of the fork <input autofocus data-testid="fork-title" maxlength=${MOST_TITLE} value=${title} onInput=${(change) => setTitle(change.target.value)} /></label>
      <footer>
        <button type="button" class="secondary" onClick=${onClose}>Cancel</button>
        <button type="submit" data-testid="yes" aria-busy=${isBusy} disabled=${isBusy}>Fork</button>
      </footer>
    </form>
  <//>`;
}
