// An icon beside a word, or in its place. The shapes are Lucide's; docs/vendor.py names those that the console uses.
import { html } from "../lib/html.js";
import { ICONS } from "../vendor/lucide/icons.js";

/** It has the size and colour of the text around it. It says nothing: a button without a word needs an aria-label. */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    ${ICONS[name].map(([shape, attributes]) => html`<${shape} ...${attributes} />`)}
  </svg>`;
}
