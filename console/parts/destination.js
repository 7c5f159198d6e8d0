// A destination that a sandbox asks for, or a budget that is used up: what it is, and the decisions of a person about
// it.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { asked, decideDestination, isOf, nameOfAsked, outcomes, useTitle } from "../lib/destinations.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { href } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { useStore } from "../lib/store.js";
import { counted } from "../lib/words.js";
import { DecisionButton } from "./connection.js";
import { Deadline } from "./deadline.js";
import { Question } from "./dialog.js";
import { attempt, Failure } from "./notices.js";
import { usedWords } from "./rule_words.js";
import { onceHeld, useSteady } from "./steady.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** Seconds between two reads of the rules. */
const EVERY = 10;

/** isCurrent: the keys of the keyboard are its. since, onAside(): as those of a prompt. */
function DestinationButtons({ item, isCurrent, since, onAside }) {
  const [element, press] = useSteady(since);
  const [isAsking, ask] = useState(false);
  const decide = (verb, scope) => (event) => press(event, () => decideDestination(item, verb, scope));
  const { budget, conversation_id } = item,
    allow = decide("approve", "once"),
    refuse = decide("reject", "conversation");
  const always = (event) => !event.repeat && ask(true);
  useShortcuts(
    isCurrent && {
      a: { label: budget ? "Add to the budget" : "Allow it once", run: allow },
      r: { label: "Refuse it", run: refuse },
      ...(!budget && { w: { label: "Always, everywhere: a rule for every sandbox", run: always } }),
      ...(onAside && { s: { label: "Skip: to the end of the list", run: (event) => press(event, onAside) } }),
    },
    "Decisions",
  );
  const aside =
    onAside &&
    html`<button type="button" class="quiet" data-testid="skip" aria-keyshortcuts="s"
      onClick=${(event) => press(event, onAside)}>Skip</button>`;
  if (budget) {
    return html`<footer ref=${element} onKeyDown=${onceHeld}>
      <${DecisionButton} data-testid="allow-once" aria-keyshortcuts="a" onClick=${allow}>Add ${moreOf(budget)}<//>
      <${DecisionButton} class="secondary" data-testid="refuse" title="Until the budget is whole again"
        onClick=${refuse}>Refuse<//>
      ${aside}
    </footer>`;
  }
  const length = conversation_id ? "conversation" : "sandbox";
  return html`<footer ref=${element} onKeyDown=${onceHeld}>
    <${DecisionButton} data-testid="allow-once" title="The next connection within 10 minutes"
      onClick=${allow}>Allow once<//>
    <${DecisionButton} class="secondary" data-testid="allow-conversation" title="As long as the sandbox is"
      aria-label=${`Allow for this ${length}`} onClick=${decide("approve", "conversation")}><span
      class="where-wide">For this </span><span class="where-narrow">${length}</span><//>
    <${DecisionButton} class="secondary" data-testid="allow-always" title="A rule for every sandbox"
      aria-label="Always, everywhere" onClick=${always}><span class="where-wide">Always, everywhere…</span><span
      class="where-narrow only">Everywhere…</span><//>
    <${DecisionButton} class="secondary" data-testid="refuse" title="As long as the sandbox is"
      onClick=${refuse}>Refuse<//>
    ${aside}
    ${isAsking && html`<${Everywhere} item=${item} onClose=${() => ask(false)} />`}
  </footer>`;
}

/** Asks before a rule is made that holds for every sandbox. */
function Everywhere({ item, onClose }) {
  const allow = () => {
    onClose();
    decideDestination(item, "approve", "always");
  };
  return html`<${Question} title="Allow it everywhere, from now on?" yes="Allow everywhere" onYes=${allow}
    onClose=${onClose}>
    Every sandbox, of every conversation, may reach <code><${Text} text=${nameOfAsked(item)} />
      </code> without asking. “Rules” lists the rule and revokes it.
  <//>`;
}

/** What an approval adds to a budget, in words. */
function moreOf({ dollars, tokens }) {
  const parts = [dollars !== null && `$${dollars}`, tokens !== null && counted(tokens, "token")];
  return parts.filter(Boolean).join(" and ");
}

/** What waits, as the detail of the inbox: the card that the conversation shows. isEnded: it waits no longer. */
export function AskedCard({ item, isEnded, isCurrent, since, takesFocus, onAside }) {
  const element = useRef(null);
  useEffect(() => {
    if (takesFocus && document.activeElement === document.body)
      element.current.querySelector("article").focus({ preventScroll: true });
  }, [isEnded]);
  return html`<div ref=${element} class="asked-card"><${DestinationCard} item=${item} isHere=${false} isOver=${isEnded}
    isCurrent=${isCurrent} since=${since} onAside=${onAside} /></div>`;
}

/**
 * isHere: its conversation is in view. isOver: it waits no longer, whoever decided it. isCurrent, since, onAside: of
 * the inbox. onAgain(item): asks the agent to try what is allowed now; undefined where nobody may. goesOn: the server
 * tells the agent by itself.
 */
