// Markdown as elements. markdown-it tells the parts, Preact makes elements of those that are known here: no HTML is
// made of any text, so there is none to clean, and the page's policy, under which no text can become HTML, holds as it
// is.
import { h } from "preact";
import { useMemo } from "preact/hooks";
import MarkdownIt from "../vendor/markdown-it/markdown-it.esm.min.mjs";
import { html } from "../lib/html.js";
import { beginning, visible } from "../lib/visible.js";
import { Copy } from "./copy.js";
import { Linked } from "./file_links.js";
import { Highlighted } from "./highlight.js";
import { Text } from "./text.js";

/**
 * Characters of a text, parts of it and parts within parts up to which it is shown as Markdown; beyond, as the text
 * that it is.
 */
const MOST = 30_000,
  MOST_PARTS = 8_000,
  MOST_DEEP = 60;

/** Cells that a table of the text could have: markdown-it fills up the rows, before its parts can be counted. */
const MOST_CELLS = 40_000;

/** Characters of an address that are shown. */
const ADDRESS = 200;

// markdown-it leaves out what lies deeper than 100 parts: such a text is too deep here, so that nothing of it is left
// out. A line's end in a message is one that was meant. Only whole addresses become links: main.py is a file, and no
// host.
const reader = new MarkdownIt({ html: false, linkify: true, breaks: true });
reader.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });

/** The elements of the parts that hold others. What is not here, such as attributes, is not made. */
const TAGS = {
  paragraph_open: "p",
  blockquote_open: "blockquote",
  bullet_list_open: "ul",
  ordered_list_open: "ol",
  list_item_open: "li",
  thead_open: "thead",
  tbody_open: "tbody",
  tr_open: "tr",
  th_open: "th",
  td_open: "td",
  em_open: "em",
  strong_open: "strong",
  s_open: "s",
};

/** What an item of a list of tasks begins with. */
const TASK = /^\[([ xX])\](?=\s)/;

/** How cells may be aligned: what markdown-it says, and the class. */
const ALIGNED = { "text-align:right": "right", "text-align:center": "center" };

/** Names and addresses of loopback, as URL writes them: one host, whatever it is called. */
const LOOPBACK =
  /^(?:(?:.+\.)?localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1?\]|\[::ffff:7f[\da-f]{2}:[\da-f]{1,4}\]|\[::ffff:0:0\])$/;

/** Characters of a name that DNS has, and its port: a longer one could not be shown whole. */
const HOST = 260;

/** The host and the port that an address leads to, in one way of writing. */
function placeOf({ protocol, hostname, port }) {
  const name = hostname.replace(/\.$/, "");
  const number = port || { "http:": "80", "https:": "443" }[protocol];
  // A server at one of the two leads to the other
  return `${LOOPBACK.test(name) ? "localhost" : name}:${number === "80" ? "443" : number}`;
}

/**
 * The address of a link that may be followed: to elsewhere alone, so that no text leads into this server; else null.
 */
export function followable(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol === "mailto:") return url;
  if (!["http:", "https:"].includes(url.protocol) || url.username || url.password || url.host.length > HOST)
    return null;
  return placeOf(url) !== placeOf(location) ? url : null;
}

/**
 * Whether the words of a link are its address, letter by letter: a browser may read letters that look alike as another
 * one.
 */
const says = (words, url) => words === url.href || `${words}/` === url.href;

/** Whether a part is read as the end of the word before it. */
const continues = (part) => part?.nesting > 0 || (part?.type === "text" && /^\S*[\p{L}\p{N}]/u.test(part.content));

/** A link says where it leads, unless its words do. One that may not be followed is a text. */
function Link({ address, said, children }) {
  const url = followable(address),
    shown = visible(beginning(url?.href ?? address, ADDRESS));
  if (!url) return html`${children} <span class="muted">(<${Text} text=${beginning(address, ADDRESS)} />)</span>`;
  return html`<a href=${url.href} target="_blank" rel="noopener noreferrer nofollow" title=${shown}>${children}</a>
    ${
      !says(said, url) &&
      html`<span class="muted leads"
    dir="ltr"> (${url.host || visible(beginning(url.pathname, ADDRESS))})</span>`
    }`;
}

/** An image that the text itself holds; another one is told, and nothing is loaded from it. */
function Image({ address, alt }) {
  if (/^data:image\/(png|jpeg|gif|webp);/i.test(address))
    return html`<img src=${address} alt=${visible(alt) || "An image of this message"} loading="lazy" />`;
  return html`<span class="muted">An image elsewhere, which is not
    loaded: ${alt && html`“<${Text} prose text=${alt} />” `}<code><${Text} text=${beginning(address, ADDRESS)} />
    </code></span>`;
}

