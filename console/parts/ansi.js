// What a terminal printed, with its colours. The text of it stays a text: ansi_up tells the runs, Preact makes
// elements.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { Text } from "./text.js";

/** Minimum contrast of a text with its ground. */
const CONTRAST = 4.5;

/** The page's colours in its light and its dark look, as styles/elements.css has them: --ink, and --sunken. */
const TEXTS = [
    [35, 31, 42],
    [230, 225, 234],
  ],
  GROUNDS = [
    [240, 237, 231],
    [16, 14, 19],
  ];

/** makes: a function (text) => runs, once ansi_up has been loaded. */
let makes = null,
  loading = null;

function load() {
  loading ??= import("../vendor/ansi_up/ansi_up.js").then(({ AnsiUp }) => {
    class Runs extends AnsiUp {
      found = [];

      transform_to_html(run) {
        this.found.push({ ...run });
        return "";
      }

      // a link is a text: its address is not where its words say it leads
      process_hyperlink({ text, url }) {
        return this.transform_to_html(this.with_state({ text: `${text} (${url})` }));
      }
    }
    makes = (text) => {
      const runs = new Runs();
      runs.ansi_to_html(text);
      if (runs._buffer) runs.transform_to_html(runs.with_state({ text: runs._buffer })); // a sequence without an end
      return runs.found;
    };
  });
  return loading;
}

function luminance(colour) {
  const [red, green, blue] = colour.map((part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** A colour that can be read on a ground: itself, or as much lighter or darker as it takes. */
function readable(colour, ground) {
  const end = luminance(ground) > 0.18 ? 0 : 255;
  for (let share = 0; share < 1; share += 0.1) {
    const mixed = colour.map((part) => Math.round(part + (end - part) * share));
    if (contrast(mixed, ground) >= CONTRAST) return mixed;
  }
  return [end, end, end];
}

function look({ bold, faint, italic, underline, fg, bg }) {
  const [light, dark] = GROUNDS.map((page, place) => `rgb(${readable(fg?.rgb ?? TEXTS[place], bg?.rgb ?? page)})`);
  return {
    color: fg || bg ? `light-dark(${light}, ${dark})` : undefined,
    backgroundColor: bg ? `rgb(${bg.rgb})` : undefined,
    fontWeight: bold ? 700 : undefined,
    fontStyle: italic || faint ? "italic" : undefined,
    textDecoration: underline ? "underline" : undefined,
  };
}

/** A run of a text in one look. children: what it shows. */
export function Run({ run, children }) {
  const isPlain = !(run.fg || run.bg || run.bold || run.faint || run.italic || run.underline);
  return isPlain ? children : html`<span class="run" style=${look(run)}>${children}</span>`;
}

/** The function (text) => runs that colours a text; null until it is loaded. isNeeded: whether the text has colours. */
export function useRuns(isNeeded) {
  const [, setLoaded] = useState(makes !== null);
  useEffect(() => {
    if (isNeeded && !makes)
      load().then(
        () => setLoaded(true),
        () => {},
      );
  }, [isNeeded]);
  return isNeeded ? makes : null;
}

/** The text of a terminal. Until its colours are known it is shown without them. */
export function Ansi({ text }) {
  const plain = text.replaceAll("\r\n", "\n"),
    runs = useRuns(plain.includes("\u001b"));
  if (!runs) return html`<${Text} prose text=${plain} />`;
  return runs(plain).map((run) => html`<${Run} run=${run}><${Text} prose text=${run.text} /><//>`);
}
