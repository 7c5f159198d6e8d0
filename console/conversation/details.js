// The panel beside the timeline: facts of the conversation, its tags and its sandbox.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useModes } from "../lib/modes.js";
import { href } from "../lib/router.js";
import { may } from "../lib/session.js";
import { counted } from "../lib/words.js";
import { attempt } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";
import { Sandbox } from "./sandbox.js";
import { usageOf } from "./usage.js";

const PATCH = "PATCH /api/conversations/{conversation_id}";

/** A policy that is none of the modes, in words. @param {Record<string, any>} policy */
function policyWords({ kind, threshold, confirm_unknown }) {
  return `${kind}${threshold ? `, from ${threshold.toLowerCase()} risk` : ""}${
    confirm_unknown === false ? ", unknown risks run" : ""
  }`;
}

function Mode({ record, onDone }) {
  const modes = useModes();
  if (record.agent?.kind === "ACPAgent")
    return html`<dd data-testid="unasked">This agent never asks: it runs every action.</dd>`;
  if (record.external) return html`<dd>Its own settings decide what it asks.</dd>`;
  const present = modes.find(({ name }) => name === record.approval_mode);
  const text = present?.words ?? record.approval_mode ?? policyWords(record.confirmation_policy);
  if (!may("approve")) return html`<dd>${text}</dd>`;
  const set = async (event) => {
    const mode = event.target.value;
    if (!mode) return;
    const path = { conversation_id: record.id };
    const done = await attempt(
      () => call("POST /api/v1/conversation/{conversation_id}/approval-mode", { path, body: { mode } }),
      "The mode holds from the next action on.",
    );
    if (done === undefined) event.target.value = present?.name ?? ""; // it was refused
    onDone();
  };
  return html`<dd><select data-testid="mode" aria-label="Which actions wait for a decision" value=${present?.name ?? ""}
    onChange=${set}>
    ${!present && html`<option value="">${text}</option>`}
    ${modes.map(({ name, words, detail }) => html`<option key=${name} value=${name} title=${detail}>${words}</option>`)}
  </select></dd>`;
}

function Tags({ record, onDone }) {
  const [text, setText] = useState(""),
    [isBusy, setBusy] = useState(false);
  const tags = Object.entries(record.tags ?? {});
  const change = async (next) => {
    setBusy(true); // the next change begins with what this one leaves
    const done = await attempt(() => call(PATCH, { path: { conversation_id: record.id }, body: { tags: next } }));
    await onDone();
    setBusy(false);
    return done !== undefined;
  };
  const add = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    const [name, ...value] = text.split("=");
    if (name.trim() && (await change({ ...record.tags, [name.trim()]: value.join("=").trim() }))) setText("");
  };
  const remove = (name) => change(Object.fromEntries(tags.filter(([other]) => other !== name)));
  return html`<dd>
    <ul class="tags" aria-label="Tags">
      ${tags.map(
        ([
          name,
          value,
        ]) => html`<li key=${name} class="tag"><${Text} prose text=${value === "" ? name : `${name}=${value}`} />
        ${
          may("write") &&
          html`<button type="button" class="quiet" disabled=${isBusy}
          aria-label=${`Remove the tag ${name}`} onClick=${() => remove(name)}>×</button>`
        }</li>`,
      )}
      ${!tags.length && html`<li class="muted">None</li>`}
    </ul>
    ${
      may("write") &&
      html`<form class="add" onSubmit=${add}>
      <input data-testid="tag" aria-label="New tag, as name=value" placeholder="name=value" value=${text}
        onInput=${(event) => setText(event.target.value)} />
      <button type="submit" class="secondary" data-testid="add-tag" disabled=${!text.trim() || isBusy}>Add</button>
    </form>`
    }
  </dd>`;
}

function cost(stats) {
  const usage = usageOf(stats);
  if (!usage) return "–";
  const isPriced = usage.dollars > 0 || !usage.tokens; // an agent tells 0 for a model whose price it does not know
  return `${
    isPriced ? `$${usage.dollars.toFixed(usage.dollars < 1 ? 4 : 2)}, ` : ""
  }${usage.tokens.toLocaleString("en")} tokens`;
}

function Other({ id, event }) {
  return html`<a href=${href("conversations", id, { event })}>${id.slice(0, 8)}</a>`;
}

/** Where an agent outside of sandboxes runs, as the agent states it. */
function TerminalFacts({ of }) {
  const facts = [
    ["Agent", [of.agent, of.version].filter(Boolean).join(" ")],
    ["Machine", of.machine],
    ["Person", of.person],
    ["Folder", of.folder],
    ["Its own mode", of.mode],
    ["Session", of.session],
  ];
  return html`<section data-testid="terminal-of" aria-label="Terminal">
    <h2>Terminal</h2>
    <p class="muted">As its hook says.</p>
    <dl>
      ${facts
        .filter(([, value]) => value)
        .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd><${Text} text=${value} /></dd></div>`)}
    </dl>
  </section>`;
}

/** record: the conversation. */
export function Details({ record, total, onDone, onClose }) {
  const { forked_from_conversation_id: source, parent_conversation_id: parent } = record;
  return html`<aside class="details" id="details" aria-label="Details">
    <h2>Details <button type="button" class="quiet" data-testid="close-details" onClick=${onClose}>Close</button></h2>
    <dl>
      <div><dt>Approval</dt><${Mode} record=${record} onDone=${onDone} /></div>
      <div><dt>Tags</dt><${Tags} record=${record} onDone=${onDone} /></div>
      <div><dt>Started</dt><dd><${Time} at=${record.created_at} /></dd></div>
      <div><dt>Updated</dt><dd><${Time} at=${record.updated_at} /></dd></div>
      <div><dt>Events</dt><dd>${(total ?? 0).toLocaleString("en")}</dd></div>
      <div><dt title="As the agent reports them">Costs</dt><dd>${cost(record.stats)}</dd></div>
      ${record.current_model_id && html`<div><dt>Model</dt><dd><${Text} text=${record.current_model_id} /></dd></div>`}
      ${
        source &&
        html`<div><dt>Fork of</dt><dd><${Other} id=${source} event=${record.forked_from_event_id} />
        </dd></div>`
      }
      ${parent && html`<div><dt>Child of</dt><dd><${Other} id=${parent} /></dd></div>`}
      ${
        record.sub_conversation_ids?.length > 0 &&
        html`<div><dt>Children</dt><dd>
        ${record.sub_conversation_ids.map((id) => html`<${Other} key=${id} id=${id} /> `)}</dd></div>`
      }
      ${
        record.unapproved_resumes > 0 &&
        html`<div><dt>Continued without approval</dt><dd class="high">${counted(record.unapproved_resumes, "time")}
        </dd></div>`
      }
      <div><dt>ID</dt><dd><code>${record.id}</code></dd></div>
    </dl>
    ${
      record.external
        ? html`<${TerminalFacts} of=${record.external} />`
        : html`<${Sandbox} conversationId=${record.id} />`
    }
  </aside>`;
}
