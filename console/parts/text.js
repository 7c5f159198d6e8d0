// Texts of agents and people: shown, never run, and with nothing hidden in them.
import { createContext } from "preact";
import { useContext, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { parts, placesOf } from "../lib/visible.js";

/** The text that the page around searches for, which texts mark; "" for none. */
export const Sought = createContext("");

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
  const sought = useContext(Sought);
  return parts(text, { prose }).map(([part, isEscape]) =>
    isEscape ? html`<span class="unseen">${part}</span>` : sought ? marked(part, sought) : part,
  );
}

/** A text with marks where it has another one. */
function marked(text, sought) {
  const made = [];
  let done = 0;
  for (const [start, end] of placesOf(text, sought)) {
    made.push(text.slice(done, start), html`<mark>${text.slice(start, end)}</mark>`);
    done = end;
  }
  return [...made, text.slice(done)];
}

/** A sentence of the server, in which backticks mark names of programs and settings. */
export function Marked({ text }) {
  return text
    .split("`")
    .map((part, index) =>
      index % 2 ? html`<code><${Text} text=${part} /></code>` : html`<${Text} prose text=${part} />`,
    );
}

/**
 * How many characters more than so many it takes to show the first place of what is sought; 0 where there is none
 * beyond.
 */
function beyond(text, sought, length) {
  const end = sought ? (placesOf(text, sought)[0]?.[1] ?? 0) : 0;
  return end > length ? end - length + FOLDED : 0;
}

/**
 * A long text, folded: its begin of some characters and lines, and buttons for more. children: (text) => what shows a
 * text.
 */
export function Folded({ text, children, length = FOLDED, lines = 0 }) {
  const sought = useContext(Sought);
  const [more, setMore] = useState(() => beyond(text, sought, length));
  const shown = begin(text, length + more, more ? 0 : lines);
  if (text.length <= shown) return children(text);
  const rest = (text.length - shown).toLocaleString("en");
  return html`${children(text.slice(0, shown))}
    <button type="button" class="quiet" onClick=${() => setMore(more + MOST)}>Show more (${rest} characters)</button>`;
}
