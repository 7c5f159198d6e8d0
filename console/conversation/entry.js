// A step of the talk: what somebody said, or an action with what came of it, as one entry.
import { Component } from "preact";
import { html } from "../lib/html.js";
import { useStore } from "../lib/store.js";
import { visible } from "../lib/visible.js";
import { millis, took } from "../lib/words.js";
import { Copy } from "../parts/copy.js";
import { Became, By, whoOf } from "../parts/outcome.js";
import { Text } from "../parts/text.js";
import { Clock } from "../parts/time.js";
import { Output } from "../parts/output.js";
import { Content, More, partsOf, Prose } from "./content.js";
import { EventBody, Head, Label, lookOf, EventOutcome, EventProposal, Risk, Summary, Waits } from "./event.js";
import { Here } from "./here.js";
import { useModes } from "../lib/modes.js";
import { answerOf, changesMode, kindOf } from "./rows.js";
import { Since } from "./turn.js";

/** The text of what somebody said, as it was written. */
function saidIn(event) {
  return answerOf(event) ?? partsOf(event.llm_message?.content).text;
}

function MessageEntry({ event, onFork }) {
  const text = saidIn(event),
    answer = answerOf(event),
    isThought = String(event.action?.kind).endsWith("ThinkAction");
  return html`<div class="head">
      <span class="label">${
        answer === null ? html`<${Label} event=${event} />` : isThought ? "Thought" : "Agent"
      }</span>
      ${text && html`<span class="on-hover"><${Copy} text=${() => text} label="the message" /></span>`}
      <${Here} id=${event.id} onFork=${onFork} /><${Clock} at=${event.timestamp} />
    </div>
    ${
      answer === null
        ? html`<${EventBody} event=${event} isTalk />`
        : html`<div class="body"><${Prose} text=${answer} isTalk /></div>`
    }`;
}

/** A result without a head of its own: the entry's head says how it ended. */
function Result({ result }) {
  const isPlain = kindOf(result) === "ObservationEvent";
  return html`<div class=${isPlain ? "output" : "result"} data-testid=${`event-${result.id}`}
    data-kind=${kindOf(result)}>
    ${!isPlain && html`<${Head} event=${result} />`}<${EventBody} event=${result} isTalk />
  </div>`;
}

/** An action that waits is shown, and decided, below the timeline: here stands where. */
function WaitingEntry({ event, onFork }) {
  return html`<div class="head">
    <span class="label"><${Label} event=${event} /></span><${Waits} event=${event} /><${Here} id=${event.id}
      onFork=${onFork} /><${Clock} at=${event.timestamp} />
  </div>`;
}

/** What a command that runs has printed so far: its end. output: a store of it. */
function Printing({ id, output }) {
  const printed = useStore(output);
  if (printed?.action_id !== id) return null;
  const isCut = new Blob([printed.text]).size < printed.size;
  return html`<div class="output" data-testid="output-so-far">
    ${isCut && html`<p class="so-far muted">The end of ${printed.size.toLocaleString("en")} bytes so far</p>`}
      ${printed.text && html`<${Output} text=${printed.text} />`}
  </div>`;
}

/** Who decided the action of a row, how and when. */
function EntryDecision({ id, decisions }) {
  const decision = useStore(decisions.all).get(id);
  return decision ? html`<${By} decision=${decision} id=${decisions.id} />` : null;
}

/** How long an action took: from the decision that let it run, else from its proposal, until its last result. */
function Took({ event, last, decisions }) {
  const began = useStore(decisions.all).get(event.id)?.time ?? event.timestamp,
    milliseconds = millis(last.timestamp) - millis(began);
  return (
    milliseconds >= 0 &&
    html`<span class="took" data-testid="took" title="Until its result"> · ${took(milliseconds)}</span>`
  );
}

/** Of an agent outside of sandboxes: it was allowed, and its hook has not told that it ran. */
function Unseen({ id, decisions }) {
  const isAllowed = ["approve", "edit"].includes(useStore(decisions.all).get(id)?.decision);
  return isAllowed ? html`<span class="medium" data-testid="not-seen">Not seen to run</span>` : null;
}

/** What was approved in place of what the agent proposed. */
function Edited({ id, decisions }) {
  const decision = useStore(decisions.all).get(id);
  return decision ? html`<${Became} decision=${decision} />` : null;
}

