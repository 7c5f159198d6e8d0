// Where notifications go, what is stuck on the way and why, and a test of each target.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { attempt, Failure } from "./notices.js";
import { Text } from "./text.js";
import { Time } from "./time.js";

/** The state of a target: [words, look]. */
function stateOf({ disabled_at, tries, queued, last_failure, kind }) {
  if (disabled_at) return ["Switched off: it answered 410 Gone", "high"];
  if (tries > 0) return ["Stuck", "high"];
  if (kind === null) return ["Not in the settings any more", "medium"];
  if (queued > 0) return ["Sending", "medium"];
  return [last_failure ? "Works again" : "Works", "low"];
}

function Numbers({ target: { queued, oldest_at, tries, next_try_at, sent, given_up, dropped, last_success_at } }) {
  return html`<dl class="facts">
    <div><dt>Waiting</dt><dd>${queued}${oldest_at && html`, the oldest since <${Time} at=${oldest_at} />`}</dd></div>
    <div><dt>Sent</dt><dd>${sent}${last_success_at && html`, the last <${Time} at=${last_success_at} />`}</dd></div>
    ${
      tries > 0 &&
      html`<div><dt>Failed tries</dt><dd>${tries}
      ${next_try_at && html`, the next <${Time} at=${next_try_at} />`}</dd></div>`
    }
    ${given_up > 0 && html`<div><dt>Given up</dt><dd class="high">${given_up}</dd></div>`}
    ${dropped > 0 && html`<div><dt>Dropped, the queue was full</dt><dd class="high">${dropped}</dd></div>`}
  </dl>`;
}

function Target({ target, onTest, outcome, isBusy }) {
  const [words, look] = stateOf(target);
  return html`<li class="row target" data-testid=${`target-${target.id}`}>
    <span class=${`state ${look}`}>${words}</span>
    <span class="what"><strong><${Text} text=${target.name} /></strong></span>
    <span class="actions">
      ${
        target.kind &&
        target.kind !== "device" &&
        html`<button type="button" class="secondary" data-testid="test" disabled=${isBusy}
        onClick=${() => onTest(target.id)}>Send a test</button>`
      }
    </span>
    <${Numbers} target=${target} />
    ${
      target.last_failure &&
      html`<p class="happened">Failed <${Time} at=${target.last_failure_at} />: <${Text} prose
      text=${target.last_failure} /></p>`
    }
    ${
      outcome &&
      html`<p class=${outcome.delivered ? "low" : "high"} role="status" data-testid="outcome">
      ${outcome.delivered ? "The test arrived." : html`The test failed: <${Text} prose text=${outcome.detail} />`}
    </p>`
    }
  </li>`;
}

/** outbox: the response of GET /api/v1/notifications, or undefined where that failed with `error`. */
export function NotificationTargets({ outbox, error, again }) {
  const [outcomes, setOutcomes] = useState({});
  const [isBusy, setBusy] = useState(false);
  const test = async (target) => {
    setBusy(true);
    const found = await attempt(() => call("POST /api/v1/notifications/test", { body: { target } }));
    if (found) setOutcomes({ ...outcomes, ...Object.fromEntries(found.map((one) => [one.id, one])) });
    setBusy(false);
    again();
  };
  const isShown = (target) => target.kind !== "device" || target.tries > 0;
  const devices = outbox?.items.filter((one) => one.kind === "device").length ?? 0;
  const waiting = outbox?.outboxes.filter((one) => one.waiting || one.dropped) ?? [];
  return html`<section class="card whole" data-testid="notifications">
    <h2>Notifications</h2>
    ${error && html`<${Failure} error=${error} again=${again} />`}
    ${
      outbox?.items.length === devices &&
      html`<p class="muted">
      No target is set: <code>NOTIFY_URLS</code> names where the server tells of what waits. This browser can tell too:
        see the inbox.
    </p>`
    }
    <ul class="rows">
      ${outbox?.items.filter(isShown).map(
        (target) =>
          html`<${Target} key=${target.id} target=${target} onTest=${test} outcome=${outcomes[target.id]}
        isBusy=${isBusy} />`,
      )}
    </ul>
    ${
      devices > 0 &&
      html`<p class="muted">
      ${devices === 1 ? "1 device of a person rings" : `${devices} devices of people ring`}; those that fail are listed
      above.</p>`
    }
    ${waiting.map(
      ({ name, waiting: number, dropped }) => html`<p key=${name} class="high">
      Not queued yet: ${number} about ${name}
        ${dropped ? `; ${dropped} were dropped` : ""}. A supervisor with targets queues them.
    </p>`,
    )}
  </section>`;
}
