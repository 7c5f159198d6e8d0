// What an approval rule matches, in words.
import { EFFECTS } from "../lib/effects.js";
import { html } from "../lib/html.js";
import { counted, exact } from "../lib/words.js";
import { Text } from "./text.js";

/** Most characters of a value in a sentence. */
const MOST = 2_000;

const HIGHEST = { LOW: "of low risk", MEDIUM: "of low or medium risk", HIGH: "of a known risk" };

function Value({ value }) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return html`<code><${Text} text=${text.slice(0, MOST)} /></code>
    ${text.length > MOST && html` and ${(text.length - MOST).toLocaleString("en")} characters more`}`;
}

function Test({ name, test }) {
  const label = html`<code><${Text} text=${name} /></code>`;
  if ("command" in test) return html`${label} is a command like <${Value} value=${test.command} />`;
  if ("path" in test) return html`${label} is a path like <${Value} value=${test.path} />`;
  if ("pattern" in test) return html`${label} fits <${Value} value=${test.pattern} />`;
  return html`${label} is ${test.equals === "" ? "empty" : html`exactly <${Value} value=${test.equals} />`}`;
}

const VERBS = { approve: "Approves", reject: "Rejects", ask: "Asks several people about" };

/** What a rule does, and to which tool. */
/** How often a rule was used. */
export const usedWords = (number) =>
  number === 0 ? "Never used" : number === 1 ? "Used once" : `Used ${number.toLocaleString("en")} times`;

export function RuleHead({ rule }) {
  return html`${VERBS[rule.decision]} <code><${Text} text=${rule.tool_name} /></code>`;
}

/** What must hold for a rule, as POST /api/v1/approval-rules takes it and GET has it. */
export function RuleWords({ rule }) {
  const tests = rule.arguments && Object.entries(rule.arguments),
    number = rule.conversation_ids?.length,
    tags = Object.entries(rule.tags ?? {});
  const open = tests?.filter(([, test]) => "any" in test);
  const places = [
    ["in the folder", rule.folder],
    ["about the repository", rule.repository],
    ["on the machine", rule.machine],
    ["of the person", rule.person],
    ["of the agent", rule.agent],
    ["that this key starts:", rule.key_id],
  ].filter(([, value]) => value);
  const every = places.length > 0 ? "in every conversation" : "in all conversations";
  const where = number ? (number === 1 ? "in one conversation" : `in ${number} conversations`) : every;
  const often = rule.max_uses ? `at most ${counted(rule.max_uses, "time")}, ` : "";
  return html`<ul class="rule-words">
    ${tests
      ?.filter(([, test]) => !("any" in test))
      .map(([name, test]) => html`<li key=${name}><${Test} name=${name} test=${test} /></li>`)}
    ${
      open?.length > 0 &&
      html`<li>
      ${open.map(([name], place) => html`${place > 0 && ", "}<code><${Text} text=${name} /></code>`)} may be
      anything</li>`
    }
    <li>${
      tests
        ? `${tests.length ? "every other argument" : "every argument"} is absent, empty, false or 0`
        : "whatever the arguments are"
    }</li>
    <li>${where}${places.map(([words, value]) => html` ${words} <code><${Text} text=${value} /></code>`)}${tags.map(
      ([name, value]) => html` with the tag <code>
      ${name}${value !== null && html`=<${Text} text=${value} />`}</code>`,
    )}</li>
    ${
      rule.effects &&
      html`<li>
      ${rule.decision === "approve" ? "with no other effect than" : "with any effect of"} ${rule.effects
        .map((effect) => (EFFECTS[effect] ?? effect).toLowerCase())
        .join(", ")}</li>`
    }
    <li>${rule.max_risk ? HIGHEST[rule.max_risk] : "whatever the risk is"}</li>
    <li>${often}${rule.expires_at ? `until ${exact(rule.expires_at)}` : "until it is revoked"}</li>
  </ul>`;
}
