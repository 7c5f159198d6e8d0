// Makes an approval rule: shows what it will match before it is made.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { EFFECTS } from "../lib/effects.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { visible } from "../lib/visible.js";
import { tell } from "./notices.js";
import { Rehearsal } from "./rehearsal.js";
import { onEscape } from "./reject.js";
import { endsAt, RuleFault, TermFields, wayOf } from "./rule_fields.js";
import { RuleHead, RuleWords } from "./rule_words.js";

/** Most arguments that the form has rows for. */
const MOST_ROWS = 20;

const ROW = { name: "", how: "", pattern: "" };
const INITIAL = {
  ...{ decision: "approve", tool: "", isAny: false, rows: [ROW], risk: "", hours: "", until: "", uses: "", reason: "" },
  ...{ scope: "", where: "", effects: [] },
};

/** Where a rule may hold: name → [words, member of the rule, label of its field, placeholder]. */
const SCOPES = {
  conversation: ["in one conversation", "conversation_ids", "Conversation", "ID of the conversation"],
  folder: ["in a folder", "folder", "Folder", "/home/ada/shop"],
  repository: ["about a repository", "repository", "Repository", "github.com/ada/shop"],
  machine: ["on a machine", "machine", "Machine", "laptop"],
  person: ["of a person", "person", "Person", "ada"],
  agent: ["of an agent", "agent", "Agent", "claude-code"],
  key: ["that a key starts", "key_id", "Key", "ID of the key"],
};

/** Scopes whose values the asking agent states itself. The server cannot check them. */
const CLAIMED = ["folder", "repository", "machine", "person", "agent"];

/** What a pattern of each kind may be like. */
const EXAMPLES = { command: "git status *", path: "src/**", pattern: "feature/*" };

const selected = (value, options) =>
  options.map(([name, words]) => html`<option value=${name} selected=${name === value}>${words}</option>`);

/** The rule of the fields, as POST /api/v1/approval-rules takes it. */
function ruleOf({ decision, tool, isAny, rows, risk, hours, until, uses, reason, scope, where, effects }) {
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
    effects: effects.length ? effects : null,
    ...(scope && { [SCOPES[scope][1]]: scope === "conversation" ? [where] : where }),
    expires_at: endsAt(hours, until),
    max_uses: uses ? Number(uses) : null,
    reason,
  };
}

/** What the form still needs before a rule can be made, in words. Empty where it is complete. */
function lackOf({ tool, scope, where }) {
  if (!tool) return "Name a tool";
  return scope && !where ? `Name the ${SCOPES[scope][2].toLowerCase()}` : "";
}

/** What the server says is wrong, by the member of the rule that it names; null for a failure of another kind. */
function faultsOf({ body }) {
  if (!Array.isArray(body?.detail)) return null;
  const named = body.detail.filter(({ loc }) => loc?.[0] === "body" && loc.length > 1);
  return named.length
    ? Object.fromEntries(named.map(({ loc, msg }) => [loc[1], [...loc.slice(2), msg].join(": ")]))
    : null;
}

/** What a field for a scope may name, by id: conversations of late, or the keys; none where they cannot be read. */
function useKnown(scope) {
  const isConversation = scope === "conversation";
  const operation = isConversation ? "GET /api/v1/conversations/search" : scope === "key" ? "GET /api/v1/keys" : null;
  const { value } = useRead(operation, { query: isConversation ? { limit: 50 } : {} });
  return (value?.items ?? value ?? []).map(({ id, title, name }) => [id, title ?? name ?? ""]);
}

/** Fields for the scope of the rule. */
function RuleWhere({ fields: { scope, where }, faults, onChange }) {
  const known = useKnown(scope),
    [, member, label, placeholder] = SCOPES[scope] ?? [];
  return html`<label>Where<select data-testid="rule-scope"
    onChange=${(event) => onChange({ scope: event.target.value, where: "" })}>
      ${selected(scope, [["", "everywhere"], ...Object.entries(SCOPES).map(([name, [words]]) => [name, words])])}
        </select></label>
    ${
      scope &&
      html`<label>${label}<input type="text" required spellcheck=${false} list="known-places" placeholder=${placeholder}
        data-testid="rule-place" value=${where} onInput=${(event) => onChange({ where: event.target.value.trim() })} />
        <datalist id="known-places">
          ${known.map(([id, name]) => html`<option key=${id} value=${id}>${visible(name)}</option>`)}</datalist>
        <${RuleFault} of=${member} fault=${faults[member]} /></label>`
    }`;
}

