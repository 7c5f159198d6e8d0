// What may begin at an event: a fork, and a return to it.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { html } from "../lib/html.js";

/** Whether the conversation may return to its events now. */
export const Returns = createContext(false);

/** onFork(isBack): undefined where nothing may begin. */
export function Here({ onFork }) {
  const mayReturn = useContext(Returns);
  if (!onFork) return null;
  return html`<button type="button" class="quiet fork" tabindex="-1" data-testid="fork-here" onClick=${() => onFork(false)}>Fork from here</button>
    ${mayReturn && html`<button type="button" class="quiet fork" tabindex="-1" data-testid="back-here" onClick=${() => onFork(true)}>Back to here</button>`}`;
}
