// Makes an approval rule: shows what it will match before it is made.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { attempt } from "./notices.js";
import { Rehearsal } from "./rehearsal.js";
import { onEscape } from "./reject.js";
import { endsAt, TermFields, wayOf } from "./rule_fields.js";
import { RuleHead, RuleWords } from "./rule_words.js";

/** Most arguments that the form has rows for. */
const MOST_ROWS = 20;

const ROW = { name: "", how: "", pattern: "" };
const INITIAL = { decision: "approve", tool: "", isAny: false, rows: [ROW], risk: "", hours: "", uses: "", reason: "" };

/** What a pattern of each kind may be like. */
const EXAMPLES = { command: "git status *", path: "src/**", pattern: "feature/*" };

const selected = (value, options) =>
  options.map(([name, words]) => html`<option value=${name} selected=${name === value}>${words}</option>`);

/** The rule of the fields, as POST /api/v1/approval-rules takes it. */
function ruleOf({ decision, tool, isAny, rows, risk, hours, uses, reason }) {
  const named = rows.filter(({ name }) => name);
  const tests = named.map(({ name, how, pattern }) => [
    name,
    pattern ? { [how || wayOf(name)]: pattern } : { any: true },
  ]);
  return {
    decision,
    tool_name: tool,
    arguments: isAny ? null : Object.fromEntries(tests),
    max_risk: risk || null,
    expires_at: endsAt(hours),
    max_uses: uses ? Number(uses) : null,
    reason,
  };
}

function Rows({ rows, onChange }) {
  const change = (place, members) => onChange(rows.map((row, at) => (at === place ? { ...row, ...members } : row)));
  return html`${rows.map(
    (row, place) => html`<div class="fields" key=${place}>
        <label>Argument<input type="text" spellcheck=${false} placeholder="command" data-testid="rule-argument"
          value=${row.name} onInput=${(event) => change(place, { name: event.target.value })} /></label>
        <label>is<select data-testid="rule-how" onChange=${(event) => change(place, { how: event.target.value })}>
          ${selected(row.how || wayOf(row.name), [
            ["command", "a command like"],
            ["path", "a path like"],
            ["pattern", "text like"],
          ])}</select></label>
        <label>Pattern (empty: anything)
          <input type="text" spellcheck=${false} maxlength="4096" placeholder=${EXAMPLES[row.how || wayOf(row.name)]}
            data-testid="rule-pattern" value=${row.pattern} onInput=${(event) => change(place, { pattern: event.target.value })} />
        </label>
      </div>`,
  )}
    <p class="muted">
      In a command a * alone stands for any further words, options and paths too. In a path * stands for one part, ** for
      any parts. In other text * stands for letters, digits, spaces and _ . / : , @ + - =.
    </p>
    ${
      rows.length < MOST_ROWS &&
      html`<p>
      <button type="button" class="quiet" onClick=${() => onChange([...rows, ROW])}>Add an argument</button>
    </p>`
    }`;
}

export function NewRule({ onMade, onClose }) {
  const [fields, setFields] = useState(INITIAL);
  const [isSent, setSent] = useState(false);
  const set = (change) => setFields({ ...fields, ...change });
  const field = (name) => (event) => set({ [name]: event.target.value });
  const submit = async (event) => {
    event.preventDefault();
    if (isSent) return;
    setSent(true);
    const made = await attempt(
      () => call("POST /api/v1/approval-rules", { body: ruleOf(fields) }),
      "The rule holds from now on.",
    );
    setSent(false);
    if (made !== undefined) onMade();
  };
  const rule = ruleOf({ ...fields, tool: fields.tool || "…" });
  return html`<form class="card new-rule" onSubmit=${submit} onKeyDown=${onEscape(onClose)}>
    <h2>New rule</h2>
    <div class="fields">
      <label>What it does<select autofocus data-testid="rule-decision" onChange=${field("decision")}>
        ${selected(fields.decision, [
          ["approve", "approves"],
          ["reject", "rejects"],
        ])}</select></label>
      <label>Tool<input type="text" required spellcheck=${false} placeholder="terminal" data-testid="rule-tool"
        value=${fields.tool} onInput=${field("tool")} /></label>
      <label>Risk at most<select data-testid="rule-risk" onChange=${field("risk")}>
        ${selected(fields.risk, [
          ["", "any"],
          ["LOW", "low"],
          ["MEDIUM", "medium"],
          ["HIGH", "high"],
        ])}</select></label>
      <${TermFields} value=${fields} onChange=${set} />
    </div>
    <label>
      <input type="checkbox" checked=${fields.isAny} onChange=${(event) => set({ isAny: event.target.checked })} />
      ${" "}Whatever the arguments are
    </label>
    ${!fields.isAny && html`<${Rows} rows=${fields.rows} onChange=${(rows) => set({ rows })} />`}
    <label>Reason, shown in the list of rules<input type="text" maxlength="200" value=${fields.reason}
      onInput=${field("reason")} /></label>
    <div class="preview" data-testid="rule-preview">
      <h3>From now on, without asking</h3>
      <p><${RuleHead} rule=${rule} /></p>
      <${RuleWords} rule=${rule} />
      <${Rehearsal} rule=${ruleOf(fields)} />
    </div>
    <footer>
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      <button type="submit" data-testid="make-rule">Create the rule</button>
    </footer>
  </form>`;
}
