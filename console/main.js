// The page: its views, and what all of them share.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "./lib/api.js";
import { html } from "./lib/html.js";
import { askedNumber } from "./lib/destinations.js";
import { followPending, pending } from "./lib/pending.js";
import { go, href, route } from "./lib/router.js";
import { forget, key, may, me } from "./lib/session.js";
import { shown, useShortcuts } from "./lib/shortcuts.js";
import { useStore } from "./lib/store.js";
import { style } from "./lib/style.js";
import { useDecidable } from "./parts/asker.js";
import { Connection } from "./parts/connection.js";
import { KeyDialog } from "./parts/key_dialog.js";
import { Lazy } from "./parts/lazy.js";
import { Empty, Failure, Notices } from "./parts/notices.js";
import { ShortcutList } from "./parts/shortcut_list.js";

const TITLE = "Agent Server";

/** What waits before that is known. */
const NONE = [];

/** Milliseconds before the page asks again who it is, after that failed. */
const RETRY = 3_000;

/** The views: how each is called, how it is loaded, and the scope without which it is not offered. */
const VIEWS = {
  inbox: { label: "Inbox", load: () => import("./views/inbox.js") },
  conversations: { label: "Conversations", load: () => styled(import("./views/conversations.js"), "lists") },
  start: { label: "Start", load: () => styled(import("./views/start.js"), "lists"), scope: "write" },
  sandboxes: { label: "Sandboxes", load: () => styled(import("./views/sandboxes.js"), "lists") },
  rules: { label: "Rules", load: () => import("./views/rules.js") },
  keys: { label: "Keys", load: () => styled(import("./views/keys.js"), "lists"), scope: "admin" },
  audit: { label: "Audit", load: () => styled(import("./views/audit.js"), "lists"), scope: "admin" },
  status: { label: "Status", load: () => styled(import("./views/status.js"), "lists") },
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

function Badge() {
  const number = useDecidable(useStore(pending) ?? NONE) + useStore(askedNumber);
  useEffect(() => {
    document.title = number ? `(${number}) ${TITLE}` : TITLE;
  }, [number]);
  return number
    ? html`<span class="badge" data-testid="badge" aria-label=${`${number} waiting`}>${number}</span>`
    : null;
}

/** The views that are offered. It has its room before they are known, so that nothing below it moves. */
function Navigation({ view, who }) {
  const strip = useRef(null);
  useEffect(() => {
    // Of a narrow window. After scrollIntoView the next Tab would begin at the link, behind the ways past the navigation.
    const show = () => {
      const link = strip.current?.querySelector("[aria-current]");
      if (!link) return;
      const [inner, outer] = [link, strip.current].map((one) => one.getBoundingClientRect());
      strip.current.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
    };
    show();
    addEventListener("resize", show);
    return () => removeEventListener("resize", show);
  }, [view, who]);
  if (!who) return html`<nav aria-label="Views"></nav>`;
  const offered = Object.entries(VIEWS).filter(([, { scope }]) => !scope || may(scope));
  return html`<nav aria-label="Views" ref=${strip}>
    <ul>
      ${offered.map(
        ([name, { label }]) => html`<li key=${name}>
          <a href=${href(name)} aria-current=${name === view ? "page" : null}>${label}${name === "inbox" && html`<${Badge} />`}</a>
        </li>`,
      )}
    </ul>
  </nav>`;
}

/** The ways past the navigation for a keyboard: the first stops of Tab. A press moves the focus, and leaves the address. */
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
    ${viewOf(place) === CONVERSATION && html`<a href="#main" data-testid="skip-to-decision" onClick=${to(".waits-here article", ".composer textarea", ".timeline")}>Skip to the pending action or the message box</a>`}
  </p>`;
}

function View({ place }) {
  const found = viewOf(place);
  if (!found)
    return html`<${Empty} isPage title="There is nothing at this address"><a href=${href("inbox")}>Open the inbox</a><//>`;
  if (found.scope && !may(found.scope))
    return html`<${Empty} isPage title=${`${found.label}: not with this key`}>It needs a key with the scope “${found.scope}”.<//>`;
  return html`<${Lazy} key=${`${me.get().id} ${place.view} ${place.id}`} load=${found.load} place=${place} />`;
}

/** To the field that searches the present view, else to the view of all conversations. */
function search() {
  const field = /** @type {HTMLElement} */ (document.querySelector("[data-search]"));
  if (field) field.focus();
  else go("conversations");
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
  useEffect(() => {
    const timer = error && setTimeout(ask, RETRY);
    return () => clearTimeout(timer);
  }, [error]);
  useEffect(() => (who ? followPending() : undefined), [who]);
  useShortcuts({
    "?": { label: "Show the keys", run: () => shown.set(true) },
    "/": { label: "Search", run: () => search() },
  });
  return html`
    <header>
      <${Skips} place=${place} />
      <a class="brand" href=${href("inbox")}>${TITLE}</a>
      <${Navigation} view=${place.view} who=${who} />
      <${Notices} />
      <${Connection} />
      <p class="who"><span title=${who?.name}>${who?.name}</span> ${ownKey && html`<button type="button" class="quiet" data-testid="forget-key" onClick=${forget}>Forget the key</button>`}</p>
    </header>
    <main id="main" tabindex="-1">
      ${error ? html`<${Failure} error=${error} again=${ask} />` : who ? html`<${View} place=${place} />` : html`<p aria-busy="true">Loading</p>`}
    </main>
    <${KeyDialog} /><${ShortcutList} />
  `;
}

render(html`<${Page} />`, document.getElementById("console"));
// The next view is most often a conversation: its modules come while the page is idle, so that its rows show at once.
addEventListener("load", () => requestIdleCallback(() => CONVERSATION.load().catch(() => {})));
