// Approves an action with other arguments: a command as text, anything else as JSON.
import { useEffect, useRef, useState } from "preact/hooks";
import { decide } from "../lib/decide.js";
import { parseExactly } from "../lib/exact.js";
import { html } from "../lib/html.js";
import { visible } from "../lib/visible.js";
import { isObject } from "./arguments.js";
import { Code } from "./code.js";
import { DecisionButton } from "./connection.js";
import { onEscape } from "./reject.js";
import { onceHeld, useSteady } from "./steady.js";

/** Whether a command is all that the arguments say. */
function isCommand(given) {
  const others = Object.entries(given).filter(([name]) => name !== "command");
  return typeof given.command === "string" && others.every(([, value]) => !value);
}

/** The arguments that a text stands for. Throws SyntaxError. */
function argumentsOf(text, given) {
  if (isCommand(given)) return { ...given, command: text };
  const parsed = parseExactly(text);
  if (!isObject(parsed)) throw new SyntaxError("An object in braces is needed.");
  return parsed;
}

export default function Edit({ item, onClose }) {
  const [element, press] = useSteady();
  const given = item.arguments;
  const [text, setText] = useState(isCommand(given) ? given.command : JSON.stringify(given, null, 2));
  const field = useRef(null);
  useEffect(() => field.current.focus({ preventScroll: true }), []);
  let changed = null,
    fault = "";
  try {
    changed = argumentsOf(text, given);
  } catch (error) {
    fault = `This is not JSON of the arguments: ${error.message}`;
  }
  const change = (event) => setText(event.target.value);
  const submit = (event) => press(event, () => changed && decide([item], "edit", { arguments: changed }));
  return html`<form class="panel" onSubmit=${submit} onKeyDown=${onEscape(onClose)}>
    <label>${isCommand(given) ? "The command that runs instead" : "The arguments instead, as JSON"}
      <textarea ref=${field} rows=${Math.min(16, text.split("\n").length + 1)} spellcheck=${false} data-testid="edited"
        aria-invalid=${fault ? "true" : null} value=${text} onInput=${change}></textarea>
    </label>
    ${
      visible(text) !== text &&
      html`<p class="muted">It has characters that do not show. As it will run:</p>
      <${Code} text=${text} label="As it will run" />`
    }
    ${fault && html`<p class="failed" role="alert">${fault}</p>`}
    <footer ref=${element} onKeyDown=${onceHeld}>
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      ${!fault && html`<${DecisionButton} type="submit" data-testid="approve-edited">Approve the change<//>`}
    </footer>
  </form>`;
}
