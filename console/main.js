// The page: its views and what they share.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "./lib/api.js";
import { html } from "./lib/html.js";
import { setWish, wish } from "./lib/announce.js";
import { askedNumber } from "./lib/destinations.js";
import { followPending, pending } from "./lib/pending.js";
import { useAgain } from "./lib/read.js";
import { go, href, route } from "./lib/router.js";
import { forget, key, may, me, offered, wanted } from "./lib/session.js";
import { begun, opened, useShortcuts } from "./lib/shortcuts.js";
import { useStore } from "./lib/store.js";
import { style } from "./lib/style.js";
import { PRODUCT, useTitle } from "./lib/title.js";
import { useDecidable } from "./parts/asker.js";
import { Connection, Strip } from "./parts/connection.js";
import { Lazy } from "./parts/lazy.js";
import { Navigation } from "./parts/navigation.js";
import { Empty, Failure, Loading, Notices } from "./parts/notices.js";

/** The pending items before they are known. */
const NONE = [];

/**
 * The views: how each is called, how it is loaded, the key after `g` that leads to it, and the scope without which it
 * is not offered.
 */
const VIEWS = {
  inbox: { label: "Inbox", key: "i", load: () => import("./views/inbox.js") },
  conversations: { label: "Conversations", key: "c", load: () => styled(import("./views/conversations.js"), "lists") },
  start: { label: "New", load: () => styled(import("./views/start.js"), "lists"), scope: "write" },
  sandboxes: { label: "Sandboxes", key: "s", load: () => styled(import("./views/sandboxes.js"), "lists") },
  rules: { label: "Rules", key: "r", load: () => import("./views/rules.js") },
  keys: { label: "Keys", key: "k", load: () => styled(import("./views/keys.js"), "lists"), scope: "admin" },
  audit: { label: "Audit", key: "a", load: () => styled(import("./views/audit.js"), "lists"), scope: "admin" },
  status: { label: "Status", key: "t", load: () => styled(import("./views/status.js"), "lists") },
};

/** The view of one conversation has a file of its own. */
const CONVERSATION = {
  label: "Conversation",
  load: () => styled(import("./views/conversation.js"), "conversation", "lists"),
};

/** A module whose component is shown with style sheets of its own. */
async function styled(module, ...names) {
  await Promise.all(names.map(style));
  return module;
}

function viewOf({ view, id }) {
  if (view === "conversations" && id) return CONVERSATION;
  return Object.hasOwn(VIEWS, view) ? VIEWS[view] : null;
}

/** Name of the modifier key of shortcuts on this machine. */
const MODIFIER = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";

/** Overlays, each loaded at its first use. */
const loadKeyDialog = () => import("./parts/key_dialog.js"),
  LOADS = {
    palette: () => styled(import("./parts/palette.js"), "palette"),
    shortcuts: () => styled(import("./parts/shortcut_list.js"), "palette"),
  };

/** The number of all that can be decided here. */
const useWaiting = () => useDecidable(useStore(pending) ?? NONE) + useStore(askedNumber);

function Badge() {
  const number = useWaiting();
  return number
    ? html`<span class="badge" data-testid="badge" aria-label=${`${number} waiting`}>${number}</span>`
    : null;
}

/**
 * The ways past the navigation for a keyboard: the first stops of Tab. A press moves the focus, and leaves the address.
 */
function Skips({ place }) {
  const to =
    (...selectors) =>
    (event) => {
      event.preventDefault();
      const found = selectors.map((selector) => document.querySelector(selector)).find(Boolean);
      found?.focus();
      found?.scrollIntoView({ block: "nearest" });
    };
  return html`<p class="skips">
    <a href="#main" data-testid="skip" onClick=${to("#main")}>Skip to content</a>
    ${
      viewOf(place) === CONVERSATION &&
      html`<a href="#main" data-testid="skip-to-decision"
      onClick=${to(".waits-here article", ".composer textarea", ".timeline")}>Skip to the pending action or the
      message box</a>`
    }
  </p>`;
}

function ShownView({ place }) {
  const found = viewOf(place);
  if (!found)
    return html`<${Empty} isPage title="There is nothing at this address"><a
      href=${href("inbox")}>Open the inbox</a><//>`;
  if (found.scope && !may(found.scope))
    return html`<${Empty} isPage
      title=${`${found.label}: not with this key`}>It needs a key with the scope “${found.scope}”.<//>`;
  return html`<${Lazy} key=${`${me.get().id} ${place.view} ${place.id}`} load=${found.load} place=${place} />`;
}

