// A decision that holds from now on: the answers that the server proposes, or a rule of a person's own.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { decide, decideAll, fates } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { nameOf } from "../lib/pending.js";
import { useStore } from "../lib/store.js";
import { DecisionButton } from "./connection.js";
import { Dialog } from "./dialog.js";
import { Loading, tell } from "./notices.js";
import { riskOf, whyNot } from "./prompt_filters.js";
import { endsAt, firstTest, isNoCondition, TermFields, TestFields } from "./rule_fields.js";
import { RuleHead, RuleWords } from "./rule_words.js";
import { onceHeld, useSteady } from "./steady.js";
import { Marked } from "./text.js";

const KNOWN = ["LOW", "MEDIUM", "HIGH"];

/** Members of a rule to which a decision gives a default where they are absent. */
const OF_ALWAYS = [
  "arguments",
  "max_risk",
  "conversation_ids",
  "key_id",
  "repository",
  "folder",
  "machine",
  "person",
  "agent",
  "tags",
  "expires_at",
  "max_uses",
];

/** The proposals of a server that has none. */
const NONE = { items: [], scopes: [], lasts: [] };

/**
 * The member `always` of a decision that makes a rule: all that the rule names, and what it does not name is left open.
 */
function alwaysOf({ decision, tool_name, ...members }) {
  return { ...Object.fromEntries(OF_ALWAYS.map((name) => [name, null])), ...members };
}

/** Decide an action and make a rule of it; once it holds, approve others that wait. onMade(): it was decided. */
async function decideAlways(item, decision, always, onMade, others = []) {
  const rules = await decide([item], decision, { always });
  for (const { rule_id, detail } of rules ?? []) {
    if (rule_id) tell("The rule is active. “Rules” lists it.");
    else tell(`No rule was made: ${detail}`, "failed");
  }
  if (rules) onMade();
  if (rules?.length && rules.every(({ rule_id }) => rule_id)) await decideAll(others, "approve");
}

/** Those of the other actions of a group that a rule holds for, as far as the page knows; none of a high risk. */
function coveredBy(answer, members, item, others) {
  const { conversation_ids: ids, folder, repository, key_id } = members;
  const isIn = (one) =>
    one.conversation_id === item.conversation_id ||
    (!key_id &&
      (!ids || ids.includes(one.conversation_id)) &&
      (!repository || one.repository === repository) &&
      ["machine", "person", "agent"].every((name) => !members[name] || one.asked_from?.[name] === members[name]) &&
      (!folder || `${one.folder ?? ""}/`.startsWith(`${folder}/`)));
  const isLike = (one) => answer.kind !== "exactly" || one.digest === item.digest;
  return others.filter((one) => riskOf(one) !== "HIGH" && !whyNot(one) && isLike(one) && isIn(one));
}

/** What the server proposes ({items, scopes, lasts}): null until it is here. */
function useAnswers({ conversation_id, action_id }) {
  const [answers, setAnswers] = useState(null);
  useEffect(() => {
    const path = { conversation_id, action_id };
    call("GET /api/v1/conversation/{conversation_id}/pending-actions/{action_id}/answers", { path }).then(
      setAnswers,
      () => setAnswers(NONE),
    );
  }, [conversation_id, action_id]);
  return answers;
}

/** The ref of what has the focus once it is shown: the dialog opens before. */
function useFocus() {
  const element = useRef(null);
  useEffect(() => element.current.focus(), []);
  return element;
}

/**
 * The dialog: the proposed answers first, and "More conditions" opens the form. others: of the item's group in the
 * inbox.
 */
export default function Always({ item, others = [], onClose }) {
  const answers = useAnswers(item);
  const [isForm, openForm] = useState(false);
  const fate = useStore(fates).get(nameOf(item));
  let shown = html`<${Loading} />`;
  if (isForm || answers?.items.length === 0)
    shown = html`<${Conditions} item=${item} answers=${answers} onClose=${onClose} />`;
  else if (answers) {
    shown = html`<${Answers} item=${item} others=${others} answers=${answers} onMore=${() => openForm(true)}
      onClose=${onClose} />`;
  }
  return html`<${Dialog} title="From now on, without asking" class="always" onClose=${onClose}
    data-testid="always-dialog">
    ${fate?.state === "failed" && html`<p class="failed" role="alert">${fate.words}</p>`}
    ${shown}
  <//>`;
}

