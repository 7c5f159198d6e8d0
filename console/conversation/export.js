// A conversation as a file of JSON lines, which can be imported: each event is in it byte for byte as it was posted.
import { useEffect, useRef, useState } from "preact/hooks";
import { pieces, save } from "../lib/api.js";
import { html } from "../lib/html.js";
import { tell } from "../parts/notices.js";

const OPERATION = "GET /api/conversations/{conversation_id}/export";

/** Bytes of a file at most, as the browser holds it until it is saved; bytes that are made a part of it. */
const MOST_BYTES = 2 ** 30,
  PART = 4 * 2 ** 20,
  LINE_END = 10;

/** Read the export to its end. tellLines(number of its lines so far). Returns a Blob, or null beyond the bound. */
async function read(id, tellLines, signal) {
  const parts = [];
  let held = [],
    size = 0,
    bytes = 0,
    lines = 0;
  for await (const piece of pieces(OPERATION, { path: { conversation_id: id }, signal })) {
    held.push(piece);
    size += piece.length;
    bytes += piece.length;
    for (const byte of piece) lines += Number(byte === LINE_END);
    if (bytes > MOST_BYTES) return null;
    if (size < PART) continue;
    parts.push(new Blob(held));
    [held, size] = [[], 0];
    tellLines(lines);
  }
  return new Blob([...parts, ...held], { type: "application/x-ndjson" });
}

export function Export({ record, total }) {
  const [progress, setProgress] = useState(null);
  const running = useRef(null);
  const stop = () => {
    running.current?.abort();
    setProgress(null);
  };
  useEffect(() => () => running.current?.abort(), []);
  const start = async () => {
    const ending = (running.current = new AbortController());
    setProgress(0);
    try {
      const blob = await read(record.id, (lines) => setProgress(Math.min(1, lines / (total + 2))), ending.signal);
      ending.abort(); // beyond the bound the server need send no more
      if (blob) save(blob, `${record.id}.jsonl`);
      else tell(`The export is larger than 1 GiB. The API has it: ${OPERATION}.`, "failed");
    } catch (fault) {
      if (ending.signal.aborted) return;
      tell(fault.message, "failed");
    }
    setProgress(null);
  };
  if (progress === null)
    return html`<button type="button" class="quiet" data-testid="export" onClick=${start}>Export</button>`;
  return html`<button type="button" class="quiet" data-testid="export"
    onClick=${stop}>Stop the export (${Math.floor(100 * progress)} %)</button>`;
}
