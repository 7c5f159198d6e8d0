// Asks for the key, once. It stays in the session of the tab, and longer where the person says so. A link with another
// key is asked about.
import { useEffect, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { isKey, keep, offered, takeOffered, wanted } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { Dialog } from "./dialog.js";

export default function KeyDialog() {
  const why = useStore(wanted),
    other = useStore(offered);
  useEffect(() => void (why && other && takeOffered()), [why, other]); // the person's own opens nothing any more
  if (other) return html`<${OtherKey} />`;
  return why ? html`<${EnterKey} why=${why} />` : null;
}

/** Whether the key of a link takes the place of the person's own. */
function OtherKey() {
  const close = () => offered.set("");
  return html`<${Dialog} title="Open with another key?" data-testid="other-key" onClose=${close}>
    <p>This link carries a key of its own. If you use it, whatever you start and write in this tab belongs to the owner
      of that key. Continue only if you know where the link came from.</p>
    <footer>
      <button type="button" autofocus data-testid="keep-key" onClick=${close}>Keep my key</button>
      <button type="button" class="danger" data-testid="take-key" onClick=${takeOffered}>Use the other key</button>
    </footer>
  <//>`;
}

function EnterKey({ why }) {
  const [value, setValue] = useState("");
  const [remember, setRemember] = useState(false);
  const [fault, setFault] = useState("");
  const [isAsking, setIsAsking] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const given = value.trim();
    if (isAsking || !given) return;
    setIsAsking(true);
    setFault("");
    try {
      if (!isKey(given)) throw new Error("This is not a key: a key has no blanks and no accented letters.");
      keep(given, await call("GET /api/v1/users/me", { asKey: given }), remember);
    } catch (error) {
      setFault(error.status === 401 ? "The server does not know this key." : error.message);
    }
    setIsAsking(false);
  };
  return html`<${Dialog} title="Your key" data-testid="key-dialog">
    <form onSubmit=${submit}>
      <p>${why} Open the link that its start prints, or ask an admin for a key.</p>
      <label>Key
        <input type="password" name="key" autocomplete="off" spellcheck=${false} autofocus required
          value=${value} onInput=${(event) => setValue(event.target.value)} />
      </label>
      <label><input type="checkbox" name="remember" checked=${remember}
        onChange=${(event) => setRemember(event.target.checked)} /> Remember it in this browser</label>
      <p class="high" role="alert">${fault}</p>
      <details class="quiet"><summary>No key, or lost it?</summary>
        <p>On the server’s machine:</p>
        <ul>
          <li>The file <code>key</code> in the server’s data folder has one, if a start made one.</li>
          <li>The server’s log names, at its start, the command that makes another one.</li>
          <li>A start with <code>SESSION_API_KEY=…</code> takes a key of your choice.</li>
        </ul>
      </details>
      <footer><button type="submit" aria-busy=${isAsking}>Open</button></footer>
    </form>
  <//>`;
}
