// The last lines that a sandbox printed, read again while they are open.
import { useEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { Ansi } from "./ansi.js";
import { Failure } from "./notices.js";

/** Lines and characters that are shown; seconds between two reads; pixels that are still "at the end". */
const LINES = 500,
  MOST = 200_000,
  EVERY = 1,
  NEAR = 40;

/** The end of a log, below a line that says what is missing. */
function ending(log) {
  if (log.length <= MOST) return log;
  return `… ${(log.length - MOST).toLocaleString("en")} earlier characters are not shown\n${log.slice(-MOST)}`;
}

export function SandboxLog({ id }) {
  const { value, error, again } = useRead("GET /api/v1/sandboxes/{sandbox_id}/logs", {
    path: { sandbox_id: id },
    query: { tail: LINES },
    every: EVERY,
  });
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const log = value && ending(value.log);
  useEffect(() => {
    if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log]);
  const onScroll = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR;
  };
  return html`
    ${error && html`<${Failure} error=${error} again=${again} />`}
    <pre class="terminal log" ref=${box} tabindex="0" role="log" aria-label="The last lines of the log"
      data-testid="log" onScroll=${onScroll}>${
        log === undefined ? "Loading" : log ? html`<${Ansi} text=${log} />` : "Nothing was printed yet."
      }</pre>
  `;
}
