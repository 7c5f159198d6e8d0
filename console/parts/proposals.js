// Rules for what people approve again and again, with their evidence: one press makes one.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { may } from "../lib/session.js";
import { attempt } from "./notices.js";
import { RehearsedDecisions } from "./rehearsal.js";
import { Marked } from "./text.js";
import { Time } from "./time.js";

function Proposal({ item, onMade }) {
  const [isSent, setSent] = useState(false);
  const make = async () => {
    setSent(true);
    const made = await attempt(() => call("POST /api/v1/approval-rules", { body: item.rule }), "The rule is active.");
    setSent(false);
    if (made !== undefined) onMade();
  };
  return html`<article class="card rule proposal" data-testid="proposal">
    <p><${Marked} text=${item.sentence} /></p>
    <p class="muted">
      Approved ${item.approved.toLocaleString("en")} times and never rejected, last <${Time}
        at=${item.last_at} />. For example:
    </p>
    <${RehearsedDecisions} items=${item.examples} />
    ${
      may("approve") &&
      html`<footer><button type="button" disabled=${isSent} data-testid="make-proposal"
        onClick=${make}>Make this rule</button></footer>`
    }
  </article>`;
}

/** The proposals; absent where there are none. version: another one asks again. onMade(): a rule was made. */
export function Proposals({ version, onMade }) {
  const { value: found } = useRead("GET /api/v1/approval-rules/proposals", { version });
  if (!found?.items.length) return null;
  return html`<section data-testid="proposals">
    <h2>Proposed</h2>
    <p class="muted">From the last ${found.decided.toLocaleString("en")} decisions of people. None of these
      holds yet.</p>
    ${found.items.map((item) => html`<${Proposal} key=${JSON.stringify(item.rule)} item=${item} onMade=${onMade} />`)}
  </section>`;
}
