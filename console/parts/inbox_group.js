// A group of the inbox: the same command in several places, or commands that one rule would approve. It is decided at
// once when each command of it has been seen; a high risk never is.
import { useEffect, useRef, useState } from "preact/hooks";
import { decideAll, fateOf, fates, isGone } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { ends, nameOf } from "../lib/pending.js";
import { isOpen } from "../lib/places.js";
import { href } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { counted } from "../lib/words.js";
import { Arguments } from "./arguments.js";
import { askerOf } from "./asker.js";
import { DecisionButton } from "./connection.js";
import { Deadline } from "./deadline.js";
import { Lazy } from "./lazy.js";
import { tell } from "./notices.js";
import { Outcome } from "./outcome.js";
import {
  areMixed,
  highestRisk,
  patternOf,
  placeOf,
  quorumOf,
  riskOf,
  RISKS,
  titleOf,
  whyNot,
} from "./prompt_filters.js";
import { namesOf, RejectSeveral } from "./several.js";
import { onceHeld, useSteady } from "./steady.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

const loadAlways = () => import("./always.js");

/** Why a press on the group leaves some actions undecided, in a sentence; "" if there are none. left: those actions. */
function whyLeft(left) {
  if (!left.length) return "";
  const high = left.filter((item) => riskOf(item) === "HIGH").length,
    words = high === left.length ? "of high risk" : "not for this press";
  return left.length === 1
    ? `One is ${words}: open it alone to decide it.`
    : `${left.length} are ${words}: open each alone to decide it.`;
}

/**
 * items: those that wait. isSeen: each of their commands is shown; else a press shows them. open(form): "reject", or
 * "always".
 */
