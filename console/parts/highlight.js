// Code in colours: which language a text has, and its pieces as elements. What finds the tokens is loaded when it is
// needed.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { Text } from "./text.js";

/** Characters of a text up to which it is highlighted. */
export const MOST_HIGHLIGHTED = 1_000_000;

/**
 * The languages that have a grammar here, with the ends of files and the names by which texts say that they are in one.
 */
const LANGUAGES = {
  bash: "sh zsh ksh bashrc shell shellscript",
  c: "h",
  cpp: "cc cxx hpp hh hxx c++",
  csharp: "cs c#",
  css: "",
  dockerfile: "docker containerfile",
  go: "golang",
  ini: "toml cfg conf properties editorconfig gitconfig",
  java: "",
  javascript: "js mjs cjs jsx",
  json: "jsonl ndjson json5 jsonc",
  kotlin: "kt kts",
  lua: "",
  makefile: "mk make",
  markdown: "md mdx",
  php: "",
  python: "py pyi pyw python3",
  ruby: "rb gemspec rakefile gemfile",
  rust: "rs",
  sql: "ddl",
  swift: "",
  typescript: "ts tsx mts cts",
  xml: "html htm xhtml svg xsd xsl plist vue",
  yaml: "yml",
};

const NAMES = new Map(
  Object.entries(LANGUAGES).flatMap(([language, names]) =>
    [language, ...names.split(" ")].filter(Boolean).map((name) => [name, language]),
  ),
);

/** The language of a file by its path, or of a block by its name; undefined: none that has a grammar here. */
export function languageOf(name) {
  const last = name.toLowerCase().split("/").at(-1);
  return NAMES.get(last) ?? NAMES.get(last.split(".").at(-1)) ?? NAMES.get(last.split(".")[0]);
}

/** Whether a text has a language and is too long to be highlighted. */
export const isTooLong = (text, name) => text.length > MOST_HIGHLIGHTED && languageOf(name) !== undefined;

/** What stands where a text is too long. */
export function NotHighlighted() {
  return html`<p class="muted not-highlighted">Not highlighted: more
    than ${MOST_HIGHLIGHTED.toLocaleString("en")} characters.</p>`;
}

/**
 * The tokens of each line of a text, as `tokens.js` has them; null until they are there, and where there are none.
 * name: as of `languageOf`.
 */
export function useTokens(text, name) {
  const [found, setFound] = useState(/** @type {any} */ ({}));
  const language = text && text.length <= MOST_HIGHLIGHTED ? languageOf(name) : undefined;
  useEffect(() => {
    if (!language) return undefined;
    const ending = new AbortController(),
      { signal } = ending;
    import("./tokens.js")
      .then(({ tokenLines }) => tokenLines(text, language, signal))
      .then(
        (lines) => signal.aborted || setFound({ text, language, lines }),
        () => {}, // without the grammar the text has no colours
      );
    return () => ending.abort();
  }, [text, language]);
  // A text that is still being written has its first lines
  const isSame = found.language === language && text?.startsWith(found.text);
  return isSame ? (found.lines ?? null) : null;
}

/**
 * A line in pieces: [text, kind, isChanged] of each.
 *
 * tokens: [length, kind][] of the line. words: [text, isChanged][] of the line. Either may be missing.
 */
export function piecesOf(line, tokens = [], words = []) {
  const ends = (parts, lengthOf) => {
    let end = 0;
    return parts.map((part) => [(end += lengthOf(part)), part[1]]);
  };
  const kinds = ends(tokens, ([length]) => length),
    changed = ends(words, ([text]) => text.length);
  const pieces = [];
  for (let place = 0, kind = 0, word = 0; place < line.length; ) {
    while (kinds[kind]?.[0] <= place) kind++;
    while (changed[word]?.[0] <= place) word++;
    const end = Math.min(kinds[kind]?.[0] ?? line.length, changed[word]?.[0] ?? line.length, line.length);
    pieces.push([line.slice(place, end), kinds[kind]?.[1] ?? "", Boolean(changed[word]?.[1])]);
    place = end;
  }
  return pieces;
}

/** Pieces of `piecesOf` as elements. prose: as of `Text`. */
export function Pieces({ pieces, prose = false }) {
  return pieces.map(([text, kind, isChanged]) => {
    const shown = html`<${Text} text=${text} prose=${prose} />`;
    const name = `${kind && `t-${kind}`}${isChanged ? " word" : ""}`.trim();
    return name ? html`<span class=${name}>${shown}</span>` : shown;
  });
}

/** A text in the colours of its language. name: as of `languageOf`. */
export function Highlighted({ text, name, prose = false }) {
  const tokens = useTokens(text, name);
  if (!tokens) return html`<${Text} text=${text} prose=${prose} />`;
  return text
    .split("\n")
    .map((line, index) => [
      index > 0 && "\n",
      html`<${Pieces} pieces=${piecesOf(line, tokens[index])} prose=${prose} />`,
    ]);
}
