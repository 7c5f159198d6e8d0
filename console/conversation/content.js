// Parts of events: texts, images, JSON.
import { useContext, useMemo } from "preact/hooks";
import { html } from "../lib/html.js";
import { beginning, placesOf } from "../lib/visible.js";
import { counted } from "../lib/words.js";
import { Markdown } from "../parts/markdown.js";
import { Folded, Sought, Text } from "../parts/text.js";

/** Characters of JSON, and of Markdown, that are shown before "show more". */
const JSON_SHOWN = 2_000,
  MARKDOWN = 12_000;

/** Maximum number of images of one event that are shown. The others are counted. */
const MOST_IMAGES = 20;

/** The texts of content, and the addresses of its images. content: parts, one part, a text, or nothing. */
export function partsOf(content) {
  const list = Array.isArray(content) ? content : content == null ? [] : [content];
  const texts = [],
    images = [];
  for (const part of list) {
    if (typeof part === "string") texts.push(part);
    else if (typeof part?.text === "string") texts.push(part.text);
    else if (Array.isArray(part?.image_urls)) images.push(...part.image_urls.map(String));
    else if (part) texts.push(JSON.stringify(part));
  }
  return { text: texts.join("\n"), images };
}

/** A message. isTalk: show it as Markdown; otherwise as plain text. */
export function Prose({ text, isTalk = false }) {
  if (!text) return null;
  if (isTalk)
    return html`<${Folded} text=${text} length=${MARKDOWN}>${(shown) => html`<${Markdown} text=${shown} />`}<//>`;
  return html`<div class="prose"><${Folded} text=${text}>${(shown) => html`<${Text} prose text=${shown} />`}<//></div>`;
}

/** A value as JSON. */
export function Json({ value }) {
  const text = useMemo(() => JSON.stringify(value, null, 2) ?? "", [value]);
  return html`<${Folded} text=${text} length=${JSON_SHOWN}>
    ${(shown) => html`<pre><code><${Text} text=${shown} /></code></pre>`}<//>`;
}

/** Images: those that the event itself holds. Another address is told, and nothing is loaded from it. */
export function Images({ addresses }) {
  if (!addresses.length) return null;
  const isHeld = (address) => /^data:image\/(png|jpeg|gif|webp|svg\+xml)[;,]/i.test(address);
  return html`<div class="images">
    ${addresses.slice(0, MOST_IMAGES).map((address) =>
      isHeld(address)
        ? html`<a href=${address} download="image"><img src=${address} alt="An image of this event"
            loading="lazy" /></a>`
        : html`<p class="muted">An image elsewhere, which is not loaded: <code><${Text}
            text=${beginning(address, 500)} /></code></p>`,
    )}
    ${
      addresses.length > MOST_IMAGES &&
      html`<p class="muted">${counted(addresses.length - MOST_IMAGES, "more image")}</p>`
    }
  </div>`;
}

/** Content: its texts, and its images. */
export function Content({ content, isTalk = false }) {
  const { text, images } = partsOf(content);
  return html`<${Prose} text=${text} isTalk=${isTalk} /><${Images} addresses=${images} />`;
}

/** A fold that opens on a press, or when its text matches the search. */
export function More({ label, text = "", children }) {
  const sought = useContext(Sought);
  return html`<details class="more" open=${placesOf(text, sought).length > 0}><summary>${label}</summary>
    ${children}</details>`;
}
