// The inbox: every pending action of every conversation, and what sandboxes ask for, live.
import { useMemo, useState } from "preact/hooks";
import { setWish, wish } from "../lib/announce.js";
import { askedNumber, budgetNumber, useAsked } from "../lib/destinations.js";
import { useIsFirst } from "../lib/first.js";
import { html } from "../lib/html.js";
import { alikeOf, byAge, nameOf, pending } from "../lib/pending.js";
import { href, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { style } from "../lib/style.js";
import { isInTerminal } from "../parts/asker.js";
import { InboxPanes } from "../parts/inbox_panes.js";
import { Lazy } from "../parts/lazy.js";
import { Empty, Loading } from "../parts/notices.js";
import { fits } from "../parts/prompt_filters.js";

/** Modules that most visits to the inbox do not need at once. */
const loadSeveral = () => import("../parts/several.js");
const loadStart = () => Promise.all([import("./start.js"), style("lists")]).then(([module]) => module);

function Wish() {
  const state = useStore(wish);
  if (state === "none" || matchMedia("(pointer: coarse)").matches)
    return html`<a class="quiet" href=${href("status")}>Ring this device</a>`;
  if (state === "denied") return html`<span class="muted">Your browser blocks notifications from this page.</span>`;
  const isOn = state === "on";
  return html`<button type="button" class="quiet" data-testid="notify" aria-pressed=${isOn}
    onClick=${() => setWish(!isOn)}>${isOn ? "Notifications are on" : "Notify me"}</button>`;
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
  const actions = useStore(pending),
    asked = useAsked(),
    items = useMemo(() => actions && [...asked, ...actions].sort(byAge), [actions, ...asked]);
  const budgets = useStore(budgetNumber),
    destinations = useStore(askedNumber) - budgets;
  const [names, choose, clear] = useChosen(),
    onChoose = may("approve") ? choose : undefined;
  const passes = (item) => fits(item, query);
  // a hidden item is not decided, unless its agent takes one decision for it and a shown item
  const chosen = (actions ?? []).filter((item) => names.has(nameOf(item)) && alikeOf(item).some(passes));
  const there = actions?.filter((item) => isInTerminal(item)).length ?? 0;
  const counts = [
    [(actions?.length ?? 0) - there, "action"],
    [destinations, "destination"],
    [budgets, "budget"],
  ].filter(([number]) => number);
  const count = counts
    .map(([number, word]) => `${number} ${word}${number === 1 ? "" : "s"}`)
    .join(", ")
    .replace(/, (?=[^,]*$)/, " and ");
  const isOne = counts.length === 1 && counts[0][0] === 1;
  const mayBeFirst = items?.length === 0 && may("write"),
    isFirst = useIsFirst(mayBeFirst),
    [isLeft, setLeft] = useState(false);
  // The form stays when an item begins to wait: a key that is typed into it must decide nothing.
  if (isFirst && !isLeft)
    return html`${
      items.length > 0 &&
      html`<p role="status">${count || `${there} in terminals`} ${isOne ? "waits" : "wait"} for your decision.${" "}
      <button type="button" class="quiet" data-testid="to-inbox"
        onClick=${() => setLeft(true)}>Open the inbox</button></p>`
    }<${Lazy} load=${loadStart} isInbox />`;
  return html`<section class="inbox" data-testid="inbox">
    <div class="bar">
      <h1 class="wide">Inbox</h1>
      <p class="muted" role="status">${count ? `${count} ${isOne ? "waits" : "wait"} for your decision` : ""}
        ${there > 0 && `${count ? ", " : ""}${there} in ${there === 1 ? "its terminal" : "their terminals"}`}</p>
      <${Wish} />
    </div>
    ${
      items === null
        ? html`<${Loading} />`
        : html`<${InboxPanes} items=${items} query=${query} chosen=${names} onChoose=${onChoose} />
          ${
            items.length > 0 &&
            !items.some(passes) &&
            html`<${Empty} title="Nothing that waits matches">
            <button type="button" class="secondary"
              onClick=${() => setQuery({ group: query.group }, true)}>Clear the filters</button>
          <//>`
          }
          ${chosen.length > 0 && html`<${Lazy} load=${loadSeveral} items=${chosen} onClear=${clear} />`}
          ${
            !items.length &&
            !(mayBeFirst && isFirst === null) &&
            html`<${Empty} title="Nothing waits for you">
            What needs a decision appears here by itself.
            ${
              may("write") ? html` Begin a <a href=${href("start")}>new conversation</a>, or look at the ` : " See the "
            }
            <a href=${href("conversations")}>conversations</a>.
          <//>`
          }`
    }
  </section>`;
}
