// The fields of a rule that is made: how each argument is compared, how long and how often it holds.
import { html } from "../lib/html.js";
import { timeOf } from "../lib/words.js";
import { saysNothing } from "./arguments.js";
import { Text } from "./text.js";

const HOURS = [
  ["", "Until it is revoked"],
  ["1", "For an hour"],
  ["8", "For 8 hours"],
  ["24", "For a day"],
  ["168", "For a week"],
  ["720", "For 30 days"],
  ["at", "Until a time"],
];

/** Most uses that the server takes. */
const MOST_USES = 1_000_000_000;

/**
 * When a rule ends that begins now: a time of the wire, or null. hours: of the field, "" for never; until: a time of
 * its own.
 */
export function endsAt(hours, until = "") {
  if (hours === "at") return timeOf(until) || null;
  return hours ? new Date(Date.now() + Number(hours) * 3_600_000).toISOString() : null;
}

/** Arguments of tools that are shell lines, and those that are paths of files. */
const LINES = ["command", "cmd"],
  PATHS = ["path", "file_path"];

/** Characters that a pattern of a command may have: no quotes, and no operator that begins another command. */
const COMMAND = /^[A-Za-z0-9_./:,@+=%^* >-]+$/;

/** How an argument may be compared, in words, in the order of the field. */
const WAYS = {
  command: "a command like",
  path: "a path like",
  equals: "exactly as here",
  pattern: "text like",
  any: "anything",
};

/** Hint below the field of a pattern. */
const HINTS = {
  command: "Command: a * alone stands for any further words, within a word for any text of it",
  path: "Path: a * stands for any text of one part, ** for any parts",
  pattern: "Pattern: a * stands for letters, digits, spaces and _ . / : , @ + - =",
};

/** Whether no rule names an argument, as its value is no condition: null, false, 0 or empty. */
export const isNoCondition = (value) => value === 0 || saysNothing(value);

/** The test that fits an argument by its name: "command", "path" or "pattern". */
export function wayOf(name) {
  return LINES.includes(name) ? "command" : PATHS.includes(name) ? "path" : "pattern";
}

/** How an argument of an action is compared at first. values: all arguments of the action. */
export function firstTest(name, given, values) {
  const isLine = LINES.includes(name) && !PATHS.some((path) => path in values);
  return isLine && typeof given === "string" && COMMAND.test(given) ? { command: given } : { equals: given };
}

/** The field of a test that has a pattern. */
function PatternField({ name, how, text, onChange }) {
  return html`<label>${HINTS[how]}
    <input type="text" required maxlength="4096" spellcheck=${false} data-testid=${`pattern-${name}`}
      value=${text} onInput=${(event) => onChange({ [how]: event.target.value })} />
  </label>`;
}

/** How one argument is compared. given: its value in the action. */
export function TestFields({ name, given, test, onChange }) {
  const how = Object.keys(test)[0],
    text = how in HINTS ? test[how] : given;
  const pick = (wanted) =>
    onChange(wanted === "any" ? { any: true } : wanted === "equals" ? { equals: given } : { [wanted]: text });
  const ways = Object.entries(WAYS).filter(([way]) => typeof given === "string" || !(way in HINTS));
  return html`<div class="test">
    <label><span><code><${Text} text=${name} /></code> is</span>
      <select data-testid=${`how-${name}`} onChange=${(event) => pick(event.target.value)}>
        ${ways.map(([way, words]) => html`<option value=${way} selected=${how === way}>${words}</option>`)}
      </select>
    </label>
    ${how in HINTS && html`<${PatternField} name=${name} how=${how} text=${test[how]} onChange=${onChange} />`}
  </div>`;
}

/** The error of a field, beside the field. fault: of the server, or undefined. */
export function RuleFault({ of, fault }) {
  return (
    fault && html`<small class="high" role="alert" data-testid=${`fault-${of}`}><${Text} text=${fault} prose /></small>`
  );
}

/** How long and how often. value: {hours, until, uses}, as the fields have them. faults: of the server, by member. */
export function TermFields({ value, faults = /** @type {Record<string, string>} */ ({}), onChange }) {
  return html`<label>How long
      <select data-testid="rule-hours" onChange=${(event) => onChange({ ...value, hours: event.target.value })}>
        ${HOURS.map(
          ([hours, words]) => html`<option value=${hours} selected=${hours === value.hours}>
          ${words}</option>`,
        )}
      </select>
      ${value.hours !== "at" && html`<${RuleFault} of="expires_at" fault=${faults.expires_at} />`}
    </label>
    ${
      value.hours === "at" &&
      html`<label>Until when
        <input type="datetime-local" required data-testid="rule-until" value=${value.until ?? ""}
          onInput=${(event) => onChange({ ...value, until: event.target.value })} />
        <${RuleFault} of="expires_at" fault=${faults.expires_at} />
      </label>`
    }
    <label>How often at most
      <input type="number" min="1" max=${MOST_USES} placeholder="any number" data-testid="rule-uses"
        value=${value.uses} onInput=${(event) => onChange({ ...value, uses: event.target.value })} />
      <${RuleFault} of="max_uses" fault=${faults.max_uses} />
    </label>`;
}
