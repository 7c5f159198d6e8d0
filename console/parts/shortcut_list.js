// The keys that the present view knows.
import { html } from "../lib/html.js";
import { shortcuts, shown } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { Dialog } from "./dialog.js";

export function ShortcutList() {
  if (!useStore(shown)) return null;
  const close = () => shown.set(false);
  return html`<${Dialog} title="Keys" onClose=${close}>
    <dl class="shortcuts">
      ${Object.entries(shortcuts()).map(([key, { label }]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${label}</dd></div>`)}
    </dl>
    <footer><button type="button" autofocus onClick=${close}>Close</button></footer>
  <//>`;
}
