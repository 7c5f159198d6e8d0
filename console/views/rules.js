// Approval rules: what is decided without asking, who said so, and how often it was used.
import { useEffect, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { may } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { millis, now } from "../lib/words.js";
import { DestinationRules } from "../parts/destination.js";
import { Question } from "../parts/dialog.js";
import { attempt, Empty, Failure } from "../parts/notices.js";
import { NewRule } from "../parts/new_rule.js";
import { Proposals } from "../parts/proposals.js";
import { RuleHead, RuleWords } from "../parts/rule_words.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Rules that are drawn at first, and with each press of "show more". */
const DRAWN = 100;

function stateOf(rule, present) {
  if (rule.expires_at && millis(rule.expires_at) <= present) return "Expired";
  return rule.max_uses && rule.uses >= rule.max_uses ? "Used up" : "Holds";
}

function Rule({ rule, onRevoke }) {
  const state = stateOf(rule, useStore(now));
  const often = rule.uses === 1 ? "once" : `${rule.uses.toLocaleString("en")} times`;
  return html`<article class="card rule" data-testid=${`rule-${rule.id}`}>
    <header>
      <h2><${RuleHead} rule=${rule} /></h2>
      <span class=${state === "Holds" ? "tag low" : "tag"}>${state}</span>
    </header>
    <${RuleWords} rule=${rule} />
    ${rule.reason && html`<p>Reason: <${Text} text=${rule.reason} prose /></p>`}
    <footer>
      <p class="muted">
        Used ${often}${rule.last_used_at && html`, last <${Time} at=${rule.last_used_at} />`}.
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

function List({ rules, onRevoke }) {
  const [most, setMost] = useState(DRAWN);
  if (!rules.length) {
    return html`<${Empty} title="No rules">
      Every action that needs a decision waits for a person. “Always…” beside a decision makes a rule of it.
    <//>`;
  }
  const shown = rules.slice(0, most),
    hidden = rules.length - shown.length,
    more = () => setMost(most + DRAWN);
  return html`${shown.map((rule) => html`<${Rule} key=${rule.id} rule=${rule} onRevoke=${() => onRevoke(rule)} />`)}
    ${hidden > 0 && html`<button type="button" class="secondary" onClick=${more}>Show more (${hidden})</button>`}`;
}

export default function Rules() {
  const [rules, setRules] = useState(null);
  const [error, setError] = useState(null);
  const [isMaking, setMaking] = useState(false);
  const [revoked, setRevoked] = useState(null);
  const [version, setVersion] = useState(0);
  const load = () => {
    setError(null);
    setVersion((number) => number + 1);
    call("GET /api/v1/approval-rules").then(setRules, setError);
  };
  useEffect(load, []);
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
      <button type="button" class="quiet" onClick=${load}>Load again</button>
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
    ${
      error
        ? html`<${Failure} error=${error} again=${load} />`
        : rules
          ? html`<${List} rules=${rules} onRevoke=${setRevoked} />`
          : html`<p aria-busy="true">Loading</p>`
    }
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
