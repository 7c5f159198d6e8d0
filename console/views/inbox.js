// The inbox: every pending action of every conversation, and what sandboxes ask for, live.
import { useEffect, useRef, useState } from "preact/hooks";
import { setWish, wish } from "../lib/announce.js";
import { decideAll } from "../lib/decide.js";
import { asked, askedNumber, budgetNumber } from "../lib/destinations.js";
import { html } from "../lib/html.js";
import { alikeOf, nameOf, pending } from "../lib/pending.js";
import { href, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { DestinationList } from "../parts/destination.js";
import { Empty } from "../parts/notices.js";
import { byGroup, fits, riskOf, RISKS } from "../parts/prompt_filters.js";
import { PromptIndex } from "../parts/prompt_index.js";
import { PromptList } from "../parts/prompt_list.js";
import { onEnter, onEscape } from "../parts/reject.js";
import { onceHeld, useSteady } from "../parts/steady.js";

function Wish() {
  const state = useStore(wish);
  if (state === "none") return null;
  if (state === "denied") return html`<span class="muted">Your browser blocks notifications from this page.</span>`;
  const isOn = state === "on";
  return html`<button type="button" class="quiet" data-testid="notify" aria-pressed=${isOn}
    onClick=${() => setWish(!isOn)}>${isOn ? "Notifications are on" : "Notify me"}</button>`;
}

function RejectSeveral({ items, onCancel }) {
  const [element, press] = useSteady();
  const [reason, setReason] = useState("");
  const field = useRef(null);
  useEffect(() => field.current.focus({ preventScroll: true }), []);
  const submit = (event) =>
    press(event, () => decideAll(items, "reject", reason.trim() ? { reason: reason.trim() } : {}));
  return html`<form ref=${element} onSubmit=${submit} onKeyDown=${onEscape(onCancel)}>
    <textarea rows="1" ref=${field} maxlength="2000" aria-label="Why are they rejected?"
      placeholder="Reason (optional). The agents read it when they continue." data-testid="reason-for-all" value=${reason}
      onInput=${(event) => setReason(event.target.value)} onKeyDown=${onEnter(submit)}></textarea>
    <button type="submit" class="danger" data-testid="reject-all">Reject ${items.length}</button>
    <button type="button" class="quiet" onClick=${onCancel}>Cancel</button>
  </form>`;
}

function SeveralButtons({ items, onReject, onClear }) {
  const [element, press] = useSteady();
  const approve = (event) => press(event, () => decideAll(items, "approve"));
  useShortcuts({
    A: { label: "Approve all that are chosen", run: approve },
    R: { label: "Reject all that are chosen", run: onReject },
  });
  return html`<div ref=${element} onKeyDown=${onceHeld}>
    <button type="button" data-testid="approve-all" onClick=${approve}>Approve ${items.length}</button>
    <button type="button" class="secondary" data-testid="reject-chosen" onClick=${onReject}>Reject…</button>
    <button type="button" class="quiet" onClick=${onClear}>Clear</button>
  </div>`;
}

/** The risks of items, in words, the highest first: "2 high, 7 low risk". */
function risksOf(items) {
  const numbers = Object.keys(RISKS).map((risk) => [risk, items.filter((item) => riskOf(item) === risk).length]);
  const words = numbers.filter(([, number]) => number).map(([risk, number]) => `${number} ${risk.toLowerCase()}`);
  return `${words.join(", ")} risk`;
}

/** One decision for all that are chosen; those of one conversation go in one request. */
function Several({ items, onClear }) {
  const [isRejecting, setRejecting] = useState(false);
  return html`<div class="several" data-testid="several">
    <p><strong>${items.length} chosen</strong> <span class="muted">${risksOf(items)}</span></p>
    ${
      isRejecting
        ? html`<${RejectSeveral} items=${items} onCancel=${() => setRejecting(false)} />`
        : html`<${SeveralButtons} items=${items} onReject=${() => setRejecting(true)} onClear=${onClear} />`
    }
  </div>`;
}

/** What is chosen: [set of names, choose(items, isChosen), clear()]. What is decided together is chosen together. */
function useChosen() {
  const [names, setNames] = useState(new Set());
  const choose = (items, isChosen) => {
    const changed = new Set(names);
    for (const one of items.flatMap(alikeOf)) changed[isChosen ? "add" : "delete"](nameOf(one));
    setNames(changed);
  };
  return /** @type {const} */ ([names, choose, () => setNames(new Set())]);
}

export default function Inbox({ place: { query } }) {
  const items = useStore(pending),
    shown = useStore(asked)?.length ?? 0;
  const budgets = useStore(budgetNumber),
    destinations = useStore(askedNumber) - budgets;
  const [names, choose, clear] = useChosen(),
    onChoose = may("approve") ? choose : undefined;
  const passes = (item) => fits(item, query);
  // what a filter hides is not decided, unless its agent decides it with something that is shown
  const chosen = (items ?? []).filter((item) => names.has(nameOf(item)) && alikeOf(item).some(passes));
  const counts = [
    [items?.length ?? 0, "action"],
    [destinations, "destination"],
    [budgets, "budget"],
  ].filter(([number]) => number);
  const count = counts
    .map(([number, word]) => `${number} ${word}${number === 1 ? "" : "s"}`)
    .join(", ")
    .replace(/, (?=[^,]*$)/, " and ");
  const isOne = counts.length === 1 && counts[0][0] === 1;
  return html`<section class="inbox" data-testid="inbox">
    <div class="bar">
      <h1 class="wide">Inbox</h1>
      <p class="muted" role="status">${count ? `${count} ${isOne ? "waits" : "wait"} for your decision` : ""}</p>
      <${Wish} />
    </div>
    ${
      items === null
        ? html`<p aria-busy="true">Loading</p>`
        : html`<${DestinationList} />
          <div class="split">
            <${PromptList} items=${items} chosen=${names} onChoose=${onChoose} passes=${passes} order=${byGroup(items, query)} scope=${JSON.stringify(query)}
              index=${(shownThere) => html`<${PromptIndex} all=${items} query=${query} chosen=${names} onChoose=${onChoose} ...${shownThere} />`} />
          </div>
          ${
            items.length > 0 &&
            !items.some(passes) &&
            html`<${Empty} title="Nothing that waits matches">
            <button type="button" class="secondary" onClick=${() => setQuery({ group: query.group })}>Clear the filters</button>
          <//>`
          }
          ${chosen.length > 0 && html`<${Several} items=${chosen} onClear=${clear} />`}
          ${
            !items.length &&
            !shown &&
            html`<${Empty} title="Nothing waits for you">
            What needs a decision appears here by itself.
            ${may("write") ? html` <a href=${href("start")}>Start a conversation</a>, or look at the ` : " See the "}
            <a href=${href("conversations")}>conversations</a>.
          <//>`
          }`
    }
  </section>`;
}
