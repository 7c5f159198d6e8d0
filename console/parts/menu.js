// A menu of rarely needed actions, behind one button.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";

/**
 * A button and its menu, which stays mounted while it is closed, so that an export goes on.
 *
 * id: of the menu. text: of the button. label: for a reader of the screen, where the text says too little.
 * staysFor(button): whether the menu stays open after a press of one of its buttons.
 */
export function Menu({ id, text, label = undefined, staysFor = /** @type {any} */ (() => false), children }) {
  const [isOpen, setOpen] = useState(false),
    menu = useRef(null),
    button = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    const leave = (event) =>
      !menu.current.contains(event.target) && !button.current.contains(event.target) && setOpen(false);
    addEventListener("pointerdown", leave);
    addEventListener("focusin", leave);
    return () => {
      removeEventListener("pointerdown", leave);
      removeEventListener("focusin", leave);
    };
  }, [isOpen]);
  const onKeyDown = (event) => {
    if (event.key !== "Escape") return;
    setOpen(false);
    button.current.focus();
  };
  const onClick = (event) => {
    const pressed = event.target.closest("button, a");
    if (pressed && !staysFor(pressed)) setOpen(false);
  };
  return html`<button type="button" class="quiet" ref=${button} data-testid="more" aria-label=${label}
    aria-expanded=${isOpen} aria-controls=${id} onClick=${() => setOpen(!isOpen)}>${text}</button>
    <div id=${id} class="menu" ref=${menu} hidden=${!isOpen} onKeyDown=${onKeyDown} onClick=${onClick}>
      ${children}</div>`;
}
