// The fields of a rule that is made: how each argument is compared, how long and how often it holds.
import { html } from "../lib/html.js";
import { Text } from "./text.js";

const HOURS = [
  ["", "Until it is revoked"],
  ["1", "For an hour"],
  ["8", "For 8 hours"],
  ["24", "For a day"],
  ["168", "For a week"],
  ["720", "For 30 days"],
];

/** Most uses that the server takes. */
const MOST_USES = 1_000_000_000;

/** When a rule ends that begins now: a time of the wire, or null. hours: of the field, "" for never. */
export function endsAt(hours) {
  return hours ? new Date(Date.now() + Number(hours) * 3_600_000).toISOString() : null;
}

/** How one argument is compared. given: its value in the action, undefined where there is none. */
export function TestFields({ name, given, test, onChange }) {
  const how = Object.keys(test)[0];
  const pick = (wanted) =>
    onChange(wanted === "any" ? { any: true } : wanted === "pattern" ? { pattern: given } : { equals: given });
  return html`<div class="test">
    <label><span><code><${Text} text=${name} /></code> is</span>
      <select data-testid=${`how-${name}`} onChange=${(event) => pick(event.target.value)}>
        <option value="equals" selected=${how === "equals"}>exactly as here</option>
        ${
          typeof given === "string" &&
          html`<option value="pattern" selected=${how === "pattern"}>as a pattern says</option>`
        }
        <option value="any" selected=${how === "any"}>anything</option>
      </select>
    </label>
    ${
      how === "pattern" &&
      html`<label>Pattern: a * stands for letters, digits, spaces and _ . / : , @ + - =
      <input type="text" required maxlength="4096" spellcheck=${false} data-testid=${`pattern-${name}`}
        value=${test.pattern} onInput=${(event) => onChange({ pattern: event.target.value })} />
    </label>`
    }
  </div>`;
}

/** How long and how often. value: {hours, uses}, as the fields have them. */
export function TermFields({ value, onChange }) {
  return html`<label>How long
      <select data-testid="rule-hours" onChange=${(event) => onChange({ ...value, hours: event.target.value })}>
        ${HOURS.map(
          ([hours, words]) => html`<option value=${hours} selected=${hours === value.hours}>
          ${words}</option>`,
        )}
      </select>
    </label>
    <label>How often at most
      <input type="number" min="1" max=${MOST_USES} placeholder="any number" data-testid="rule-uses"
        value=${value.uses} onInput=${(event) => onChange({ ...value, uses: event.target.value })} />
    </label>`;
}
