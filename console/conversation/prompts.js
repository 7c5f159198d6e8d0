// What waits for a decision in this conversation: what its sandbox asks to reach, and its actions.
import { useEffect, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { asked, isOf, nameOfAsked } from "../lib/destinations.js";
import { html } from "../lib/html.js";
import { may } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { DestinationList } from "../parts/destination.js";
import { attempt } from "../parts/notices.js";
import { PromptList } from "../parts/prompt_list.js";

/** Whether the server tells the agent by itself what is allowed now; null before it is known. It is read while something is asked. */
function useGoesOn(record) {
  const isAsked = useStore(asked)?.some((item) => isOf(item, record)) ?? false;
  const [goesOn, setGoesOn] = useState(null);
  useEffect(() => {
    if (!isAsked) return;
    call("GET /api/v1/app-conversations", { query: { ids: record.id } }).then(
      ([found]) => setGoesOn(found?.goes_on_when_allowed ?? false),
      () => setGoesOn(false),
    );
  }, [record.id, isAsked]);
  return goesOn;
}

/** A prompt that ends keeps its place while it is held. record: the conversation; items: its actions. */
export function Prompts({ record, items }) {
  const goesOn = useGoesOn(record);
  const again = (item) => {
    const text = item.budget
      ? "The budget has room again. Go on."
      : `You may reach ${nameOfAsked(item)} now. Try again.`;
    const body = { role: "user", content: [{ type: "text", text }], run: true, rejects: false };
    const path = { conversation_id: record.id };
    attempt(() => call("POST /api/conversations/{conversation_id}/events", { path, body }), "The agent was asked.");
  };
  const onAgain = goesOn === false && may("write") && !items.length ? again : undefined;
  return html`<section class="waits-here" aria-label="What waits for your decision">
    <${DestinationList} of=${record} onAgain=${onAgain} goesOn=${goesOn} /><${PromptList} items=${items} isHere />
  </section>`;
}
