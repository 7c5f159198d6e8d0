// What waits for a decision in this conversation: what its sandbox asks to reach, and its actions.
import { useEffect, useRef } from "preact/hooks";
import { call } from "../lib/api.js";
import { asked, nameOfAsked } from "../lib/destinations.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { may } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import DestinationList from "../parts/destination.js";
import { attempt } from "../parts/notices.js";
import { PromptList } from "../parts/prompt_list.js";

/**
 * What the list of app conversations has of this one: its sandbox, and whether the server tells its agent what is
 * allowed; null before it is known. It is read while anything is asked.
 */
export function useApp(id) {
  const isAsked = (useStore(asked)?.length ?? 0) > 0,
    wasAsked = useRef(false);
  wasAsked.current ||= isAsked;
  const operation = wasAsked.current ? "GET /api/v1/app-conversations" : null;
  const { value, error } = useRead(operation, { query: { ids: id }, version: isAsked });
  return value || error ? (value?.[0] ?? {}) : null;
}

/**
 * A prompt that ends keeps its place while it is held. of: the conversation, {id, sandbox_id}; app: of useApp; items:
 * its actions; named: the id of the event that the address names.
 */
export function Prompts({ of, app, items, named }) {
  const goesOn = app && (app.goes_on_when_allowed ?? false);
  const again = (item) => {
    const text = item.budget
      ? "The budget has room again. Go on."
      : `You may reach ${nameOfAsked(item)} now. Try again.`;
    const body = { role: "user", content: [{ type: "text", text }], run: true, rejects: false };
    const path = { conversation_id: of.id };
    attempt(() => call("POST /api/conversations/{conversation_id}/events", { path, body }), "The agent was asked.");
  };
  const element = useRef(null);
  useEffect(() => {
    // The buttons of a form stick to the edge of the window only while a part of the form is in view.
    const keepForm = () => element.current?.querySelector(".panel:focus-within")?.scrollIntoView({ block: "nearest" });
    addEventListener("resize", keepForm);
    return () => removeEventListener("resize", keepForm);
  }, []);
  const onAgain = goesOn === false && may("write") && !items.length ? again : undefined;
  return html`<section ref=${element} class="waits-here" aria-label="What waits for your decision">
    <${DestinationList} of=${of} onAgain=${onAgain} goesOn=${goesOn} /><${PromptList} items=${items} named=${named} />
  </section>`;
}