/** The effects of a rule: no other, where it approves; any of them, where it rejects. */
function Effects({ decision, effects, fault, onChange }) {
  const words = effects.map((name) => EFFECTS[name].toLowerCase()).join(", ");
  const set = (name, isChosen) =>
    onChange(Object.keys(EFFECTS).filter((one) => (one === name ? isChosen : effects.includes(one))));
  return html`<details class="quiet effects" data-testid="rule-effects">
    <summary>${
      effects.length
        ? `${decision === "approve" ? "No other effect than" : "Any effect of"}: ${words}`
        : "Effects: whatever they are"
    }</summary>
    <div class="choices-of">
      ${Object.entries(EFFECTS).map(
        ([name, text]) => html`<label key=${name}><input type="checkbox" data-testid=${`effect-${name}`}
          checked=${effects.includes(name)}
          onChange=${(event) => set(name, event.target.checked)} />${" "}${text}</label>`,
      )}
    </div>
    <${RuleFault} of="effects" fault=${fault} />
  </details>`;
}

function ArgumentRows({ rows, onChange }) {
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
            data-testid="rule-pattern" value=${row.pattern}
              onInput=${(event) => change(place, { pattern: event.target.value })} />
        </label>
      </div>`,
  )}
    <p class="muted">
      In a command a * alone stands for any further words, options and paths too. In a path * stands for one part, **
      for any parts. In other text * stands for letters, digits, spaces and _ . / : , @ + - =.
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
  const [faults, setFaults] = useState(/** @type {Record<string, string>} */ ({}));
  const set = (change) => {
    setFaults({});
    setFields({ ...fields, ...change });
  };
  const field = (name) => (event) => set({ [name]: event.target.value });
  const submit = async (event) => {
    event.preventDefault();
    if (isSent) return;
    setSent(true);
    try {
      await call("POST /api/v1/approval-rules", { body: ruleOf(fields) });
      tell("The rule is active.");
      onMade();
    } catch (fault) {
      const found = faultsOf(fault);
      if (found) setFaults(found);
      else tell(fault.message, "failed");
    }
    setSent(false);
  };
  const rule = ruleOf({ ...fields, tool: fields.tool || "…", where: fields.where || "…" });
  return html`<form class="card new-rule" onSubmit=${submit} onKeyDown=${onEscape(onClose)}>
    <h2>New rule</h2>
    <div class="fields">
      <label>What it does<select autofocus data-testid="rule-decision" onChange=${field("decision")}>
        ${selected(fields.decision, [
          ["approve", "approves"],
          ["reject", "rejects"],
        ])}</select></label>
      <label>Tool<input type="text" required spellcheck=${false} placeholder="terminal" data-testid="rule-tool"
        value=${fields.tool} onInput=${field("tool")} /><${RuleFault} of="tool_name"
          fault=${faults.tool_name} /></label>
      <label>Risk at most<select data-testid="rule-risk" onChange=${field("risk")}>
        ${selected(fields.risk, [
          ["", "any"],
          ["LOW", "low"],
          ["MEDIUM", "medium"],
          ["HIGH", "high"],
        ])}</select><${RuleFault} of="max_risk" fault=${faults.max_risk} /></label>
      <${RuleWhere} fields=${fields} faults=${faults} onChange=${set} />
      <${TermFields} value=${fields} faults=${faults} onChange=${set} />
    </div>
    ${
      CLAIMED.includes(fields.scope) &&
      html`<p class="muted"
        data-testid="claimed">Whoever asks says so, and any key that may start a conversation or ask can name
      any ${fields.scope}. The server itself knows only the key.</p>`
    }
    <label>
      <input type="checkbox" checked=${fields.isAny} onChange=${(event) => set({ isAny: event.target.checked })} />
      ${" "}Whatever the arguments are
    </label>
    ${!fields.isAny && html`<${ArgumentRows} rows=${fields.rows} onChange=${(rows) => set({ rows })} />`}
    <${RuleFault} of="arguments" fault=${faults.arguments} />
    <${Effects} decision=${fields.decision} effects=${fields.effects} fault=${faults.effects}
      onChange=${(effects) => set({ effects })} />
    <label>Reason, shown in the list of rules<input type="text" maxlength="200" value=${fields.reason}
      onInput=${field("reason")} /><${RuleFault} of="reason" fault=${faults.reason} /></label>
    <div class="preview" data-testid="rule-preview">
      <h3>From now on, without asking</h3>
      <p><${RuleHead} rule=${rule} /></p>
      <${RuleWords} rule=${rule} />
      <${Rehearsal} rule=${ruleOf(fields)} lacks=${lackOf(fields)} />
    </div>
    <footer>
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>
      <button type="submit" data-testid="make-rule">Create the rule</button>
    </footer>
  </form>`;
}
