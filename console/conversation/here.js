// What may begin at an event: a fork, a return to it, and a link that leads there.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { html } from "../lib/html.js";
import { href, route } from "../lib/router.js";
import { Copy } from "../parts/copy.js";

/** Whether the conversation may return to its events now. */
export const Returns = createContext(false);

/** The address of an event, as another person may open it. */
const linkTo = (id) => new URL(href("conversations", route.get().id, { event: id }), location.href).href;

/** id: of the event. onFork(isBack): undefined where nothing may begin. */
export function Here({ id, onFork }) {
  const mayReturn = useContext(Returns);
  return html`<${Copy} text=${() => linkTo(id)} label="to this event" words="Copy link" class="quiet fork link"
    tabindex="-1" data-testid="copy-link" />
    ${
      onFork &&
      html`<button type="button" class="quiet fork" tabindex="-1" data-testid="fork-here"
      onClick=${() => onFork(false)}>Fork from here</button>`
    }
    ${
      onFork &&
      mayReturn &&
      html`<button type="button" class="quiet fork" tabindex="-1" data-testid="back-here"
      onClick=${() => onFork(true)}>Back to here</button>`
    }`;
}
