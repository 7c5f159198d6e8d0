// The keys of access: made with scopes and an expiry, shown once, revoked.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { me } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { millis, now } from "../lib/words.js";
import { Question } from "../parts/dialog.js";
import { NewKey } from "../parts/new_key.js";
import { attempt, Empty, Loaded } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Keys that are drawn at first, and with each press of "show more". */
const DRAWN = 100;

function KeyRow({ one, onRevoke }) {
  const isOver = one.expires_at && millis(one.expires_at) <= useStore(now);
  const cell = (name, time) =>
    html`<span class="cell"><span class="hidden">${name} </span>
      ${time ? html`<${Time} at=${time} />` : "Never"}</span>`;
  return html`<li class="row key" data-testid=${`key-${one.id}`}>
    <span class="what">
      <strong><${Text} text=${one.name} /></strong>
      ${one.scopes.map((scope) => html`<span class="tag" key=${scope}>${scope}</span>`)}
      ${one.id === me.get()?.id && html`<span class="tag">This page</span>`}
      ${isOver && html`<span class="tag high">Expired</span>`}
    </span>
    ${cell("Created", one.created_at)}${cell("Last used", one.used_at)}${cell("Expires", one.expires_at)}
    <button type="button" class="quiet danger-text" data-testid=${`revoke-${one.id}`} aria-label=${`Revoke ${one.name}`}
      onClick=${onRevoke}>Revoke…</button>
  </li>`;
}

/** Column names, for sighted people. Each cell has its name for screen readers. */
function KeyColumns() {
  return html`<p class="row key columns" aria-hidden="true"><span>Key</span><span class="cell">Created</span><span
    class="cell">Last used</span><span class="cell">Expires</span><span></span></p>`;
}

function KeyList({ keys, onRevoke }) {
  const [most, setMost] = useState(DRAWN);
  if (!keys.length) {
    return html`<${Empty} title="No keys yet">Create one for each program and each person, so that the audit can name
      who did what.<//>`;
  }
  return html`<${KeyColumns} /><ul class="rows" data-testid="key-list">
      ${keys.slice(0, most).map((one) => html`<${KeyRow} key=${one.id} one=${one} onRevoke=${() => onRevoke(one)} />`)}
    </ul>
    ${
      keys.length > most &&
      html`<p class="more"><button type="button" class="secondary"
      onClick=${() => setMost(most + DRAWN)}>Show more (${keys.length - most})</button></p>`
    }`;
}

function Revocation({ one, onYes, onClose }) {
  return html`<${Question} title="Revoke this key?" yes="Revoke" onYes=${onYes} onClose=${onClose}>
    “<${Text} text=${one.name} />” opens nothing from now on: its requests are refused, and its sockets and streams end
      within a second.
    ${one.id === me.get()?.id && " It is the key of this page, which then asks for another one."}
  <//>`;
}

/** Whether a key of an admin opens the server now. */
const isAdmin = (one) => one.scopes.includes("admin") && !(one.expires_at && millis(one.expires_at) <= now.get());

/** The keys, and how the server checks them. */
const read = (signal) => Promise.all([call("GET /api/v1/keys", { signal }), call("GET /server_info", { signal })]);

export default function KeysView() {
  const all = useRead(read);
  const [keys, info] = all.value ?? [];
  const [isMaking, setMaking] = useState(false);
  const [revoked, setRevoked] = useState(null);
  const isOpen = info?.auth === "open_until_key";
  const revoke = async () => {
    const { id } = revoked;
    const done = await attempt(
      () => call("DELETE /api/v1/keys/{key_id}", { path: { key_id: id } }),
      "The key is revoked.",
    );
    if (done === undefined) return;
    setRevoked(null);
    all.again();
  };
  return html`<section class="keys">
    <div class="view-head">
      <h1>Keys</h1>
      <button type="button" data-testid="make-key" disabled=${!keys}
        onClick=${() => setMaking(true)}>Create a key</button>
    </div>
    <p class="muted">A key gives a program or a person access to this server. Keys from the server's settings are not
      listed here, and cannot be revoked here.</p>
    ${
      isOpen &&
      keys?.length > 0 &&
      html`<p class="card notice-of-server"
      role="note">This server is open now. From its next start it asks for a key, because one is stored.</p>`
    }
    <${Loaded} of=${all}>${([keys]) => html`<${KeyList} keys=${keys} onRevoke=${setRevoked} />`}<//>
    ${
      isMaking &&
      html`<${NewKey} isFirst=${isOpen && !keys.some(isAdmin)} onMade=${all.again}
      onClose=${() => setMaking(false)} />`
    }
    ${revoked && html`<${Revocation} one=${revoked} onYes=${revoke} onClose=${() => setRevoked(null)} />`}
  </section>`;
}
