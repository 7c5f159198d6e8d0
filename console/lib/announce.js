// Browser notifications about pending items: only if the person wants them, and only while the page is hidden.
import { ours } from "./root.js";
import { go } from "./router.js";
import { me } from "./session.js";
import { Store } from "./store.js";
import { beginning, visible } from "./visible.js";

const NAME = ours("agent-server-notifications");

/** Storage key of the id of this device while it rings by push. Then the page shows no notification itself. */
export const RINGS = ours("agent-server-rings");

/** Maximum length of a title in a notification, in characters. */
const MOST = 80;

/** State of notifications: "on", "off", "denied" by the browser, or "none" if the browser does not support them. */
export const wish = new Store(state());

function state() {
  if (!("Notification" in window) || !window.isSecureContext) return "none";
  if (Notification.permission === "denied") return "denied";
  return Notification.permission === "granted" && localStorage.getItem(NAME) === "on" ? "on" : "off";
}

/** Turn notifications on or off. The browser asks the person once. */
export async function setWish(isOn) {
  if (isOn) await Notification.requestPermission();
  localStorage.setItem(NAME, isOn ? "on" : "off");
  wish.set(state());
}

let waiting = 0,
  shown = null;

/** Go to the event of the only pending action. If several items are pending, go to the inbox. */
function lead({ conversation_id: id, action_id: event }) {
  if (waiting < 2 && event) go("conversations", id, { event });
  else go("inbox");
}

/** Announce a new pending item. One notification covers all items that arrived while the page was hidden. */
export function announce(item) {
  if (!document.hidden || wish.get() !== "on" || localStorage.getItem(RINGS)) return;
  waiting++;
  const title = visible(beginning(item.conversation_title || "A conversation", MOST));
  const more = waiting > 1 ? `, and ${waiting - 1} more` : "";
  const of = item.asked_from,
    where = of ? ` of ${visible(beginning(of.agent, MOST))} on ${visible(beginning(of.machine, MOST))}` : "";
  const body = `${visible(beginning(item.tool_name, MOST))}${where} waits for your decision${more}.`;
  shown?.close();
  try {
    shown = new Notification(title, { body, tag: "pending" });
  } catch {
    wish.set("none"); // mobile browsers have the constructor, but it throws
    return;
  }
  shown.onclick = () => {
    lead(item); // before the page becomes visible, which resets the count
    window.focus();
    shown?.close();
  };
}

addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  waiting = 0;
  shown?.close();
  shown = null;
});

me.subscribe(
  () => me.get() && localStorage.getItem(RINGS) && import("./ring.js").then(({ renew }) => renew()).catch(() => {}),
);
