// One conversation, live: its record, and one stream of its events for all parts of the view.
import { call } from "../lib/api.js";
import { connection, follow } from "../lib/live.js";
import { Store } from "../lib/store.js";
import { tell } from "../parts/notices.js";
import { Decisions } from "./decisions.js";

/** Members of the record that a state event of this key changes. */
const MEMBERS = new Set(["execution_status", "title", "tags", "confirmation_policy", "stats"]);

/** Characters of a message that is being written which are shown: the last ones. */
const MOST_WRITING = 4_000;

/** Milliseconds between two looks whether a conversation whose stream is lost is still there. */
const LOOK = 3_000;

export class Feed {
  /** The conversation as the API has it; null before it is known. */
  record = new Store(null);
  /** The number of its events, which is the seq of the last one; null before it is known. */
  total = new Store(null);
  /** What prevents that it is shown: an error, or null. */
  fault = new Store(null);
  /** Whether there is no such conversation (any more). */
  gone = new Store(false);
  /** What the agent is writing now, "" for nothing. */
  writing = new Store("");
  /** What the command that runs has printed last: {action_id, text, size}; null where nothing is known. */
  output = new Store(null);
  /** Who decided its actions. */
  decisions;
  #path;
  #subscribers = new Set();
  #ended = new AbortController();
  #unfollow = () => {};

  constructor(id) {
    this.#path = { conversation_id: id };
    this.decisions = new Decisions(id);
  }

  /** Begin. Returns what ends it. */
  open() {
    this.refresh();
    this.#begin();
    const looks = setInterval(() => connection.get() === "lost" && this.refresh(), LOOK);
    // a title changes without an event of the log: after a gap the record is asked for
    const unsubscribe = connection.subscribe(() => (this.fault.get() ? this.again() : this.#afterGap()));
    return () => {
      clearInterval(looks);
      unsubscribe();
      this.#ended.abort();
      this.#unfollow();
    };
  }

  /** Call `subscriber` with each event of the log that is appended from now on, once. Returns what ends that. */
  subscribe(subscriber) {
    this.#subscribers.add(subscriber);
    return () => this.#subscribers.delete(subscriber);
  }

  /** Ask for the record, after what changes it without an event. */
  async refresh() {
    await this.#doing(async (signal) =>
      this.record.set(await call("GET /api/conversations/{conversation_id}", { path: this.#path, signal })),
    );
  }

  #afterGap() {
    this.refresh();
    if (connection.get() === "live") this.decisions.again();
  }

  /** Try again after a fault. */
  again() {
    this.fault.set(null);
    this.refresh();
    if (this.total.get() === null) this.#begin();
  }

  // The number is asked for before any page of events: what is appended after it comes by the stream, so nothing is
  // missed.
  async #begin() {
    await this.#doing(async (signal) => {
      const total = await call("GET /api/conversations/{conversation_id}/events/count", { path: this.#path, signal });
      if (signal.aborted) return;
      this.total.set(total);
      this.#unfollow = follow("GET /api/conversations/{conversation_id}/events/stream", {
        path: this.#path,
        conversationId: this.#path.conversation_id,
        cursor: { name: "after_seq", value: String(total) },
        names: ["message", "decision"],
        onEvent: (name, event, seq) =>
          name === "decision" ? this.decisions.take(event) : this.#take(event, Number(seq)),
      });
    });
  }

  async #doing(doing) {
    try {
      await doing(this.#ended.signal);
    } catch (fault) {
      if (this.#ended.signal.aborted) return;
      if (fault.status === 404) {
        this.#unfollow();
        this.gone.set(true);
      } else if (!this.record.get() || this.total.get() === null) this.fault.set(fault);
    }
  }

  // An event that no log keeps has no seq of its own: the browser says that of the event before.
  #take(event, seq) {
    if (event.kind.endsWith("ConversationStateUpdateEvent")) this.#change(event);
    if (event.kind.endsWith("StreamingDeltaEvent")) return this.#write(event);
    if (event.kind.endsWith("CommandOutputEvent")) return this.#print(event);
    if (event.kind.endsWith("ServerErrorEvent")) tell(`${event.code ?? "The server"}: ${event.detail ?? ""}`, "failed");
    if (!(seq > this.total.get())) return;
    this.total.set(seq);
    if (event.source === "agent") this.writing.set("");
    if (event.action_id && event.action_id === this.output.get()?.action_id) this.output.set(null);
    for (const subscriber of this.#subscribers) subscriber(event);
  }

  #change({ key, value }) {
    const record = this.record.get();
    if (!record) return;
    if (key === "full_state") this.record.set({ ...record, ...value });
    else if (MEMBERS.has(key)) this.record.set({ ...record, [key]: value });
    else if (key === "approval_mode") this.record.set({ ...record, approval_mode: value?.mode ?? null });
    if (key === "execution_status" && value !== "running") this.writing.set("");
  }

  #print({ action_id, text, size }) {
    if (typeof text === "string" && Number.isInteger(size)) this.output.set({ action_id, text, size });
  }

  #write({ content, reasoning_content }) {
    const text = this.writing.get() + (content ?? reasoning_content ?? "");
    this.writing.set(text.length > MOST_WRITING ? `…${text.slice(1 - MOST_WRITING)}` : text);
  }
}
