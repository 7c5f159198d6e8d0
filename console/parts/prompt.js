// One pending action: the whole of what will run, and the decisions of a person about it.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { decide, fates } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { alikeOf, ends, nameOf } from "../lib/pending.js";
import { href } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { Asker, AtTerminal, useInTerminal } from "./asker.js";
import { Arguments, isIncomplete, isObject } from "./arguments.js";
import { DecisionButton } from "./connection.js";
import { Deadline } from "./deadline.js";
import { Lazy } from "./lazy.js";
import { Outcome } from "./outcome.js";
import { effectsOf, quorumOf, riskOf, RISKS, titleOf, whyNot } from "./prompt_filters.js";
import { Reject } from "./reject.js";
import { Folded, SAID, Text } from "./text.js";
import { Time } from "./time.js";
import { visible } from "../lib/visible.js";
import { lookOf, onceHeld, useSecondPress, useSteady } from "./steady.js";

/** Characters of a title before "show more". */
const TITLE = 200;

function PromptHead({ item, isEnded, isHere }) {
  const title = titleOf(item),
    risk = riskOf(item);
  return html`<header>
    <h2 id=${`of-${item.action_id}`}>
      ${
        !isHere &&
        html`<a href=${href("conversations", item.conversation_id)}><${Folded} text=${title} length=${TITLE}>
        ${(text) => html`<${Text} text=${text} prose />`}<//></a>${" "}`
      }
      <code class="tool"><${Text} text=${item.tool_name} /></code>
    </h2>
    ${item.asked_from && !isHere && html`<${Asker} of=${item.asked_from} />`}
    <p class="facts">
      <span class=${`risk ${risk.toLowerCase()}`}>${RISKS[risk]}</span>
      <${Seen} item=${item} risk=${risk} />
      ${quorumOf(item) && html`<span data-testid="quorum"><${Text} text=${quorumOf(item)} prose /></span>`}
      <span>Asked <${Time} at=${item.since} /></span>
      ${!isEnded && html`<${AtTerminal} item=${item} />`}
      ${item.expires_at && !isEnded && html`<${Deadline} at=${item.expires_at} />`}
      ${!isHere && item.sandbox_id && html`<a href=${href("sandboxes", item.sandbox_id)}>Sandbox</a>`}
    </p>
  </header>`;
}

/** What the server sees of it, and the agent's own word where it is another. */
function Seen({ item, risk }) {
  const effects = effectsOf(item);
  return html`${
    effects.length > 0 &&
    html`<span class="seen" data-testid="seen">${effects.map(
      ({ effect, words, because }, place) =>
        html`${place > 0 && " · "}<span key=${effect} title=${visible(because)}><${Text} text=${words} prose /></span>`,
    )}</span>`
  }
  ${
    item.security_risk !== risk &&
    !item.asked_from &&
    html`<span data-testid="agents-word">The agent
    says: ${(RISKS[item.security_risk] ?? RISKS.UNKNOWN).toLowerCase()}</span>`
  }`;
}

/** What the agent says of it, folded. name: "summary" or "thought". */
function PromptSaid({ text, name }) {
  return text
    ? html`<p class=${name}><${Folded} text=${String(text)} ...${SAID}>
    ${(shown) => html`<${Text} text=${shown} prose />`}<//></p>`
    : null;
}

/**
 * The buttons of a person who may decide. open(panel): shows a form in their place. since: 0 where no key chose the
 * prompt.
 */
