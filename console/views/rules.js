// Approval rules: what is decided without asking, who said so, and how often it was used.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { may } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { millis, now } from "../lib/words.js";
import { DestinationRules } from "../parts/destination.js";
import { Question } from "../parts/dialog.js";
import { attempt, Empty, Loaded } from "../parts/notices.js";
import { NewRule } from "../parts/new_rule.js";
import { Proposals } from "../parts/proposals.js";
import { RuleHead, RuleWords, usedWords } from "../parts/rule_words.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Seconds between two reads. */
const EVERY = 10;

/** Rules that are drawn at first, and with each press of "show more". */
const DRAWN = 100;

function stateOf(rule, present) {
  if (rule.expires_at && millis(rule.expires_at) <= present) return "Expired";
  return rule.max_uses && rule.uses >= rule.max_uses ? "Used up" : "Active";
}

function RuleCard({ rule, onRevoke }) {
  const state = stateOf(rule, useStore(now));
  return html`<article class="card rule" data-testid=${`rule-${rule.id}`}>
    <header>
      <h2><${RuleHead} rule=${rule} /></h2>
      <span class=${state === "Active" ? "tag low" : "tag"}>${state}</span>
    </header>
    <${RuleWords} rule=${rule} />
    ${rule.reason && html`<p>Reason: <${Text} text=${rule.reason} prose /></p>`}
    <footer>
      <p class="muted">
        ${usedWords(rule.uses)}${rule.last_used_at && html`, last <${Time} at=${rule.last_used_at} />`}.
        Created by <${Text} text=${rule.created_by || "somebody"} prose /> <${Time} at=${rule.created_at} />.
      </p>
      ${
        may("approve") &&
        html`<button type="button" class="secondary" data-testid="revoke"
        onClick=${onRevoke}>Revoke…</button>`
      }
    </footer>
  </article>`;
}

function RuleList({ rules, onRevoke }) {
  const [most, setMost] = useState(DRAWN);
  if (!rules.length) {
    return html`<${Empty} title="No rules">
      Every action that needs a decision waits for a person. “Always…” beside a decision makes a rule of it.
    <//>`;
  }
  const shown = rules.slice(0, most),
    hidden = rules.length - shown.length,
    more = () => setMost(most + DRAWN);
  return html`${shown.map((rule) => html`<${RuleCard} key=${rule.id} rule=${rule} onRevoke=${() => onRevoke(rule)} />`)}
    ${hidden > 0 && html`<button type="button" class="secondary" onClick=${more}>Show more (${hidden})</button>`}`;
}

export default function Rules() {
  const [isMaking, setMaking] = useState(false);
  const [revoked, setRevoked] = useState(null);
  const [version, setVersion] = useState(0);
  const rules = useRead("GET /api/v1/approval-rules", { version, every: EVERY }),
    load = () => setVersion((number) => number + 1);
  const revoke = async () => {
    const path = { rule_id: revoked.id };
    const done = await attempt(() => call("DELETE /api/v1/approval-rules/{rule_id}", { path }), "The rule is revoked.");
    if (done === undefined) return;
    setRevoked(null);
    load();
  };
  const made = () => {
    setMaking(false);
    load();
  };
  return html`<section class="rules" data-testid="rules">
    <div class="bar">
      <h1 class="wide">Rules</h1>
      ${
        may("approve") &&
        !isMaking &&
        html`<button type="button" data-testid="new-rule" onClick=${() => setMaking(true)}>New rule</button>`
      }
    </div>
    <p class="muted">
      A rule decides an action that it matches, and nobody is asked. A rule that rejects wins over rules that approve.
    </p>
    ${isMaking && html`<${NewRule} onMade=${made} onClose=${() => setMaking(false)} />`}
    <${Loaded} of=${rules}>${(found) => html`<${RuleList} rules=${found} onRevoke=${setRevoked} />`}<//>
    <${Proposals} version=${version} onMade=${load} />
    <${DestinationRules} version=${version} />
    ${
      revoked &&
      html`<${Question} title="Revoke this rule?" yes="Revoke" onYes=${revoke} onClose=${() => setRevoked(null)}>
      What it decided stays decided. From now on such an action waits for a person again.
    <//>`
    }
  </section>`;
}