function GroupButtons({ items, since, isSeen, onSee, open, onAside }) {
  const [element, press] = useSteady(`${since} ${isSeen} ${namesOf(items)}`);
  const able = items.filter((item) => riskOf(item) !== "HIGH" && !whyNot(item)),
    left = items.filter((item) => !able.includes(item)),
    hasRule = able.some((item) => item.like);
  const why = whyLeft(left);
  const approve = (event) => {
    if (event.repeat) return;
    if (!isSeen) onSee();
    else if (able.length) press(event, () => decideAll(able, "approve"));
    else tell(why, "refused", element.current);
  };
  const once = (run) => (event) => !event.repeat && run();
  useShortcuts(
    {
      a: { label: "Approve the group, once its commands are shown", run: approve },
      r: { label: "Reject the group, with a reason", run: once(() => open("reject")) },
      ...(hasRule && { w: { label: "Always: a rule for what is like it", run: once(() => open("always")) } }),
      ...(onAside && { s: { label: "Skip: to the end of the list", run: (event) => press(event, onAside) } }),
    },
    "Decisions",
  );
  return html`<footer ref=${element} onKeyDown=${onceHeld}>
    ${isSeen && why && html`<p class="why" data-testid="why-left">${why}</p>`}
    ${
      !isSeen
        ? html`<button type="button" data-testid="see-group" aria-keyshortcuts="a"
          onClick=${approve}>Show all ${items.length} to approve them</button>`
        : able.length > 0 &&
          html`<${DecisionButton} data-testid="approve-group" aria-keyshortcuts="a" onClick=${approve}>
            ${left.length ? `Approve ${able.length} of ${items.length}` : `Approve all ${able.length}`}<//>`
    }
    <button type="button" class="secondary" data-testid="reject-group" aria-keyshortcuts="r"
      onClick=${() => open("reject")}>Reject all…</button>
    ${
      hasRule &&
      html`<button type="button" class="secondary" data-testid="always-group" aria-keyshortcuts="w"
      onClick=${() => open("always")}>Always…</button>`
    }
    ${
      onAside &&
      html`<button type="button" class="quiet" data-testid="skip" aria-keyshortcuts="s"
      onClick=${(event) => press(event, onAside)}>Skip</button>`
    }
  </footer>`;
}

/** One of the group: what it is of, how it ended, and its command where they differ. onShow(): opens it alone. */
function GroupMember({ place, hasCommand, onShow }) {
  const { item } = place,
    fate = fateOf(item),
    end = useStore(ends).get(nameOf(item));
  const where = item.asked_from ? askerOf(item.asked_from) : placeOf(item),
    quorum = quorumOf(item),
    risk = riskOf(item);
  const isEnded = !isOpen(place) || fate?.state === "taken" || fate?.state === "lost";
  return html`<li data-testid=${`member-${item.action_id}`}>
    <a href=${href("conversations", item.conversation_id)}><${Text} text=${titleOf(item)} prose /></a>
    <span class="facts">
      ${hasCommand && html`<span class=${`risk ${risk.toLowerCase()}`}>${RISKS[risk]}</span>`}
      ${quorum && html`<span data-testid="member-quorum"><${Text} text=${quorum} prose /></span>`}
      ${where && html`<span><${Text} text=${where} prose /></span>`}
      ${Object.entries(item.tags ?? {}).map(
        ([name, value]) => html`<span key=${name}><${Text} text=${value ? `${name}=${value}` : name} prose /></span>`,
      )}
      ${
        isEnded
          ? html`<span class="outcome"><${Outcome} fate=${fate} end=${end} /></span>`
          : html`<span>Asked <${Time} at=${item.since} /></span>
            ${item.expires_at && html`<${Deadline} at=${item.expires_at} />`}`
      }
      ${fate?.state === "sent" && html`<span aria-busy="true">Deciding</span>`}
      ${fate?.state === "failed" && html`<span class="high" role="alert">${fate.words}</span>`}
    </span>
    ${!isEnded && html`<button type="button" class="quiet" onClick=${onShow}>Open alone</button>`}
    ${
      hasCommand &&
      html`<div class="command-of"><${Arguments} tool=${item.tool_name} arguments=${item.arguments}
      isBrief /></div>`
    }
  </li>`;
}

/** The head of a group: what its commands have in common, and the highest of their risks. */
function GroupHead({ items, isMixed }) {
  const [item] = items,
    risk = highestRisk(items),
    number = counted(items.length, isMixed ? "action" : "time");
  return html`<header>
    <h2 id="of-group">
      ${isMixed ? html`${number} like <code><${Text} text=${patternOf(item)} /></code>` : `The same command, ${number}`}
      ${" "}<code class="tool"><${Text} text=${item.tool_name} /></code>
    </h2>
    <p class="facts">
      <span class=${`risk ${risk.toLowerCase()}`}>
        ${isMixed && new Set(items.map(riskOf)).size > 1 ? `Up to ${RISKS[risk].toLowerCase()}` : RISKS[risk]}</span>
    </p>
  </header>`;
}

/**
 * A group as it is shown beside the rows. places: of the group, those that have ended too. since, takesFocus, onAside:
 * as those of a prompt. show(key): opens one of them. isUnfolded: its rows are open; onUnfold(): opens them.
 */
export default function InboxGroup({ places, since, takesFocus, onAside, show, isUnfolded, onUnfold }) {
  const element = useRef(null),
    [form, open] = useState("");
  useStore(fates);
  const items = places.filter((place) => isOpen(place) && !isGone(place.item)).map(({ item }) => item),
    all = places.map((place) => place.item);
  const [item] = all,
    isMixed = areMixed(all),
    close = () => open("");
  useEffect(() => {
    if (takesFocus && document.activeElement === document.body) element.current.focus({ preventScroll: true });
  }, [items.length, form]);
  const summaries = new Set(all.map((one) => one.summary)),
    ruled = items.find((one) => one.like && riskOf(one) !== "HIGH" && !whyNot(one));
  const isSeen = !isMixed || isUnfolded;
  return html`<article ref=${element} class=${items.length ? "prompt card current" : "prompt card ended"} tabindex="-1"
    aria-labelledby="of-group" data-testid="alike">
    <${GroupHead} items=${items.length ? items : all} isMixed=${isMixed} />
    ${
      summaries.size === 1 &&
      item.summary &&
      html`<p class="summary"><${Text} text=${String(item.summary)} prose /></p>`
    }
    ${!isMixed && html`<${Arguments} tool=${item.tool_name} arguments=${item.arguments} />`}
    <ul class="members">${places.map(
      (place) =>
        html`<${GroupMember} key=${place.key} place=${place} hasCommand=${isMixed && isUnfolded}
      onShow=${() => show(place.key)} />`,
    )}</ul>
    <div class="decision" aria-live="polite">
      ${
        items.length > 0 &&
        may("approve") &&
        (form === "reject"
          ? html`<${RejectSeveral} items=${items} onCancel=${close} />`
          : html`<${GroupButtons} items=${items} since=${since} isSeen=${isSeen} onSee=${onUnfold} open=${open}
            onAside=${onAside} />`)
      }
      ${
        form === "always" &&
        ruled &&
        html`<${Lazy} load=${loadAlways} item=${ruled} others=${items.filter((one) => one !== ruled)}
        onClose=${close} />`
      }
    </div>
  </article>`;
}
