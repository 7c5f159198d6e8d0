// Where the person is: `#/conversations/ID?kind=MessageEvent` is {view: "conversations", id: "ID", query: {kind: …}}.
import { Store } from "./store.js";

function read() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", id = ""] = path.split("/").map(decoded);
  return { view: view || "inbox", id, query: Object.fromEntries(new URLSearchParams(search)) };
}

/** A part of an address; one that is not encoded as it should be stands as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = new Store(read());
addEventListener("hashchange", () => route.set(read()));

/** The address of a view. A query value of "", null or undefined is left out. */
export function href(view, id = "", query = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value != null));
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${search.size ? `?${search}` : ""}`;
}

/** Go to a view. */
export function go(view, id, query) {
  location.hash = href(view, id, query);
}

/**
 * Change the query of the present view. isStep: the browser's "back" undoes it, as for a tab, or a filter that is
 * chosen; what is typed is no step, and "back" leads to before it.
 */
export function setQuery(query, isStep = false) {
  const { view, id } = route.get(),
    to = href(view, id, query);
  if (to === href(view, id, route.get().query)) return;
  if (isStep) history.pushState(null, "", to);
  else history.replaceState(null, "", to);
  route.set(read());
}
