// The title of the document: what is in view, its state, and how much waits elsewhere.
import { useEffect } from "preact/hooks";
import { Store, useStore } from "./store.js";
import { beginning, visible } from "./visible.js";

export const PRODUCT = "Agent Server";

/** Most characters of a name. */
const MOST = 80;

/**
 * What a view says of itself: {name, state, number: of what waits in it}; null: its name in the navigation stands for
 * it.
 */
const subject = new Store(/** @type {{name: string, state: string, number: number} | null} */ (null));

/** A title: "(2) Mend the date parser · Waiting (1) – Agent Server", where 2 wait elsewhere. */
export function titleOf({ name, state = "", elsewhere = 0 }) {
  const shown = visible(beginning(name, MOST));
  return `${elsewhere > 0 ? `(${elsewhere}) ` : ""}${state ? `${shown} · ${state}` : shown} – ${PRODUCT}`;
}

/** Name what is in view. state: in words. number: of what waits for a decision in it. */
export function useSubject(name, state, number) {
  useEffect(() => subject.set({ name, state, number }), [name, state, number]);
  useEffect(() => () => subject.set(null), []);
}

/** Keep the title of the document. label: of the view. number: of all that waits. */
export function useTitle(label, number) {
  const own = useStore(subject) ?? { name: label, state: "", number: 0 };
  useEffect(() => {
    document.title = titleOf({ ...own, elsewhere: number - own.number });
  }, [own.name, own.state, number - own.number]);
}