function DestinationCard({ item, isHere, onAgain, goesOn, isOver = false, isCurrent = false, since = 0, onAside }) {
  const outcome = useStore(outcomes).get(item.digest),
    title = useTitle(item),
    isEnded = isOver || outcome?.state === "ended";
  const { budget, program, tries, sandbox_id, conversation_id } = item,
    name = nameOfAsked(item);
  return html`<article class=${isEnded ? "prompt card destination ended" : "prompt card destination"} tabindex="-1"
    data-testid=${`destination-${budget?.setting ?? name}`}>
    <header>
      <h2>${budget ? name : html`Reach <code class="tool"><${Text} text=${name} /></code>`}</h2>
      <p class="facts">
        <span>Asked <${Time} at=${item.since} /></span>
        ${tries > 1 && html`<span>${tries.toLocaleString("en")} tries</span>`}
        ${item.expires_at && !isEnded && html`<${Deadline} at=${item.expires_at} />`}
        ${
          conversation_id &&
          !isHere &&
          html`<a href=${href("conversations", conversation_id)}><${Text} text=${title || "Conversation"}
          prose /></a>`
        }
        <a href=${href("sandboxes", sandbox_id)}>Sandbox</a>
      </p>
    </header>
    ${
      budget &&
      html`<p class="thought">It is used
      up.${budget.day && ` What you add lasts until the end of ${budget.day} (UTC).`}
      ${budget.key_id && html` The key is <code><${Text} text=${budget.key_id} /></code>.`} The setting is <code>
      ${budget.setting}</code>.</p>`
    }
    ${!budget && !isEnded && html`<p class="muted">This try has failed already. Once allowed, the next passes.</p>`}
    ${program && html`<p class="thought">Asked by a program that calls itself <${Text} text=${program} prose /></p>`}
    <div class="decision">
      ${outcome?.state === "failed" && html`<p class="failed" role="alert" data-testid="problem">${outcome.words}</p>`}
      ${
        isEnded
          ? html`<p class="outcome" role="status" data-testid="outcome"><strong><${Text}
            text=${outcome?.words ?? "No longer asked."} prose /></strong></p>
            ${
              goesOn &&
              outcome?.isAllowed &&
              html`<p class="muted" data-testid="goes-on">If this stopped the agent, it is told, and goes on.</p>`
            }
            ${
              onAgain &&
              outcome?.isAllowed &&
              html`<button type="button" class="secondary" data-testid="try-again"
              onClick=${() => onAgain(item)}>Ask the agent to try again</button>`
            }`
          : may("approve") &&
            html`<${DestinationButtons} item=${item} isCurrent=${isCurrent} since=${since} onAside=${onAside} />`
      }
    </div>
  </article>`;
}

/** What sandboxes ask for, above the actions; nothing where none asks. of: the conversation that it is of. */
export default function DestinationList({ of, onAgain = undefined, goesOn = false }) {
  const items = useStore(asked)?.filter((item) => isOf(item, of));
  if (!items?.length) return null;
  return html`<section class="destinations" aria-label="Destinations and budgets that sandboxes ask for"
    data-testid="destinations">
    ${items.map(
      (item) => html`<${DestinationCard} key=${item.digest} item=${item} isHere onAgain=${onAgain}
      goesOn=${goesOn} />`,
    )}
  </section>`;
}

function DestinationRule({ rule, onRevoke }) {
  const { name, port, decision, uses, created_by, created_at } = rule;
  return html`<article class="card rule" data-testid=${`destination-rule-${rule.id}`}>
    <header><h2>${decision === "approve" ? "Allows" : "Refuses"} <code><${Text} text=${`${name}:${port}`} /></code>
      </h2></header>
    <p class="muted">In every sandbox${name.startsWith("*.") && ", for each name below the suffix"}.</p>
    <footer>
      <p class="muted">${usedWords(uses)}. Created by <${Text} text=${created_by || "somebody"} prose /> <${Time}
        at=${created_at} />.</p>
      ${
        may("approve") &&
        html`<button type="button" class="secondary" data-testid="revoke"
        onClick=${onRevoke}>Revoke…</button>`
      }
    </footer>
  </article>`;
}

/** The rules for destinations; nothing where there are none. version: a change of it reads them again. */
export function DestinationRules({ version }) {
  const { value: rules = [], error, again } = useRead("GET /api/v1/destination-rules", { version, every: EVERY }),
    [revoked, setRevoked] = useState(null);
  const revoke = async () => {
    const path = { rule_id: revoked.id };
    const done = await attempt(
      () => call("DELETE /api/v1/destination-rules/{rule_id}", { path }),
      "The rule is revoked.",
    );
    if (done === undefined) return;
    setRevoked(null);
    again();
  };
  if (error) return html`<${Failure} error=${error} again=${again} />`;
  if (!rules.length) return null;
  return html`<h2>Destinations</h2>
    <p class="muted">A rule decides what sandboxes with a named way out may reach. A rule that refuses wins over rules
      that allow.</p>
    ${rules.map((rule) => html`<${DestinationRule} key=${rule.id} rule=${rule} onRevoke=${() => setRevoked(rule)} />`)}
    ${
      revoked &&
      html`<${Question} title="Revoke this rule?" yes="Revoke" onYes=${revoke} onClose=${() => setRevoked(null)}>
      Its open connections end within a second. From now on such a destination waits for a person again.
    <//>`
    }`;
}
