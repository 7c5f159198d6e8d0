// Where an agent outside of sandboxes asks from: its name, its person, its machine and its folder, all in its own
// words; and whether its terminal asks too.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { millis, now } from "../lib/words.js";
import { Until } from "./deadline.js";
import { Text } from "./text.js";

/** Who runs it, and where: "ada@laptop". of: `asked_from` of an item, or `external` of a conversation. */
export function hostOf({ person, machine }) {
  return [person, machine].filter(Boolean).join("@");
}

/** "claude-code · ada@laptop · /home/ada/shop". */
export function askerOf(of) {
  return [of.agent, hostOf(of), of.folder].filter(Boolean).join(" · ");
}

/** Whether only its terminal can answer an item now: its hook waits no longer. */
export function isInTerminal({ asked_from: of }, at = Date.now()) {
  return Boolean(of) && (of.in_terminal || (of.kind === "permission" && millis(of.answerable_until) <= at));
}

/** As `isInTerminal`; a component is drawn again when that changes. */
export function useInTerminal(item) {
  const [is, set] = useState(false);
  const look = () => set(isInTerminal(item));
  useEffect(() => {
    look();
    return item.asked_from ? now.subscribe(look) : undefined;
  }, [item]);
  return is || isInTerminal(item);
}

/** How many items a person can decide here; a component is drawn again when that changes. */
export function useDecidable(items) {
  const count = () => items.filter((item) => !isInTerminal(item)).length;
  const [, set] = useState(0);
  useEffect(() => (items.some((item) => item.asked_from) ? now.subscribe(() => set(count())) : undefined), [items]);
  return count();
}

/** Why nobody decides such an item here. */
export function askedThere({ asked_from: of }) {
  return `It is asked in the terminal of ${hostOf(of)} now: answer it there.`;
}

/** Whether its terminal asks too, as a fact of a prompt. */
export function AtTerminal({ item }) {
  const isThere = useInTerminal(item),
    of = item.asked_from;
  if (!of) return null;
  const words = isThere
    ? "Asked in the terminal"
    : of.kind === "gate"
      ? "Asked here alone"
      : of.order === "races"
        ? "Also asked at its terminal"
        : html`Its terminal asks in <${Until} at=${of.answerable_until} />`;
  return html`<span data-testid="at-terminal">${words}</span>`;
}

/** A line that says whose agent it is. of: as of `hostOf`. */
export function Asker({ of }) {
  return html`<p class="asker" data-testid="asker" title="In the agent's own words">
    <strong><${Text} text=${of.agent} /></strong> <span><${Text} text=${hostOf(of)} /></span>${" "}
    ${of.folder && html`<code><${Text} text=${of.folder} /></code>`}
  </p>`;
}
