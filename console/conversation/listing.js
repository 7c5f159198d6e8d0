// The text of a file: numbered lines in colours, each with an address.
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useGrowing } from "../lib/growing.js";
import { html } from "../lib/html.js";
import { counted } from "../lib/words.js";
import { isTooLong, NotHighlighted, Pieces, piecesOf, useTokens } from "../parts/highlight.js";

/** Lines that are shown, and more with each press; those before the one that is named; characters of a line. */
const MOST_LINES = 1_000,
  BEFORE = 100,
  MOST_LINE = 2_000;

/** Lines that are drawn in a frame, and that get their colours in one. */
const DRAWN = 200,
  LIT = 60;

/** The lines that are shown at first, [from, to]: the first ones, or those around a line. */
function around(line, number) {
  const from = line > BEFORE && line <= number ? line - BEFORE : 0;
  return [from, Math.min(number, from + MOST_LINES)];
}

/** A line. There are hundreds, so a line is drawn again only when it has changed. */
class ListingLine extends Component {
  shouldComponentUpdate(next) {
    return ["text", "number", "tokens", "isNamed", "address"].some((name) => next[name] !== this.props[name]);
  }

  render({ text, number, tokens, isNamed, address }) {
    const hidden = text.length - MOST_LINE;
    return html`<div class=${`numbered${isNamed ? " named" : ""}`} data-line=${number} tabindex="-1">
      <a class="number" href=${address} tabindex="-1" aria-label=${`Line ${number}`}>${number}</a>
      <code><${Pieces} pieces=${piecesOf(text.slice(0, MOST_LINE), tokens)} />
        ${hidden > 0 && html`<span class="muted"> … ${counted(hidden, "more character")}</span>`}</code>
    </div>`;
  }
}

/** line: the number of the line that the address names; NaN: none. addressOf(number): the address of a line. */
export function Listing({ text, path, line, addressOf }) {
  const element = useRef(null);
  const lines = useMemo(() => text.replace(/\n$/, "").split("\n"), [text]);
  const tokens = useTokens(text, path);
  const [[from, to], setRange] = useState(() => around(line, lines.length));
  const isShown = line > from && line <= to;
  const drawn = useGrowing(to - from, DRAWN),
    lit = useGrowing(tokens ? drawn : 0, LIT);
  useEffect(() => {
    if (line && !isShown) setRange(around(line, lines.length));
    const row = element.current.querySelector(".named");
    row?.scrollIntoView({ block: "center" });
    row?.focus({ preventScroll: true });
  }, [line, isShown]);
  const more = (earlier, later) => setRange([Math.max(0, from - earlier), Math.min(lines.length, to + later)]);
  return html`<div ref=${element} class="listing" role="figure" aria-label=${`Text of ${path}`} tabindex="0">
    ${isTooLong(text, path) && html`<${NotHighlighted} />`}
    ${
      line > lines.length &&
      html`<p
      class="medium">The file has no line ${line}: it has ${counted(lines.length, "line")}.</p>`
    }
    ${
      from > 0 &&
      html`<p class="gap"><button type="button" class="quiet"
      onClick=${() => more(MOST_LINES, 0)}>Show ${counted(Math.min(from, MOST_LINES), "earlier line")}</button></p>`
    }
    ${lines.slice(from, from + drawn).map(
      (one, index) =>
        html`<${ListingLine} key=${from + index} text=${one} number=${from + index + 1}
          tokens=${index < lit ? tokens?.[from + index] : undefined}
            isNamed=${from + index + 1 === line} address=${addressOf(from + index + 1)} />`,
    )}
    ${
      drawn === to - from &&
      to < lines.length &&
      html`<p class="gap"><button type="button" class="quiet" data-testid="more-lines"
      onClick=${() => more(0, MOST_LINES)}>Show ${counted(Math.min(lines.length - to, MOST_LINES), "more line")}
      </button></p>`
    }
  </div>`;
}
