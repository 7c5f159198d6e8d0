// Rows of the timeline: an event, and for an action its result.

/** The bare name of an event's kind, which releases qualify. */
export function kindOf(event) {
  return String(event.kind).split(".").at(-1);
}

/** The last event of a row: a fork from the row ends with it, so that no call lacks its result. */
export function lastOf({ event, results }) {
  return results.at(-1) ?? event;
}

/** The rows of events: {event, results}. before: the rows that were shown, of which those that are the same are kept. */
export function rowsOf(events, before = []) {
  const rows = [], byAction = new Map(), byCall = new Map();
  for (const event of events) {
    const action = byAction.get(event.action_id) ?? (kindOf(event) === "AgentErrorEvent" ? byCall.get(event.tool_call_id) : null);
    if (action) {
      action.results.push(event);
      continue;
    }
    const row = { event, results: [] };
    rows.push(row);
    if (kindOf(event) !== "ActionEvent") continue;
    byAction.set(event.id, row);
    if (event.tool_call_id) byCall.set(event.tool_call_id, row);
  }
  const known = new Map(before.map((row) => [row.event.id, row]));
  return rows.map((row) => {
    const same = known.get(row.event.id);
    return same && same.event === row.event && same.results.length === row.results.length ? same : row;
  });
}
