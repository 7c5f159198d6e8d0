// Places in files that a text names, such as `src/dates.py:42`, as links to their lines.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { html } from "../lib/html.js";
import { href } from "../lib/router.js";
import { languageOf } from "./highlight.js";
import { Text } from "./text.js";

/** The id of the conversation in whose folder the files are; "": texts have no such links. */
export const FolderOf = createContext("");

const PLACES = /(?<![\w/:.@-])(\/?(?:[\w.@+-]+\/)*[\w.@+-]*\.?\w+):(\d{1,6})(?::\d{1,6})?(?![\w/:])/g;

/** Whether a name is that of a file: `example.org:443` is none. */
const isFile = (path) => /\/.*[^/.\d]/.test(path) || languageOf(path) !== undefined;

/** A text in parts: [text, path, line] of each; path: undefined where it names no place. */
export function placesIn(text) {
  const parts = [];
  let end = 0;
  for (const { 0: whole, 1: path, 2: line, index } of text.matchAll(PLACES)) {
    if (!isFile(path)) continue;
    if (index > end) parts.push([text.slice(end, index)]);
    parts.push([whole, path, Number(line)]);
    end = index + whole.length;
  }
  if (end < text.length) parts.push([text.slice(end)]);
  return parts;
}

/** A text with its links. */
export function Linked({ text }) {
  const id = useContext(FolderOf);
  if (!id || !text.includes(":")) return html`<${Text} prose text=${text} />`;
  return placesIn(text).map(([part, file, line]) => {
    const shown = html`<${Text} prose text=${part} />`;
    return file
      ? html`<a class="to-line" href=${href("conversations", id, { show: "files", file, line })}>${shown}</a>`
      : shown;
  });
}