/** When a rule ends that begins now and lasts so many seconds; null: never. */
const endAfter = (seconds) => (seconds ? new Date(Date.now() + seconds * 1000).toISOString() : null);

/** An answer in a scope; in its narrowest one where it has not that scope. scope: empty for the proposed one. */
function inScope(answer, scope) {
  const wanted = scope || answer.proposed;
  return answer.scopes.find((one) => one.scope === wanted) ?? answer.scopes[0];
}

/** The options of a field for scopes: [{scope, words}]. */
const scopeOptions = (scopes, chosen) =>
  scopes.map(
    ({ scope, words }) => html`<option key=${scope} value=${scope} selected=${scope === chosen}>
      ${words.replaceAll("`", "")}</option>`,
  );

/** Where the chosen answer holds, and how long. scopes, lasts: to choose from; scope, last: chosen. */
function ScopeFields({ scopes, scope, lasts, last, onScope, onLast }) {
  return html`<div class="fields">
    <label>Where
      <select data-testid="answer-where" onChange=${(event) => onScope(event.target.value)}>
        ${scopeOptions(scopes, scope)}
      </select>
    </label>
    <label>How long
      <select data-testid="answer-until" onChange=${(event) => onLast(Number(event.target.value))}>
        ${lasts.map(
          ({ name, words }, place) => html`<option key=${name} value=${place} selected=${place === last}>
          ${words}</option>`,
        )}
      </select>
    </label>
  </div>`;
}

/** Scopes that an agent outside of sandboxes states itself. */
const CLAIMED = ["folder", "machine", "person", "agent"];

/** How far a rule in such a scope can be trusted. */
function Claimed({ item, scope, rule }) {
  if (!item.asked_from || !CLAIMED.includes(scope)) return null;
  const holds = rule.key_id ? "the rule holds for its key alone." : "whoever may ask can claim them.";
  return html`<p class="claimed muted" data-testid="claimed">These names are the agent’s own words: ${holds}</p>`;
}

function Answers({ item, others, answers, onMore, onClose }) {
  const [element, press] = useSteady();
  const ofGroup = others.length ? answers.items.findIndex(({ kind }) => kind === "like") : 0;
  const [chosen, choose] = useState(Math.max(0, ofGroup));
  const [wanted, setWanted] = useState("");
  const [last, setLast] = useState(0);
  const first = useFocus();
  const { items, scopes, lasts } = answers,
    { scope, rule } = inScope(items[chosen], wanted);
  const mayHold = scopes.filter((one) => items[chosen].scopes.some((of) => of.scope === one.scope));
  const always = () => alwaysOf({ ...rule, expires_at: endAfter(lasts[last].seconds) });
  const covered = coveredBy(items[chosen], rule, item, others);
  const submit = (event) => press(event, () => decideAlways(item, "approve", always(), onClose, covered));
  return html`<form onSubmit=${submit}>
    <fieldset class="answers" aria-label="What to allow">
      ${items.map((answer, place) => {
        const { sentence, answered } = inScope(answer, wanted);
        return html`<label key=${answer.kind}>
          <input ref=${place === Math.max(0, ofGroup) ? first : null} type="radio" name="answer"
            checked=${place === chosen}
            data-testid=${`answer-${answer.kind}`} onChange=${() => choose(place)} />
          <span><${Marked} text=${sentence} />
            ${
              answer.of > 0 &&
              html`<small>Would have answered ${answered.toLocaleString("en")} of the
                last ${answer.of.toLocaleString("en")}.</small>`
            }
          </span>
        </label>`;
      })}
    </fieldset>
    <${ScopeFields} scopes=${mayHold} scope=${scope} lasts=${lasts} last=${last} onScope=${setWanted}
      onLast=${setLast} />
    <${Claimed} item=${item} scope=${scope} rule=${rule} />
    ${
      others.length > 0 &&
      html`<p class="muted"
      data-testid="covered">Approves ${covered.length + 1} of the ${others.length + 1} that wait in this group.</p>`
    }
    <footer ref=${element} onKeyDown=${onceHeld}>
      <button type="button" class="quiet more" data-testid="more-conditions" onClick=${onMore}>More conditions</button>
      <button type="button" class="secondary" onClick=${onClose}>Cancel</button>
      <${DecisionButton} type="submit" class=${riskOf(item) === "HIGH" ? "danger" : ""} data-testid="allow-from-now-on">
        Allow from now on<//>
    </footer>
  </form>`;
}

