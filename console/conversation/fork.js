// The questions before a fork, of all events or of the log up to one of them, and before a return to an event. And
// where both may begin.
import { useEffect, useMemo, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { beginning } from "../lib/visible.js";
import { go } from "../lib/router.js";
import { Dialog } from "../parts/dialog.js";
import { attempt, tell } from "../parts/notices.js";
import { Time } from "../parts/time.js";
import { Label } from "./event.js";
import { MOST_TITLE } from "./heading.js";
import { goBack } from "./returned.js";

/** Milliseconds after the end of a turn in which the folder is recorded. */
const RECORDED = 1500;

/**
 * Where a fork of a conversation may begin: {hasFiles, canReturn, at(event), atEnd}. Of an agent whose forks have the
 * files of then, only at an event beside which the files were recorded; `at` changes with the records. status, total:
 * of the conversation.
 */
export function useForks(id, status, total) {
  const version = `${status} ${status === "running" ? "" : total}`;
  const { value: known = null, again } = useRead("GET /api/v1/app-conversations/{conversation_id}/records", {
    path: { conversation_id: id },
    version,
  });
  useEffect(() => {
    const later = setTimeout(again, RECORDED); // the record of a turn that is just over is made by then
    return () => clearTimeout(later);
  }, [id, version]);
  const hasFiles = known?.forks_have_files ?? false;
  const at = useMemo(() => {
    if (!hasFiles) return () => known !== null;
    const ids = new Set(known.records.flatMap((one) => one.event_ids));
    return (event) => ids.has(event.id);
  }, [known]);
  return {
    hasFiles,
    canReturn: known?.can_return ?? false,
    at,
    atEnd: known !== null && (!hasFiles || known.records.at(-1)?.seq === total),
  };
}

/** record: the conversation. event: the last one to copy; undefined: all. hasFiles: of useForks. */
export function Fork({ record, event, hasFiles, onClose }) {
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
      ${
        event &&
        html`<p data-testid="fork-event"><strong><${Label} event=${event} /></strong> <${Time}
        at=${event.timestamp} /></p>`
      }
      <p>A fork has a copy of ${event ? "the log up to this event" : "all events"} and goes its own way. ${
        hasFiles
          ? html`It gets a sandbox of its own, with the files as they were then. Secrets, running programs and
            what <code>.gitignore</code> leaves out are not copied.`
          : html`In a sandbox its agent copies it too${event && "; the files there stay as they are now"}.`
      }</p>
      <label>Title of the fork <input autofocus data-testid="fork-title" maxlength=${MOST_TITLE} value=${title}
        onInput=${(change) => setTitle(change.target.value)} /></label>
      <footer>
        <button type="button" class="secondary" onClick=${onClose}>Cancel</button>
        <button type="submit" data-testid="yes" aria-busy=${isBusy} disabled=${isBusy}>Fork</button>
      </footer>
    </form>
  <//>`;
}

/** record: the conversation. event: the one to return to. */
export function ReturnDialog({ record, event, onClose }) {
  const [isBusy, setBusy] = useState(false);
  const back = async (submission) => {
    submission.preventDefault();
    setBusy(true);
    const made = await goBack(record.id, event.id);
    setBusy(false);
    if (!made) return;
    onClose();
    tell("The conversation goes on from there. Undo stands beside the return.");
  };
  return html`<${Dialog} title="Return to this event" onClose=${onClose}>
    <form onSubmit=${back}>
      <p data-testid="back-event"><strong><${Label} event=${event} /></strong> <${Time} at=${event.timestamp} /></p>
      <p>The conversation goes on from here, with the files as they were recorded then. What came after stays in the
        log, left behind, and can be brought back with its files.</p>
      <p>Programs that run in the sandbox end. What <code>.gitignore</code> leaves out stays as it is now.</p>
      <footer>
        <button type="button" class="secondary" onClick=${onClose}>Cancel</button>
        <button type="submit" autofocus data-testid="yes" aria-busy=${isBusy} disabled=${isBusy}>Return</button>
      </footer>
    </form>
  <//>`;
}
