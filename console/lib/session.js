// The key of this browser, and what it may do. The key stays in the session of one tab unless the person says
// "remember".
import { ours } from "./root.js";
import { Store } from "./store.js";

const NAME = ours("agent-server-key");

/** Valid characters of a key. A header can carry no others. */
const FORM = /^[\x21-\x7e]{1,512}$/;

/** The key of a link that would take the place of this browser's: the person is asked. "" for none. */
export const offered = new Store("");

/** The key, "" for none. */
export const key = new Store(taken() || sessionStorage.getItem(NAME) || localStorage.getItem(NAME) || "");

/** The one who asks, as GET /api/v1/users/me tells it: {id, name, scopes}; null before that is known. */
export const me = new Store(null);

/** Why a key is asked for: "" while none is needed, else words. */
export const wanted = new Store("");

/** Number of valid keys that were entered. Requests that wait for a key retry when it grows. */
export const entered = new Store(0);

export function isKey(value) {
  return FORM.test(value);
}

/** Take a key that the server knows. who: whose it is. remember: also for the next session of this browser. */
export function keep(value, who, remember) {
  const [kept, other] = remember ? [localStorage, sessionStorage] : [sessionStorage, localStorage];
  kept.setItem(NAME, value);
  other.removeItem(NAME);
  key.set(value);
  me.set(who);
  wanted.set("");
  entered.set(entered.get() + 1);
}

/**
 * Forget the key, here and in the browser: other tabs that have it from there forget it too. This device rings no more.
 */
export function forget() {
  if (localStorage.getItem(ours("agent-server-rings")))
    import("./ring.js").then(({ stop }) => stop("")).catch(() => {});
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
  key.set("");
  me.set(null);
}

/** Roles of a person's grants by which the scope may hold in some conversations: there the server says where. */
const ROLES = { write: ["ask", "steer", "admin"], approve: ["approve", "admin"] };

/** Whether the key, or the person, may do what needs `scope`: read, write, approve or admin. */
export function may(scope) {
  const found = me.get();
  return Boolean(found?.scopes.includes(scope) || found?.grants?.some(({ role }) => ROLES[scope]?.includes(role)));
}

/** Take the key of a link, in this tab, once the person says so or where theirs is none that the server knows. */
export function takeOffered() {
  sessionStorage.setItem(NAME, offered.get());
  location.reload();
}

/**
 * The key in `#key=…` of the link that the server prints; the address and the history lose it at once. "" where there
 * is none, and where this browser has another one: whoever made the link could have the person work with a key of
 * theirs.
 */
function taken() {
  const found = /^#key=([^&]*)/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", location.pathname);
  const value = new URLSearchParams(found[0].slice(1)).get("key");
  if (!isKey(value)) return "";
  const present = sessionStorage.getItem(NAME) || localStorage.getItem(NAME);
  if (present && present !== value) {
    offered.set(value);
    return "";
  }
  sessionStorage.setItem(NAME, value);
  return value;
}

// the link may also be opened in a tab that has the page
addEventListener("hashchange", () => taken() && location.reload());

addEventListener("storage", (event) => {
  if (event.key !== NAME) return;
  if (event.newValue && wanted.get()) location.reload();
  const isOurs = event.oldValue === key.get() && !sessionStorage.getItem(NAME);
  if (!event.newValue && isOurs) forget();
});
