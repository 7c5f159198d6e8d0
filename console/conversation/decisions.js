// Who decided the actions of a conversation: read for those that are shown, and told by the stream from then on.
import { call } from "../lib/api.js";
import { Store } from "../lib/store.js";

/**
 * Ids of one request, as they are a part of its address; actions that are remembered, after which all are read anew.
 */
const MOST_IDS = 50,
  MOST = 5_000;

export class Decisions {
  /** Decisions, by the ids of their actions. */
  all = new Store(new Map());
  #asked = new Set();

  constructor(id) {
    this.id = id;
  }

  /** Keep a decision that the stream tells. */
  take(decision) {
    this.#keep(decision.action_ids.map((id) => [id, decision]));
  }

  /** Read the decisions about actions that were not asked for before. */
  async want(ids) {
    if (this.#asked.size > MOST) this.#asked.clear();
    const fresh = ids.filter((id) => !this.#asked.has(id));
    for (const id of fresh) this.#asked.add(id);
    for (let at = 0; at < fresh.length; at += MOST_IDS) {
      const action_id = fresh.slice(at, at + MOST_IDS);
      try {
        const operation = "GET /api/v1/conversation/{conversation_id}/decisions";
        const found = await call(operation, { path: { conversation_id: this.id }, query: { action_id } });
        this.#keep(found.flatMap((decision, place) => (decision ? [[action_id[place], decision]] : [])));
      } catch {
        for (const id of action_id) this.#asked.delete(id); // the rows say what they say without it
      }
    }
  }

  /** After a gap of the stream: read again what nobody had decided before it. */
  again() {
    const asked = [...this.#asked].filter((id) => !this.all.get().has(id));
    for (const id of asked) this.#asked.delete(id);
    return this.want(asked);
  }

  #keep(pairs) {
    if (pairs.length) this.all.set(new Map([...this.all.get(), ...pairs].slice(-MOST)));
  }
}
