// What waits for a decision in this conversation: what its sandbox asks to reach, and its actions.
import { call } from "../lib/api.js";
import { nameOfAsked } from "../lib/destinations.js";
import { html } from "../lib/html.js";
import { may } from "../lib/session.js";
import DestinationList from "../parts/destination.js";
import { attempt } from "../parts/notices.js";
import { PromptList } from "../parts/prompt_list.js";

/** A prompt that ends keeps its place while it is held. record: the conversation; items: its actions. */
export function Prompts({ record, items }) {
  const again = (item) => {
    const text = item.budget
      ? "The budget has room again. Go on."
      : `You may reach ${nameOfAsked(item)} now. Try again.`;
    const body = { role: "user", content: [{ type: "text", text }], run: true, rejects: false };
    const path = { conversation_id: record.id };
    attempt(() => call("POST /api/conversations/{conversation_id}/events", { path, body }), "The agent was asked.");
  };
  const onAgain = may("write") && !items.length ? again : undefined;
  return html`<section class="waits-here" aria-label="What waits for your decision">
    <${DestinationList} of=${record} onAgain=${onAgain} /><${PromptList} items=${items} />
  </section>`;
}
