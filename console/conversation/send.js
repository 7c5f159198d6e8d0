// The button that sends a message and lets the agent run, with a menu for the message alone.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";

/** An open menu closes by Escape, and by a press or the focus elsewhere. */
function useMenu() {
  const [isOpen, setOpen] = useState(false),
    element = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    const close = ({ target }) => element.current.contains(target) || setOpen(false);
    element.current.querySelector("[role=menuitem]").focus();
    addEventListener("pointerdown", close);
    addEventListener("focusin", close);
    return () => {
      removeEventListener("pointerdown", close);
      removeEventListener("focusin", close);
    };
  }, [isOpen]);
  const onKeyDown = (event) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.preventDefault();
    setOpen(false);
    element.current.querySelector("[aria-haspopup]").focus();
  };
  return { isOpen, setOpen, menu: { ref: element, onKeyDown } };
}

/** waiting: the number of actions that a message rejects. button: the ref of the button. onSend(run)(event): sends. */
export function Send({ waiting, button, isDisabled, isSending, onSend }) {
  const { isOpen, setOpen, menu } = useMenu();
  const look = waiting ? "secondary" : "",
    words = waiting ? "Reject and send" : "Send";
  const sendOnly = (event) => {
    setOpen(false);
    onSend(false)(event);
  };
  return html`<span class="send" ...${menu}>
    <button type="button" ref=${button} class=${look} data-testid="send" title="The agent reads the message and works"
      disabled=${isDisabled} aria-busy=${isSending} onClick=${onSend(true)}>${words}</button>
    <button type="button" class=${`${look} ways`} data-testid="send-ways" aria-haspopup="menu" aria-expanded=${isOpen}
      aria-label="Other ways to send" disabled=${isDisabled} onClick=${() => setOpen(!isOpen)}></button>
    ${
      isOpen &&
      html`<span class="menu" role="menu">
      <button type="button" role="menuitem" class="quiet" data-testid="send-only"
        title="The agent reads the message the next time it runs" onClick=${sendOnly}>${words} without running</button>
    </span>`
    }
  </span>`;
}
