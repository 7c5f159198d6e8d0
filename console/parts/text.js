// Texts of agents and people: shown, never run, and with nothing hidden in them.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { parts } from "../lib/visible.js";

/** Characters of a text that are shown before "show all"; and those after which even that shows no more at once. */
const FOLDED = 4_000,
  MOST = 200_000;

/** What an agent says beside an action is as long as this before "show more": what will run stays in sight. */
export const SAID = { length: 200, lines: 4 };

/** How much of a text is its begin: no half of a character that is a pair. */
function begin(text, length, lines) {
  const most = Math.min(length, lines ? text.split("\n", lines).join("\n").length : length);
  return most < text.length && text.codePointAt(most - 1) > 0xffff ? most - 1 : most;
}

/** A text whose hidden characters stand as escapes. prose: what was said, where nothing of it will run. */
export function Text({ text, prose = false }) {
  return parts(text, { prose }).map(([part, isEscape]) =>
    isEscape ? html`<span class="unseen">${part}</span>` : part,
  );
}

/** A sentence of the server, in which backticks mark names of programs and settings. */
export function Marked({ text }) {
  return text
    .split("`")
    .map((part, index) =>
      index % 2 ? html`<code><${Text} text=${part} /></code>` : html`<${Text} prose text=${part} />`,
    );
}

/** A long text, folded: its begin of some characters and lines, and buttons for more. children: (text) => what shows a text. */
export function Folded({ text, children, length = FOLDED, lines = 0 }) {
  const [more, setMore] = useState(0);
  const shown = begin(text, length + more, more ? 0 : lines);
  if (text.length <= shown) return children(text);
  const rest = (text.length - shown).toLocaleString("en");
  return html`${children(text.slice(0, shown))}
    <button type="button" class="quiet" onClick=${() => setMore(more + MOST)}>Show more (${rest} characters)</button>`;
}

/** Lines, and characters, of the end of what was printed which are shown before "show earlier". */
const LAST_LINES = 14,
  LAST = 2_000;

/** Where the end of a text begins, of so many lines (0: of any number) and characters at most: at a line where one begins there. */
function endOf(text, length, lines) {
  let start = text.length - (text.endsWith("\n") ? 1 : 0);
  for (let left = lines; left > 0 && start > 0; left -= 1) start = text.lastIndexOf("\n", start - 1);
  start = lines && start > 0 ? start + 1 : 0;
  const least = Math.max(0, text.length - length);
  if (start >= least) return start;
  const line = text.indexOf("\n", least) + 1,
    isHalf = (text.codePointAt(least - 1) ?? 0) > 0xffff;
  return line && line < text.length ? line : least + (isHalf ? 1 : 0);
}

/** What was printed, folded: its end, which says how it went, and a button for more of it. children: as those of Folded. */
export function Tail({ text, children }) {
  const [more, setMore] = useState(0);
  const start = endOf(text, LAST + more, more ? 0 : LAST_LINES);
  if (!start) return children(text);
  const number = start.toLocaleString("en");
  return html`<button type="button" class="quiet earlier" data-testid="show-earlier" onClick=${() => setMore(more + MOST)}>Show earlier output (${number} characters)</button>
    ${children(text.slice(start))}`;
}
