// What runs, or what a file gets: every character of it visible, in a box that scrolls where it is long.
import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { placesOf } from "../lib/visible.js";
import { Sought, Text } from "./text.js";

/** Characters that are shown at once; and how many more with each press. */
const SHOWN = 20_000,
  MORE = 200_000;

const asText = (shown) => html`<${Text} text=${shown} />`;

/** Whether the text goes on below the edge of its box, which has a greatest height. */
function useCut(element) {
  const [isCut, setCut] = useState(false);
  useEffect(() => {
    const observer = new ResizeObserver(([{ target }]) => setCut(target.scrollHeight > target.clientHeight + 1));
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return isCut;
}

/** A text of code. label: what it is. name: a class. children: (text) => what shows a text in another way. */
export function Code({ text, label, name = "", children = asText }) {
  const element = useRef(null),
    sought = useContext(Sought),
    [, end] = placesOf(text, sought)[0] ?? [0, 0]; // of the first place of what is sought
  const [most, setMost] = useState(Math.max(SHOWN, end));
  const [isWhole, setWhole] = useState(end > 0);
  const isCut = useCut(element),
    hidden = Math.max(0, text.length - most);
  const shown = useMemo(() => children(hidden ? text.slice(0, most) : text), [text, most]);
  const classes = `${name} ${isWhole ? "whole" : ""}`,
    all = text.length.toLocaleString("en");
  const lines = isCut ? text.split("\n").length : 0;
  return html`<div class="code">
    <pre ref=${element} class=${classes} role="figure" aria-label=${label} tabindex="0">${shown}</pre>
    ${
      hidden > 0 &&
      html`<p class="not-all" data-testid="not-all">
      <strong>Not all is shown:</strong> ${hidden.toLocaleString("en")} of ${all} characters are folded.
      <button type="button" class="quiet" onClick=${() => setMost(most + MORE)}>Show more</button>
    </p>`
    }
    ${
      isCut &&
      html`<p class="not-all" data-testid="goes-on">
      It goes on below: ${lines === 1 ? "one line" : `${lines.toLocaleString("en")} lines`}, ${all} characters.
      <button type="button" class="quiet" onClick=${() => setWhole(true)}>Show in full</button>
    </p>`
    }
  </div>`;
}