function Step({ event, results, isRunning, isOutside, output, decisions, onFork }) {
  const last = results.at(-1);
  return html`<${Content} content=${event.thought} isTalk />
    ${
      event.reasoning_content &&
      html`<${More} label="Reasoning" text=${event.reasoning_content}><${Prose}
      text=${event.reasoning_content} /><//>`
    }
    <div class="head">
      <span class="label"><${Label} event=${event} /></span>
      ${event.summary && html`<span class="summary"><${Summary} event=${event} /></span>`}<${Risk}
        event=${event} isBrief />
      ${last && html`<${EventOutcome} event=${last} isBrief />`}<${EntryDecision} id=${event.id}
        decisions=${decisions} />
      ${isOutside && !last && html`<${Unseen} id=${event.id} decisions=${decisions} />`}
      ${
        isRunning &&
        html`<span class="running" data-testid="runs">Running for <${Since}
        at=${millis(event.timestamp)} /></span>`
      }
      <${Here} id=${event.id} onFork=${onFork} /><span class="when"><${Clock} at=${event.timestamp} />
        ${last && html`<${Took} event=${event} last=${last} decisions=${decisions} />`}</span>
    </div>
    <div class="body"><${EventProposal} event=${event} isTalk /><${Edited} id=${event.id} decisions=${decisions} />
      ${isRunning && html`<${Printing} id=${event.id} output=${output} />`}
      ${results.map((result) => html`<${Result} key=${result.id} result=${result} />`)}</div>`;
}

/**
 * Who changed the approval mode. Nothing without a decision: an agent may append such an event, and the server alone
 * writes decisions.
 */
function ModeChange({ event, decisions, isFocus }) {
  const decision = useStore(decisions.all).get(event.id),
    modes = useModes();
  const words = modes.find(({ name }) => name === event.value?.mode)?.words ?? event.value?.mode;
  if (!decision) return null;
  const mode = words
    ? `the mode to ${words.charAt(0).toLowerCase()}${words.slice(1)}`
    : "a policy that is none of the modes";
  return html`<li class=${`event entry change ${isFocus ? "focus" : ""}`} data-testid=${`event-${event.id}`}
    data-kind="mode" tabindex="-1">
    <div class="body" title=${visible(decision.reason)}><strong><${Text} text=${whoOf(decision, true)} prose />
      </strong> set ${mode}</div>
    <div class="head"><${Clock} at=${event.timestamp} /></div>
  </li>`;
}

/** An entry is drawn again only when another event is in it, as there are hundreds. isRunning: it has no result yet.
 * output: a store of what the command that runs has printed; decisions: the Decisions of the conversation. onFork(row,
 * isBack).
 */
export class Entry extends Component {
  shouldComponentUpdate(next) {
    return ["row", "isFocus", "waits", "isRunning", "onFork"].some((name) => next[name] !== this.props[name]);
  }

  render({ row, isFocus, waits, isRunning, isOutside, output, decisions, onFork }) {
    const { event, results } = row,
      kind = kindOf(event),
      fork = onFork && ((isBack) => onFork(row, isBack));
    if (changesMode(event)) return html`<${ModeChange} event=${event} decisions=${decisions} isFocus=${isFocus} />`;
    const isSaid = kind === "MessageEvent" || answerOf(event) !== null;
    const look = kind === "ActionEvent" && isSaid ? "message" : lookOf(event);
    const parts = isSaid
      ? html`<${MessageEntry} event=${event} onFork=${fork} />
        ${results
          .filter((one) => kindOf(one) !== "ObservationEvent")
          .map((one) => html`<${Result} key=${one.id} result=${one} />`)}`
      : kind === "ActionEvent"
        ? html`<${waits ? WaitingEntry : Step} event=${event} results=${results} isRunning=${isRunning}
          isOutside=${isOutside} output=${output} decisions=${decisions} onFork=${fork} />`
        : html`<${Head} event=${event} onFork=${fork} /><${EventBody} event=${event} isTalk />`;
    return html`<li class=${`event entry ${look} ${event.source ?? ""}${isFocus ? " focus" : ""}`}
      data-testid=${`event-${event.id}`} data-kind=${kind} tabindex="-1">
      ${parts}
    </li>`;
  }
}