function PromptButtons({ item, isCurrent, since, open, onAside }) {
  const [element, press] = useSteady(since);
  const isOfSeveral = () => alikeOf(item).length > 1;
  const refusal = whyNot(item),
    isHigh = riskOf(item) === "HIGH",
    isThere = useInTerminal(item),
    [isAsked, confirm] = useSecondPress(isHigh);
  const approve = (event) =>
    press(event, () => {
      if (refusal) return;
      if (isOfSeveral()) open({ name: "together", verb: "approve" });
      else confirm(() => decide([item], "approve"));
    });
  const reject = () => open({ name: isOfSeveral() ? "together" : "reject", verb: "reject" });
  const canEdit = !isThere && item.can.includes("edit") && isObject(item.arguments),
    canReject = !isThere && item.can.includes("reject"),
    canAlways = isObject(item.arguments) && !isIncomplete(item.arguments) && !refusal;
  const once = (run) => (event) => !event.repeat && run();
  useShortcuts(
    isCurrent && {
      a: { label: "Approve the prompt", run: approve },
      r: { label: "Reject it, with a reason", run: once(() => canReject && reject()) },
      e: { label: "Change its arguments and approve", run: once(() => canEdit && open({ name: "edit" })) },
      w: { label: "Always: a rule for what is like it", run: once(() => canAlways && open({ name: "always" })) },
      ...(onAside && { s: { label: "Skip: to the end of the list", run: (event) => press(event, onAside) } }),
    },
    "Decisions",
  );
  return html`<footer ref=${element} onKeyDown=${onceHeld}>
    ${refusal && html`<p class="why" id=${`why-${item.action_id}`} data-testid="why-not">${refusal}</p>`}
    ${
      !isThere &&
      html`<${DecisionButton} class=${refusal ? "secondary" : lookOf(isHigh, isAsked)} data-testid="approve"
        aria-keyshortcuts="a"
      disabled=${Boolean(refusal)} aria-describedby=${refusal ? `why-${item.action_id}` : undefined}
      onClick=${approve}>${isAsked ? "High risk: press again to approve" : "Approve"}<//>`
    }
    ${
      canReject &&
      html`<button type="button" class="secondary" data-testid="reject" aria-keyshortcuts="r"
        onClick=${reject}>Reject…</button>`
    }
    ${
      canEdit &&
      html`<button type="button" class="secondary" data-testid="edit" aria-keyshortcuts="e"
      onClick=${() => open({ name: "edit" })}>Edit…</button>`
    }
    ${
      canAlways &&
      html`<button type="button" class="secondary" data-testid="always" aria-keyshortcuts="w"
      onClick=${() => open({ name: "always" })}>Always…</button>`
    }
    ${
      onAside &&
      html`<button type="button" class="quiet" data-testid="skip" aria-keyshortcuts="s"
      onClick=${(event) => press(event, onAside)}>Skip</button>`
    }
  </footer>`;
}

/** The forms that are loaded when they are first opened. */
const LOADS = {
  edit: () => import("./edit.js"),
  always: () => import("./always.js"),
  together: () => import("./together.js"),
};

/** The buttons, or the form that one of them opened in their place or as a dialog; after a failure its words. */
function Decision({ item, fate, ...others }) {
  const [panel, open] = useState(null);
  const form = { item, items: alikeOf(item), verb: panel?.verb, onClose: () => open(null) };
  const lazy = panel?.name in LOADS && html`<${Lazy} load=${LOADS[panel.name]} ...${form} />`,
    isDialog = panel?.name === "always";
  let shown = html`<${PromptButtons} item=${item} open=${open} ...${others} />`;
  if (panel?.name === "reject") shown = html`<${Reject} ...${form} />`;
  else if (lazy && !isDialog) shown = lazy;
  return html`${
    fate?.state === "failed" && html`<p class="failed" role="alert" data-testid="problem">${fate.words}</p>`
  }${shown}${isDialog && lazy}`;
}

/** The ended prompt keeps its height, so that nothing comes under the hand that pressed. */
function useKeptHeight(isEnded) {
  const element = useRef(null),
    height = useRef(0);
  useLayoutEffect(() => {
    if (!isEnded) height.current = element.current.getBoundingClientRect().height;
  });
  return /** @type {const} */ ([element, isEnded && height.current ? { minHeight: `${height.current}px` } : {}]);
}

/**
 * A pending action, as an item of the list of pending actions.
 *
 * ended: it waits no longer, and is still shown; "aside": it stands at the end of the list now.
 * isHere: the view of its own conversation shows it. isBrief: nothing is below it, so that it may shrink to how it
 * ended.
 * isCurrent: the keys of the keyboard are its; since: when the keyboard chose it, of performance.now().
 * takesFocus: where nothing has the focus, it has. onFocus(), onAside(): of a list.
 */
export function Prompt({
  item,
  ended = /** @type {boolean | string} */ (false),
  isHere = false,
  isBrief = false,
  isCurrent = false,
  since = 0,
  takesFocus = true,
  onFocus = undefined,
  onAside = undefined,
}) {
  const fate = useStore(fates).get(nameOf(item)),
    end = useStore(ends).get(nameOf(item));
  const isSent = fate?.state === "sent",
    isEnded = Boolean(ended) || fate?.state === "taken";
  const [element, style] = useKeptHeight(isSent || isEnded);
  useEffect(() => {
    const isFree = takesFocus && document.activeElement === document.body;
    if (isCurrent && isFree) element.current.focus({ preventScroll: true });
  }, [isCurrent, isSent, isEnded]);
  const isOpen = !isEnded && fate?.state !== "lost" && may("approve");
  const words = isSent
    ? html`<p class="outcome" aria-busy="true">Deciding</p>`
    : ended === "aside"
      ? html`<p class="outcome">Moved to the end of the list.</p>`
      : isEnded || fate?.state === "lost"
        ? html`<p class="outcome"><${Outcome} fate=${fate} end=${end} /></p>`
        : null;
  const isLine = isBrief && isEnded;
  return html`<article
    ref=${element}
    class=${`prompt card ${isEnded ? "ended" : ""} ${isCurrent ? "current" : ""} ${isLine ? "line" : ""}`}
    style=${isLine ? {} : style}
    tabindex="-1"
    aria-labelledby=${`of-${item.action_id}`}
    data-testid=${`${ended === "aside" ? "aside" : isEnded ? "decided" : "pending"}-${item.action_id}`}
    onFocusIn=${onFocus}
  >
    <${PromptHead} item=${item} isEnded=${isEnded} isHere=${isHere} />
    ${
      !isLine &&
      html`<${PromptSaid} text=${item.summary} name="summary" />
      <${Arguments} tool=${item.tool_name} arguments=${item.arguments} />
      <${PromptSaid} text=${item.thought} name="thought" />`
    }
    <div class="decision" aria-live="polite">
      ${words}
      ${
        isOpen &&
        html`<div hidden=${isSent}>
        <${Decision} key=${item.digest} item=${item} fate=${fate} isCurrent=${isCurrent && !isSent} since=${since}
          onAside=${onAside} />
      </div>`
      }
    </div>
  </article>`;
}
