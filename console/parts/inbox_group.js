// The same command in several places, decided at once: the command, and what each of them is of.
import { useEffect, useRef, useState } from "preact/hooks";
import { decideAll, fates, isGone } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { ends, nameOf } from "../lib/pending.js";
import { isOpen } from "../lib/places.js";
import { href } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { counted } from "../lib/words.js";
import { Arguments } from "./arguments.js";
import { Deadline } from "./deadline.js";
import { Outcome } from "./outcome.js";
import { riskOf, RISKS, titleOf } from "./prompt_filters.js";
import { namesOf, RejectSeveral } from "./several.js";
import { lookOf, onceHeld, useSecondPress, useSteady } from "./steady.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

function Buttons({ items, since, onReject, onAside }) {
  const [element, press] = useSteady(`${since} ${namesOf(items)}`);
  const isHigh = items.some((item) => riskOf(item) === "HIGH"),
    [isAsked, confirm] = useSecondPress(isHigh);
  const approve = (event) => press(event, () => confirm(() => decideAll(items, "approve")));
  useShortcuts({
    a: { label: "Approve the group", run: approve },
    r: { label: "Reject the group, with a reason", run: (event) => !event.repeat && onReject() },
    ...(onAside && { n: { label: "Not now: to the end of the list", run: (event) => press(event, onAside) } }),
  });
  return html`<footer ref=${element} onKeyDown=${onceHeld}>
    <button type="button" class=${lookOf(isHigh, isAsked)} data-testid="approve-group" title="Key: a"
      onClick=${approve}>${isAsked ? "High risk: press again to approve" : `Approve all ${items.length}`}</button>
    <button type="button" class="secondary" data-testid="reject-group" title="Key: r" onClick=${onReject}>Reject all…</button>
    ${
      onAside &&
      html`<button type="button" class="quiet" data-testid="not-now" title="Key: n"
      onClick=${(event) => press(event, onAside)}>Not now</button>`
    }
  </footer>`;
}

/** One of the group: what it is of, and how it ended. onShow(): opens it alone. */
function Member({ place, onShow }) {
  const { item } = place,
    fate = useStore(fates).get(nameOf(item)),
    end = useStore(ends).get(nameOf(item));
  const isEnded = !isOpen(place) || fate?.state === "taken" || fate?.state === "lost";
  return html`<li data-testid=${`member-${item.action_id}`}>
    <a href=${href("conversations", item.conversation_id)}><${Text} text=${titleOf(item)} prose /></a>
    <span class="facts">
      ${Object.entries(item.tags ?? {}).map(([name, value]) => html`<span key=${name}><${Text} text=${value ? `${name}=${value}` : name} prose /></span>`)}
      ${
        isEnded
          ? html`<span class="outcome"><${Outcome} fate=${fate} end=${end} /></span>`
          : html`<span>Asked <${Time} at=${item.since} /></span>${item.expires_at && html`<${Deadline} at=${item.expires_at} />`}`
      }
      ${fate?.state === "sent" && html`<span aria-busy="true">Deciding</span>`}
      ${fate?.state === "failed" && html`<span class="high" role="alert">${fate.words}</span>`}
    </span>
    ${!isEnded && html`<button type="button" class="quiet" onClick=${onShow}>Open alone</button>`}
  </li>`;
}

/**
 * A group as it is shown beside the rows. places: of the same command and risk, those that have ended too. since,
 * takesFocus, onAside: as those of a prompt. show(key): opens one of them.
 */
export default function InboxGroup({ places, since, takesFocus, onAside, show }) {
  const element = useRef(null),
    [isRejecting, setRejecting] = useState(false);
  useStore(fates);
  const items = places.filter((place) => isOpen(place) && !isGone(place.item)).map(({ item }) => item);
  const [{ item }] = places,
    risk = riskOf(item);
  useEffect(() => {
    if (takesFocus && document.activeElement === document.body) element.current.focus({ preventScroll: true });
  }, [items.length, isRejecting]);
  const summaries = new Set(places.map((place) => place.item.summary));
  return html`<article ref=${element} class=${items.length ? "prompt card current" : "prompt card ended"} tabindex="-1" aria-labelledby="of-group" data-testid="alike">
    <header>
      <h2 id="of-group">The same command, ${counted(places.length, "time")} <code class="tool"><${Text} text=${item.tool_name} /></code></h2>
      <p class="facts"><span class=${`risk ${risk.toLowerCase()}`}>${RISKS[risk]}</span></p>
    </header>
    ${summaries.size === 1 && item.summary && html`<p class="summary"><${Text} text=${String(item.summary)} prose /></p>`}
    <${Arguments} arguments=${item.arguments} />
    <ul class="members">${places.map((place) => html`<${Member} key=${place.key} place=${place} onShow=${() => show(place.key)} />`)}</ul>
    <div class="decision" aria-live="polite">
      ${
        items.length > 0 &&
        may("approve") &&
        (isRejecting
          ? html`<${RejectSeveral} items=${items} onCancel=${() => setRejecting(false)} />`
          : html`<${Buttons} items=${items} since=${since} onReject=${() => setRejecting(true)} onAside=${onAside} />`)
      }
    </div>
  </article>`;
}
