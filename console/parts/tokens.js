// Code as tokens: lengths of text with a kind, which highlight.js finds. No HTML is made of any text. Loaded when code
// is first shown, with the grammar of its language.
import highlight from "../vendor/highlight/core.min.js";

/** Characters that are read before the page may draw: first, and where no line begins outside of all tokens. */
const TURN = 4_000,
  LONGEST_TURN = 64_000;

/** The kinds of tokens, by what highlight.js calls them. What is not here has the kind of what it lies in. */
const KINDS = {
  keyword: "keyword",
  "selector-tag": "keyword",
  tag: "",
  doctag: "keyword",
  section: "name",
  name: "name",
  title: "name",
  comment: "comment",
  quote: "comment",
  string: "string",
  regexp: "string",
  code: "string",
  link: "string",
  subst: "",
  number: "number",
  literal: "number",
  symbol: "number",
  bullet: "number",
  type: "type",
  built_in: "type",
  "selector-class": "type",
  "selector-id": "type",
  "selector-pseudo": "type",
  attr: "attribute",
  attribute: "attribute",
  "selector-attr": "attribute",
  "template-variable": "attribute",
  variable: "attribute",
  meta: "meta",
  addition: "string",
  deletion: "number",
};

const kindOf = (scope, outer) => (scope.startsWith("language:") ? "" : (KINDS[scope.split(".")[0]] ?? outer));

/** The tokens of a tree, [text, kind, isOutside] of each: whether it lies in no scope. */
function* tokensOf(node, kind = "", isOutside = true) {
  for (const child of node.children) {
    if (typeof child === "string") yield/** @type {const} */ ([child, kind, isOutside]);
    else yield* tokensOf(child, child.scope ? kindOf(child.scope, kind) : kind, isOutside && !child.scope);
  }
}

/**
 * Where the text that follows can be read by itself: the last line that begins outside of all tokens, if there is one
 * with no indent. 0: nowhere.
 */
function cutOf(tokens) {
  let place = 0,
    indented = 0,
    outermost = 0,
    isBegin = false;
  for (const [text, , isOutside] of tokens) {
    if (isBegin && !/^\s/.test(text)) outermost = place;
    isBegin = false;
    if (isOutside) {
      for (const { index } of text.matchAll(/\n(?=[^\s})\]]|$)/g)) {
        if (index + 1 < text.length) outermost = place + index + 1;
        else isBegin = true;
      }
      if (text.includes("\n")) indented = place + text.lastIndexOf("\n") + 1;
    }
    place += text.length;
  }
  return outermost || indented;
}

/** Add tokens to lines, each [length, kind][], up to so many characters. */
function add(lines, tokens, length) {
  for (const [text, kind] of tokens) {
    const taken = text.slice(0, length);
    length -= taken.length;
    for (const [index, part] of taken.split("\n").entries()) {
      if (index) lines.push([]);
      const last = lines.at(-1).at(-1);
      if (last?.[1] === kind) last[0] += part.length;
      else if (part) lines.at(-1).push([part.length, kind]);
    }
    if (!length) return;
  }
}

const pause = () => new Promise((resolve) => setTimeout(resolve));

/** The text that is read now. Texts are read one after the other. */
let reading = Promise.resolve();

async function read(text, language, signal, least) {
  if (!highlight.getLanguage(language)) {
    const { default: grammar } = await import(`../vendor/highlight/${language}.min.js`);
    highlight.registerLanguage(language, grammar);
  }
  const lines = [[]];
  let place = 0,
    turn = least;
  while (place < text.length) {
    if (signal.aborted) return null;
    const part = text.slice(place, place + turn),
      isLast = place + turn >= text.length;
    const tokens = [...tokensOf(highlight.highlight(part, { language, ignoreIllegals: true })._emitter.rootNode)];
    const cut = isLast ? part.length : cutOf(tokens) || (turn >= LONGEST_TURN ? part.length : 0);
    add(lines, tokens, cut);
    place += cut;
    turn = cut ? least : 2 * turn;
    await pause();
  }
  return lines;
}

/**
 * The tokens of each line of a text: [length, kind][]. null where the signal ended it. Rejects where a grammar does not
 * load. turn: characters that are read before the page may draw.
 */
export function tokenLines(text, language, signal, turn = TURN) {
  const mine = reading.then(() => read(text, language, signal, turn));
  reading = mine.then(
    () => {},
    () => {},
  );
  return mine;
}