/** The fields as they are at first: the arguments that say something, in this conversation. */
function initial(item, answers) {
  const like = answers.items.find(({ kind }) => kind === "like")?.rule.arguments ?? {};
  const said = Object.entries(item.arguments).filter(([, value]) => !isNoCondition(value));
  const tests = said.map(([name, value]) => [name, like[name] ?? firstTest(name, value, item.arguments)]);
  return {
    decision: "approve",
    tests: Object.fromEntries(tests),
    scope: "conversation",
    hours: "",
    until: "",
    uses: "",
  };
}

/** Fallback scopes of a rule, for a server that offers none. */
const scopesWithout = ({ conversation_id }) => [
  { scope: "conversation", words: "in this conversation", members: { conversation_ids: [conversation_id] } },
  { scope: "everywhere", words: "in every conversation", members: {} },
];

/** The members of the rule, as `always` of a decision takes them. */
function members({ decision, tests, scope, hours, until, uses }, item, scopes) {
  return {
    arguments: tests,
    conversation_ids: null,
    ...scopes.find((one) => one.scope === scope).members,
    max_risk: decision === "approve" && KNOWN.includes(item.security_risk) ? riskOf(item) : null,
    expires_at: endsAt(hours, until),
    max_uses: uses ? Number(uses) : null,
  };
}

function Conditions({ item, answers, onClose }) {
  const [element, press] = useSteady();
  const [fields, setFields] = useState(() => initial(item, answers));
  const first = useFocus();
  const set = (change) => setFields({ ...fields, ...change });
  const scopes = answers.scopes.length > 0 ? answers.scopes : scopesWithout(item);
  const { decision } = fields,
    isApproval = decision === "approve";
  const rule = { ...members(fields, item, scopes), decision, tool_name: item.tool_name };
  const submit = (event) => press(event, () => decideAlways(item, decision, members(fields, item, scopes), onClose));
  return html`<form class="conditions" onSubmit=${submit}>
    <div class="fields">
      <label>From now on
        <select ref=${first} data-testid="rule-decision" onChange=${(event) => set({ decision: event.target.value })}>
          <option value="approve" selected=${isApproval}>approve it</option>
          <option value="reject" selected=${!isApproval}>reject it</option>
        </select>
      </label>
      <label>Where
        <select data-testid="rule-where" onChange=${(event) => set({ scope: event.target.value })}>
          ${scopeOptions(scopes, fields.scope)}
        </select>
      </label>
      <${TermFields} value=${fields} onChange=${set} />
    </div>
    ${Object.entries(fields.tests).map(
      ([name, test]) =>
        html`<${TestFields} key=${name} name=${name} given=${item.arguments[name]} test=${test}
          onChange=${(changed) => set({ tests: { ...fields.tests, [name]: changed } })} />`,
    )}
    <div class="preview" data-testid="rule-preview">
      <p><${RuleHead} rule=${rule} /></p>
      <${RuleWords} rule=${rule} />
    </div>
    <footer ref=${element} onKeyDown=${onceHeld}>
      <button type="button" class="secondary" onClick=${onClose}>Cancel</button>
      <${DecisionButton} type="submit" class=${isApproval && riskOf(item) !== "HIGH" ? "" : "danger"}
        data-testid="always-now">
        ${isApproval ? "Approve" : "Reject"}, and always
      <//>
    </footer>
  </form>`;
}
