// Makes a key and shows it, this once.
import { useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { keep, me } from "../lib/session.js";
import { fieldOf, timeOf } from "../lib/words.js";
import { Dialog } from "./dialog.js";
import { Failure } from "./notices.js";
import { Marked } from "./text.js";

const SCOPES = {
  read: "See everything",
  write: "Start conversations, send messages, pause",
  approve: "Decide what waits, make rules",
  admin: "Everything: also keys, secrets, deletions",
};

/** Days after which a key expires; 0: never; "": at a time that the person names. */
const EXPIRIES = [
  [1, "After a day"],
  [30, "After 30 days"],
  [90, "After 90 days"],
  [0, "Never"],
  ["", "At a time"],
];

const DAY = 86_400_000;

/**
 * The dialog. isFirst: the server is open until a key is stored, and none of an admin is. onMade(): a key was made.
 * onClose().
 */
export function NewKey({ isFirst, onMade, onClose }) {
  const [made, setMade] = useState(null);
  if (made) return html`<${NewKeyShown} made=${made} onClose=${onClose} />`;
  return html`<${KeyForm} isFirst=${isFirst} onClose=${onClose} onMade=${(key) => (setMade(key), onMade())} />`;
}

function KeyForm({ isFirst, onMade, onClose }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState([isFirst ? "admin" : "read"]);
  const [days, setDays] = useState(/** @type {number | ""} */ (isFirst ? 0 : 90));
  const [time, setTime] = useState("");
  const [error, setError] = useState(null);
  const [isAsking, setAsking] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    if (isAsking) return;
    setAsking(true);
    setError(null);
    const expires_at = days === "" ? timeOf(time) : days ? new Date(Date.now() + days * DAY).toISOString() : null;
    try {
      onMade(await call("POST /api/v1/keys", { body: { name: name.trim(), scopes, expires_at } }));
    } catch (fault) {
      setError(fault);
      setAsking(false);
    }
  };
  const toggle = (scope) => (event) =>
    setScopes(event.target.checked ? [...scopes, scope] : scopes.filter((one) => one !== scope));
  return html`<${Dialog} title="Create a key" onClose=${onClose}>
    <form class="new-key" onSubmit=${submit}>
      ${
        isFirst &&
        html`<p class="card notice-of-server" role="note"
        data-testid="first-key">This server is open now. With a first key, it asks for one from its next start. Make
        yourself an admin key first, and then the others.</p>`
      }
      <label>Name
        <input name="name" required maxlength="100" autofocus autocomplete="off" placeholder="Who or what will use it"
          value=${name} onInput=${(event) => setName(event.target.value)} />
      </label>
      <fieldset>
        <legend>Permissions</legend>
        ${Object.entries(SCOPES).map(
          ([scope, words]) => html`<label key=${scope}>
            <input type="checkbox" name=${scope} checked=${scopes.includes(scope)} onChange=${toggle(scope)} /> <span>
              ${words} <span class="tag">${scope}</span></span>
          </label>`,
        )}
      </fieldset>
      <label>Expires
        <select name="expiry" value=${days}
          onChange=${(event) => setDays(event.target.value === "" ? "" : Number(event.target.value))}>
          ${EXPIRIES.map(([value, words]) => html`<option key=${words} value=${value}>${words}</option>`)}
        </select>
      </label>
      ${
        days === "" &&
        html`<label>Time
        <input type="datetime-local" name="time" required min=${fieldOf(new Date().toISOString())} value=${time}
          onInput=${(event) => setTime(event.target.value)} />
      </label>`
      }
      ${error && html`<${Failure} error=${error} />`}
      <footer>
        <button type="button" class="secondary" onClick=${onClose}>Cancel</button>
        <button type="submit" disabled=${!scopes.length} aria-busy=${isAsking}>Create</button>
      </footer>
    </form>
  <//>`;
}

function NewKeyShown({ made, onClose }) {
  const field = useRef(null);
  const [isCopied, setCopied] = useState(false);
  const [isUsed, setUsed] = useState(false);
  const copy = async () => {
    field.current.select();
    // A browser has a clipboard for addresses that it trusts; elsewhere the older way works.
    if (navigator.clipboard) await navigator.clipboard.writeText(made.key).catch(() => document.execCommand("copy"));
    else document.execCommand("copy");
    setCopied(true);
  };
  const use = () => (keep(made.key, me.get(), true), setUsed(true));
  return html`<${Dialog} title="Key created">
    <p>Copy it now. It is shown only once; the server keeps just its hash.</p>
    <div class="bar">
      <label class="wide">The key<input ref=${field} readonly data-testid="new-key" value=${made.key}
        onFocus=${(event) => event.target.select()} /></label>
      <button type="button" autofocus data-testid="copy" onClick=${copy}>Copy</button>
    </div>
    <p class="hint" role="status">${isCopied && "Copied."} ${isUsed && "This browser shows the key from now on."}</p>
    ${made.notice && html`<p class="card notice-of-server" role="note"><${Marked} text=${made.notice} /></p>`}
    <footer>
      ${
        made.notice &&
        made.scopes.includes("admin") &&
        html`<button type="button" data-testid="use-key" disabled=${isUsed}
        onClick=${use}>Use it in this browser</button>`
      }
      <button type="button" class="secondary" data-testid="done" onClick=${onClose}>Done</button>
    </footer>
  <//>`;
}
