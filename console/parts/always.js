// A decision that holds from now on: shows what its rule will match before it is made.
import { useState } from "preact/hooks";
import { decide } from "../lib/decide.js";
import { html } from "../lib/html.js";
import { tell } from "./notices.js";
import { onEscape } from "./reject.js";
import { endsAt, TermFields, TestFields } from "./rule_fields.js";
import { RuleHead, RuleWords } from "./rule_words.js";
import { onceHeld, useSteady } from "./steady.js";

const KNOWN = ["LOW", "MEDIUM", "HIGH"];

/** The fields as they are at first: the same arguments, in this conversation. */
function initial(item) {
  const tests = Object.fromEntries(Object.entries(item.arguments).map(([name, value]) => [name, { equals: value }]));
  return { decision: "approve", tests, isEverywhere: false, hours: "", uses: "" };
}

/** The members of the rule, as `always` of a decision takes them. */
function members({ decision, tests, isEverywhere, hours, uses }, item) {
  return {
    arguments: tests,
    conversation_ids: isEverywhere ? null : [item.conversation_id],
    max_risk: decision === "approve" && KNOWN.includes(item.security_risk) ? item.security_risk : null,
    expires_at: endsAt(hours),
    max_uses: uses ? Number(uses) : null,
  };
}

export default function Always({ item, onClose }) {
  const [element, press] = useSteady();
  const [fields, setFields] = useState(() => initial(item));
  const set = (change) => setFields({ ...fields, ...change });
  const { decision } = fields,
    isApproval = decision === "approve";
  const rule = { ...members(fields, item), decision, tool_name: item.tool_name };
  const submit = (event) =>
    press(event, async () => {
      const rules = await decide([item], fields.decision, { always: members(fields, item) });
      for (const { rule_id, detail } of rules ?? []) {
        if (rule_id) tell("The rule holds from now on. “Rules” lists it.");
        else tell(`No rule was made: ${detail}`, "failed");
      }
    });
  return html`<form class="panel" onSubmit=${submit} onKeyDown=${onEscape(onClose)}>
    <div class="fields">
      <label>From now on
        <select autofocus data-testid="rule-decision" onChange=${(event) => set({ decision: event.target.value })}>
          <option value="approve" selected=${isApproval}>approve it</option>
          <option value="reject" selected=${!isApproval}>reject it</option>
        </select>
      </label>
      <label>Where
        <select data-testid="rule-where" onChange=${(event) => set({ isEverywhere: event.target.value === "all" })}>
          <option value="one" selected=${!fields.isEverywhere}>in this conversation</option>
          <option value="all" selected=${fields.isEverywhere}>in all conversations</option>
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
      <h3>From now on, without asking</h3>
      <p><${RuleHead} rule=${rule} /></p>
      <${RuleWords} rule=${rule} />
    </div>
    <footer ref=${element} onKeyDown=${onceHeld}>
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      <button type="submit" class=${isApproval ? "" : "danger"} data-testid="always-now">
        ${isApproval ? "Approve" : "Reject"}, and always
      </button>
    </footer>
  </form>`;
}
