// The keys of access: made with scopes and an expiry, shown once, revoked.
import { useEffect, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { me } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { millis, now } from "../lib/words.js";
import { Question } from "../parts/dialog.js";
import { NewKey } from "../parts/new_key.js";
import { attempt, Empty, Failure } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Keys that are drawn at first, and with each press of "show more". */
const DRAWN = 100;

function Key({ one, onRevoke }) {
  const isOver = one.expires_at && millis(one.expires_at) <= useStore(now);
  return html`<li class="row key" data-testid=${`key-${one.id}`}>
    <span class="what">
      <strong><${Text} text=${one.name} /></strong>
      ${one.scopes.map((scope) => html`<span class="tag" key=${scope}>${scope}</span>`)}
      ${one.id === me.get()?.id && html`<span class="tag">The key of this page</span>`}
      ${isOver && html`<span class="tag high">Expired</span>`}
    </span>
    <dl class="facts">
      <div><dt>Created</dt><dd><${Time} at=${one.created_at} /></dd></div>
      <div><dt>Last used</dt><dd>${one.used_at ? html`<${Time} at=${one.used_at} />` : "Never"}</dd></div>
      <div><dt>Expires</dt><dd>${one.expires_at ? html`<${Time} at=${one.expires_at} />` : "Never"}</dd></div>
    </dl>
    <button type="button" class="secondary" data-testid=${`revoke-${one.id}`} aria-label=${`Revoke ${one.name}`} onClick=${onRevoke}>Revoke…</button>
  </li>`;
}

function List({ keys, onRevoke }) {
  const [most, setMost] = useState(DRAWN);
  if (!keys.length) {
    return html`<${Empty} title="No keys yet">Create one for each program and each person, so that the audit can name who did what.<//>`;
  }
  return html`<ul class="rows" data-testid="key-list">
      ${keys.slice(0, most).map((one) => html`<${Key} key=${one.id} one=${one} onRevoke=${() => onRevoke(one)} />`)}
    </ul>
    ${keys.length > most && html`<p class="more"><button type="button" class="secondary" onClick=${() => setMost(most + DRAWN)}>Show more (${keys.length - most})</button></p>`}`;
}

function Revocation({ one, onYes, onClose }) {
  return html`<${Question} title="Revoke this key?" yes="Revoke" onYes=${onYes} onClose=${onClose}>
    “<${Text} text=${one.name} />” opens nothing from now on: its requests are refused, and its sockets and streams end within a second.
    ${one.id === me.get()?.id && " It is the key of this page, which then asks for another one."}
  <//>`;
}

/** Whether a key of an admin opens the server now. */
const isAdmin = (one) => one.scopes.includes("admin") && !(one.expires_at && millis(one.expires_at) <= now.get());

export default function View() {
  const [keys, setKeys] = useState(null);
  const [auth, setAuth] = useState("");
  const [error, setError] = useState(null);
  const [isMaking, setMaking] = useState(false);
  const [revoked, setRevoked] = useState(null);
  const load = () => {
    setError(null);
    Promise.all([call("GET /api/v1/keys"), call("GET /server_info")]).then(
      ([all, info]) => (setAuth(info.auth), setKeys(all)),
      setError,
    );
  };
  useEffect(load, []);
  const revoke = async () => {
    const { id } = revoked;
    const done = await attempt(
      () => call("DELETE /api/v1/keys/{key_id}", { path: { key_id: id } }),
      "The key is revoked.",
    );
    if (done === undefined) return;
    setRevoked(null);
    load();
  };
  return html`<section class="keys">
    <div class="view-head">
      <h1>Keys</h1>
      <button type="button" data-testid="make-key" disabled=${!keys} onClick=${() => setMaking(true)}>Create a key</button>
    </div>
    <p class="muted">A key gives a program or a person access to this server. Keys from the server's settings are not listed here, and cannot be revoked here.</p>
    ${auth === "open_until_key" && keys?.length > 0 && html`<p class="card notice-of-server" role="note">This server is open now. From its next start it asks for a key, because one is stored.</p>`}
    ${error ? html`<${Failure} error=${error} again=${load} />` : keys ? html`<${List} keys=${keys} onRevoke=${setRevoked} />` : html`<p aria-busy="true">Loading</p>`}
    ${isMaking && html`<${NewKey} isFirst=${auth === "open_until_key" && !keys.some(isAdmin)} onMade=${load} onClose=${() => setMaking(false)} />`}
    ${revoked && html`<${Revocation} one=${revoked} onYes=${revoke} onClose=${() => setRevoked(null)} />`}
  </section>`;
}