function Block({ code, language }) {
  return html`<div class="block">
    <p class="block-head"><span><${Text} text=${beginning(language, 40)} /></span><${Copy} text=${() => code}
      label="the code" /></p>
    <pre tabindex="0" role="figure" aria-label="Code"><code><${Highlighted} prose text=${code} name=${language} />
      </code></pre>
  </div>`;
}

/** The box of an item of a list of tasks: it shows how the task stands, and changes nothing. */
const TaskMark = ({ isDone }) =>
  html`<input type="checkbox" disabled checked=${isDone} aria-label=${isDone ? "Done" : "Not done"} />`;

/** Take the boxes of tasks out of the texts that begin with one, and note them at their items. */
function noteTasks(tokens) {
  for (const [place, token] of tokens.entries()) {
    const text = tokens[place + 2]?.children?.[0],
      [box, mark] = (token.type === "list_item_open" && text?.type === "text" && TASK.exec(text.content)) || [];
    if (!box) continue;
    token.meta = { task: mark === " " ? "open" : "done" };
    text.content = text.content.slice(box.length);
  }
  return tokens;
}

/** isLinked: whether it lies in a link, which holds no other. */
function leaf(token, isLinked) {
  const Shown = isLinked ? Text : Linked;
  if (token.type === "inline") return elements(token.children ?? []);
  if (token.type === "softbreak" || token.type === "hardbreak") return [h("br", null)];
  if (token.type === "hr") return [h("hr", null)];
  if (token.type === "code_inline") return [html`<code><${Shown} prose text=${token.content} /></code>`];
  if (token.type === "fence" || token.type === "code_block")
    return [html`<${Block} code=${token.content} language=${(token.info ?? "").trim().split(/\s/)[0]} />`];
  if (token.type === "image") return [html`<${Image} address=${token.attrGet("src") ?? ""} alt=${token.content} />`];
  return [html`<${Shown} prose text=${token.content} />`];
}

/**
 * The element of a part that is closed. state: the level of the last heading, below which the next one is one deeper.
 */
function whole({ token, children, said }, state) {
  if (token.hidden) return children;
  if (token.type === "link_open")
    return [html`<${Link} address=${token.attrGet("href") ?? ""} said=${said}>${children}<//>`];
  if (token.type === "table_open")
    return [html`<div class="table" tabindex="0" role="group" aria-label="Table"><table>${children}</table></div>`];
  if (token.type === "heading_open") {
    const level = Number(token.tag.slice(1));
    state.level = Math.min(6, level + 1, state.level + 1);
    return [h(`h${state.level}`, { class: `heading-${level}` }, children)];
  }
  if (token.meta?.task)
    return [h("li", { class: "task" }, [html`<${TaskMark} isDone=${token.meta.task === "done"} />`, children])];
  const tag = TAGS[token.type] ?? "span";
  const properties =
    tag === "ol" ? { start: Number(token.attrGet("start") ?? 1) } : { class: ALIGNED[token.attrGet("style")] };
  return [h(tag, properties, children)];
}

function elements(tokens, state = { level: 1 }) {
  const stack = [{ token: null, children: [], said: "" }];
  for (const [index, token] of tokens.entries()) {
    if (token.nesting > 0) stack.push({ token, children: [], said: "" });
    else if (token.nesting < 0) {
      const closed = stack.pop();
      // An address that goes on is read as another one
      if (closed.token.type === "link_open" && continues(tokens[index + 1])) closed.said = "";
      stack.at(-1).children.push(...whole(closed, state));
      stack.at(-1).said += closed.said;
    } else {
      const isLinked = stack.some((part) => part.token?.type === "link_open");
      stack.at(-1).children.push(...leaf(token, isLinked));
      stack.at(-1).said += token.content;
    }
  }
  return stack[0].children;
}

/** How deep parts lie in one another. */
function depthOf(tokens) {
  let depth = 0,
    deepest = 0;
  for (const { nesting, children } of tokens) {
    depth += nesting;
    deepest = Math.max(deepest, depth + (children ? depthOf(children) : 0));
  }
  return deepest;
}

/** The parts of a text, or null where they are too many or too deep: what an agent writes must not hold up the page. */
function partsOf(text) {
  if (text.length > MOST) return null;
  const lines = text.split("\n"),
    widest = lines.reduce((most, line) => Math.max(most, line.split("|").length), 0);
  if (widest > 2 && widest * lines.length > MOST_CELLS) return null;
  const tokens = reader.parse(text, {});
  const number = tokens.reduce((sum, { children }) => sum + 1 + (children?.length ?? 0), 0);
  return number > MOST_PARTS || depthOf(tokens) > MOST_DEEP ? null : noteTasks(tokens);
}

/** A text as Markdown. */
export function Markdown({ text }) {
  const tokens = useMemo(() => partsOf(text), [text]);
  if (!tokens) return html`<div class="prose"><${Text} prose text=${text} /></div>`;
  return html`<div class="markdown">${elements(tokens)}</div>`;
}
