// Copies a text, such as a block of code, to the clipboard.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { tell } from "./notices.js";

/** Milliseconds for which the button says that the text was copied. */
const SAID = 2_000;

/** Over plain HTTP from another machine a browser has no clipboard for pages: there the text is selected and copied. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden";
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (!isCopied) throw new Error();
}

/** text(): what is copied, byte for byte. label: of what, such as "the code". words: on the button. */
export function Copy({ text, label, words = "Copy", ...others }) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    const timer = isDone && setTimeout(() => setDone(false), SAID);
    return () => clearTimeout(timer);
  }, [isDone]);
  const press = () =>
    copy(text()).then(
      () => setDone(true),
      () => tell("The browser did not let the page copy. Select the text, and copy it.", "failed"),
    );
  return html`<button type="button" class="quiet copy" data-testid="copy"
    aria-label=${isDone ? "Copied" : `${words} ${label}`} onClick=${press} ...${others}>
    ${isDone ? "Copied" : words}</button>`;
}