/** Focus the search field of the present view. Without one, show all conversations. */
function search() {
  const field = /** @type {HTMLElement} */ (document.querySelector("[data-search]"));
  if (field) field.focus();
  else go("conversations");
}

/** The shortcuts of every view. */
function useOwnShortcuts() {
  const offered = Object.entries(VIEWS).filter(([, { key, scope }]) => key && (!scope || may(scope)));
  useShortcuts(
    Object.fromEntries(offered.map(([name, { label, key }]) => [`g ${key}`, { label, run: () => go(name) }])),
    "Go to",
  );
  useShortcuts(
    {
      ...(may("write") && { n: { label: "New conversation", run: () => go("start") } }),
      "/": { label: "Search", run: () => search() },
      [`${MODIFIER}+K`]: { label: "Search everything: views, conversations, actions" },
      "?": { label: "Keyboard shortcuts", run: () => opened.set("shortcuts") },
    },
    "Everywhere",
  );
  useShortcuts(
    {
      ...(key.get() && { ":forget": { label: "Forget the key of this browser", run: forget } }),
      ...(["on", "off"].includes(wish.get()) && {
        ":notify": {
          label: `Turn notifications ${wish.get() === "on" ? "off" : "on"}`,
          run: () => setWish(wish.get() !== "on"),
        },
      }),
    },
    "Settings",
  );
}

/** The first key of a sequence, and its possible next keys. */
function Begun() {
  const keys = useStore(begun);
  const names = Object.entries(VIEWS).filter(([, { key, scope }]) => key && (!scope || may(scope)));
  return html`<p class="begun" role="status" data-testid="begun" hidden=${!keys}>${
    keys && names.map(([, { label, key }]) => html`<span key=${key}><kbd>${key}</kbd> ${label}</span>`)
  }</p>`;
}

/** The open overlay. */
function Over() {
  const name = useStore(opened),
    isWanted = useStore(wanted) !== "",
    isOffered = useStore(offered) !== "";
  return html`<div class="over">
    ${(isWanted || isOffered) && html`<${Lazy} load=${loadKeyDialog} />`}
    ${name && html`<${Lazy} key=${name} load=${LOADS[name]} />`}
  </div><${Begun} />`;
}

function Page() {
  const place = useStore(route);
  const who = useStore(me);
  const ownKey = useStore(key);
  const [error, setError] = useState(null);
  const ask = () => {
    const answered = (found, fault) => {
      setError(fault?.status === 401 ? null : fault);
      if (found) me.set(found);
    };
    if (me.get()) setError(null);
    else
      call("GET /api/v1/users/me").then(
        (found) => answered(found, null),
        (fault) => answered(null, fault),
      );
  };
  useEffect(ask, [ownKey]);
  useAgain(error, ask);
  useEffect(() => (who ? followPending() : undefined), [who]);
  useOwnShortcuts();
  useTitle(viewOf(place)?.label ?? "Not found", useWaiting());
  return html`
    <${Strip} />
    <header>
      <${Skips} place=${place} />
      <a class="brand" href=${href("inbox")}>${PRODUCT}</a>
      <button type="button" class="secondary to-palette" data-testid="open-palette"
        onClick=${() => opened.set("palette")}>Search <kbd>${MODIFIER} K</kbd></button>
      <${Navigation} views=${VIEWS} view=${place.view} who=${who} badge=${html`<${Badge} />`} />
      <${Connection} />
      <p class="who"><span title=${who?.name}>${who?.name}
        </span> ${
          ownKey &&
          html`<button type="button" class="quiet" data-testid="forget-key"
        onClick=${forget}>Forget the key</button>`
        }</p>
    </header>
    <main id="main" tabindex="-1">
      ${
        error
          ? html`<${Failure} error=${error} again=${ask} />`
          : who
            ? html`<${ShownView} place=${place} />`
            : html`<${Loading} />`
      }
    </main>
    <${Notices} /><${Over} />
  `;
}

render(html`<${Page} />`, document.getElementById("console"));
// The next view is most often a conversation: its modules come while the page is idle, so that its rows show at once.
addEventListener("load", () => requestIdleCallback(() => CONVERSATION.load().catch(() => {})));
