// Templates without a build step: html`<p>${text}</p>` makes what Preact renders. A text is never HTML.
import { h } from "preact";
import htm from "htm";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(h);
