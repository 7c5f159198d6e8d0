// A question over the page. The browser keeps the focus inside, and Escape closes it.
import { useEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";

export function Dialog({ title, onClose, children, ...others }) {
  const dialog = useRef(null);
  useEffect(() => {
    const element = dialog.current,
      before = /** @type {HTMLElement} */ (document.activeElement);
    element.showModal();
    return () => {
      element.close();
      before?.focus?.();
    };
  }, []);
  // A browser closes a dialog at the second Escape whatever the page says to the first: the key itself is taken.
  const onKey = (event) => event.key === "Escape" && cancel(event);
  const cancel = (event) => {
    event.preventDefault();
    onClose?.();
  };
  return html`<dialog ref=${dialog} aria-label=${title} onCancel=${cancel} onKeyDown=${onKey} ...${others}>
    <article>
      <header><h2>${title}</h2></header>
      ${children}
    </article>
  </dialog>`;
}

/** A question with one dangerous answer. onYes(): what is done then. */
export function Question({ title, yes, onYes, onClose, children }) {
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>${children}</p>
    <footer>
      <button type="button" class="secondary" autofocus onClick=${onClose}>Cancel</button>
      <button type="button" class="danger" data-testid="yes" onClick=${onYes}>${yes}</button>
    </footer>
  <//>`;
}
