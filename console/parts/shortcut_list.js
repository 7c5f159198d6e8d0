// The shortcuts that the present view knows, in groups.
import { html } from "../lib/html.js";
import { groupBy } from "../lib/places.js";
import { hasKeys, opened, shortcuts } from "../lib/shortcuts.js";
import { Dialog } from "./dialog.js";

/** The groups in their order. */
const GROUPS = ["Go to", "Everywhere", "This view", "Decisions"];

/** The keys of a shortcut, one after the other; nothing of an action without one. name: as useShortcuts has it. */
export function Keys({ name }) {
  if (!hasKeys(name)) return null;
  return html`<span class="keys">${name.split(" ").map((key, place) => html`<kbd key=${place}>${key}</kbd>`)}</span>`;
}

export default function ShortcutList() {
  const close = () => opened.set("");
  const groups = groupBy(
    Object.entries(shortcuts()).filter(([name]) => hasKeys(name)),
    ([, { group }]) => group,
  );
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${close}>
    <div class="shortcuts">
      ${GROUPS.filter((group) => groups.has(group)).map(
        (group) => html`<section key=${group}>
        <h3>${group}</h3>
        <dl>${groups
          .get(group)
          .map(
            ([name, { label }]) => html`<div key=${name}><dt><${Keys} name=${name} /></dt><dd>${label}</dd></div>`,
          )}</dl>
      </section>`,
      )}
    </div>
    <footer><button type="button" autofocus onClick=${close}>Close</button></footer>
  <//>`;
}
