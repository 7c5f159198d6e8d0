// Starts a conversation. A message is enough. Before the first conversation the page also says what the server does.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { useIsFirst } from "../lib/first.js";
import { html } from "../lib/html.js";
import { go } from "../lib/router.js";
import { begin, draft, faultsIn, finish, prepare, start } from "../lib/starts.js";
import { useStore } from "../lib/store.js";
import { Failure, tell } from "../parts/notices.js";
import { Form, HEADLINE } from "../parts/start_form.js";
import { Progress } from "../parts/start_progress.js";

/** The three steps after a start, for a first visit. */
const HOW = [
  ["It runs in a sandbox", "The agent works in a folder of its own, with the network that you allow."],
  ["It asks you", "You see each command before it runs, and what it would do."],
  ["You approve here", "Approve, reject with a reason, or make a rule. The audit keeps who decided what."],
];

function useSpecs() {
  const [state, setState] = useState({ specs: null, error: null });
  const read = () => {
    setState({ specs: null, error: null });
    call("GET /api/v1/sandbox-specs/search", { query: { limit: 100 } }).then(
      ({ items }) => setState({ specs: items, error: null }),
      (error) => setState({ specs: null, error }),
    );
  };
  useEffect(read, []);
  return { ...state, read };
}

function How() {
  return html`<ol class="how" aria-label="What happens then">${HOW.map(
    ([title, words]) => html`<li key=${title}><strong>${title}</strong><span>${words}</span></li>`,
  )}</ol>`;
}

/** isInbox: the form replaces the empty inbox. A start then continues in its own view. */
export default function StartView({ isInbox = false }) {
  const present = useStore(start),
    isFirst = useIsFirst();
  const { specs, error, read } = useSpecs();
  const left = useRef(/** @type {AbortController | null} */ (null));
  const follow = async (doing) => {
    if (isInbox) {
      prepare();
      go("start");
      return;
    }
    const { signal } = left.current;
    const done = await doing(signal);
    if (done?.notDone) tell(done.notDone, "failed");
    if (done && !signal.aborted) go("conversations", done.id);
  };
  const startWithout = () => {
    const failed = present.task.id;
    draft.set({ ...draft.get(), repository: "", branch: "" });
    follow((signal) => begin(signal, failed));
  };
  useEffect(() => {
    left.current = new AbortController();
    if (!isInbox && start.get() && !start.get().error) follow(finish); // a start that goes on
    return () => left.current.abort();
  }, []);
  const refused = present?.task ? {} : faultsIn(present?.error);
  const isBusy = Boolean(present) && !present.error && present.task?.status !== "ERROR";
  const isMarked = Object.keys(refused).length > 0;
  return html`<div class="start-view">
    <h1 id=${HEADLINE}>What should an agent do?</h1>
    ${
      error
        ? html`<${Failure} error=${error} again=${read} />`
        : html`<${Form} specs=${specs} isBusy=${isBusy} isBegun=${Boolean(present)} refused=${refused}
          onStart=${() => follow(begin)} />`
    }
    ${
      present &&
      !isInbox &&
      html`<${Progress} present=${present} isMarked=${isMarked} onAgain=${() => follow(begin)}
      onFinish=${() => follow(finish)} onWithout=${startWithout} />`
    }
    ${isFirst && !present && html`<${How} />`}
  </div>`;
}
