// The conversations that a person has seen of late in this tab, for the palette. They go with the key.
import { ours } from "./root.js";
import { me } from "./session.js";

const NAME = ours("agent-server-recent");

/** Most that are kept. */
const MOST = 8;

/** The latest first: [{id, title}]; none of somebody else's. */
export function recent() {
  try {
    const { of, items } = JSON.parse(sessionStorage.getItem(NAME) ?? "{}");
    return of === me.get()?.id && Array.isArray(items) ? items : [];
  } catch {
    return [];
  }
}

/** Note that a conversation is seen. */
export function remember(id, title) {
  const items = [{ id, title }, ...recent().filter((one) => one.id !== id)].slice(0, MOST);
  try {
    sessionStorage.setItem(NAME, JSON.stringify({ of: me.get()?.id, items }));
  } catch {
    // the browser's session is full: the palette finds the conversation by its title
  }
}
