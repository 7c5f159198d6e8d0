// All events of a conversation as a file of JSON lines, each byte for byte as it was posted.
import { useEffect, useRef, useState } from "preact/hooks";
import { save } from "../lib/api.js";
import { html } from "../lib/html.js";
import { follow } from "../lib/live.js";
import { tell } from "../parts/notices.js";

/** Bytes of a file at most, as the browser holds it until it is saved; characters that are made a piece of it. */
const MOST_BYTES = 2 ** 30, PIECE = 4 * 2 ** 20;

/** Read the log from its begin to its present end. tellProgress(seq). done(blob), or done(null) beyond the bound. Returns what ends it. */
function read(id, total, tellProgress, done) {
  const pieces = [];
  let lines = [], characters = 0, bytes = 0;
  const piece = () => {
    pieces.push(new Blob(lines));
    bytes += pieces.at(-1).size;
    lines = [];
    characters = 0;
  };
  const end = follow("GET /api/conversations/{conversation_id}/events/stream", {
    path: { conversation_id: id },
    conversationId: id,
    cursor: { name: "after_seq", value: "0" },
    names: ["message"],
    inBackground: "each",
    parse: (text) => text,
    onEvent(_, text, seq) {
      // a line end in an event stands between its members, as JSON has none in a text
      lines.push(text.replaceAll("\n", " "), "\n");
      characters += text.length;
      if (characters >= PIECE) {
        piece();
        tellProgress(Number(seq));
      }
      if (bytes <= MOST_BYTES && Number(seq) < total) return;
      end();
      piece();
      done(bytes <= MOST_BYTES ? new Blob(pieces, { type: "application/jsonl" }) : null);
    },
  });
  return end;
}

export function Export({ record, total }) {
  const [progress, setProgress] = useState(null);
  const end = useRef(() => {});
  useEffect(() => () => end.current(), []);
  const stop = () => {
    end.current();
    setProgress(null);
  };
  const start = () => {
    if (!total) return tell("There are no events to export yet.");
    setProgress(0);
    end.current = read(record.id, total, (seq) => setProgress(seq / total), (blob) => {
      setProgress(null);
      if (blob) save(blob, `${record.id}.jsonl`);
      else tell("The log is larger than 1 GiB. The API exports it: GET /download of the app conversation.", "failed");
    });
  };
  if (progress === null) return html`<button type="button" class="quiet" data-testid="export" onClick=${start}>Export</button>`;
  return html`<button type="button" class="quiet" data-testid="export" onClick=${stop}>Stop the export (${Math.floor(100 * progress)} %)</button>`;
}
