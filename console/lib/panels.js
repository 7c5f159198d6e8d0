// The panels that a person has opened. A panel stays open in every conversation until the person closes it.
import { ours } from "./root.js";
import { Store, useStore } from "./store.js";

const NAME = ours("agent-server-panels");

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(NAME) ?? "{}");
    return found && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

const panels = new Store(read());

/**
 * Whether a panel is open, and what opens and closes it: [isOpen, set(isOpen)]. name: "filters", "plot", "details",
 * "wire", "unwrapped".
 */
export function usePanel(name) {
  const isOpen = useStore(panels)[name] === true;
  const set = (next) => {
    panels.set({ ...panels.get(), [name]: next });
    try {
      localStorage.setItem(NAME, JSON.stringify(panels.get()));
    } catch {
      // the browser stores nothing: the panel is open until the person leaves the page
    }
  };
  return /** @type {const} */ ([isOpen, set]);
}
