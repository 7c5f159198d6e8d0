// Texts of agents and people: shown, never run, and with nothing hidden in them.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { parts } from "../lib/visible.js";

/** Characters of a text that are shown before "show all"; and those after which even that shows no more at once. */
const FOLDED = 4_000, MOST = 200_000;

/** A text whose hidden characters stand as escapes. prose: what was said, where nothing of it will run. */
export function Text({ text, prose = false }) {
  return parts(text, { prose }).map(([part, isEscape]) => (isEscape ? html`<span class="unseen">${part}</span>` : part));
}

/** A long text, folded: its begin, and buttons for more. children: (text) => what shows a text. */
export function Folded({ text, children, length = FOLDED }) {
  const [shown, setShown] = useState(length);
  if (text.length <= shown) return children(text);
  const rest = (text.length - shown).toLocaleString("en");
  return html`${children(text.slice(0, shown))}
    <button type="button" class="quiet" onClick=${() => setShown(shown + MOST)}>Show more (${rest} characters)</button>`;
}
