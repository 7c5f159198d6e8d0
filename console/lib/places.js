// The places of what waits in a list: none moves by itself, whatever comes and goes. And the rows of the inbox that
// they
// make: a row is an action, or a group of the same command, or of like ones.
import { byAge, nameOf } from "./pending.js";
import { ours } from "./root.js";

/** Most ended places that are kept while they are held. */
const MOST_ENDED = 60;

/** The names of what was set aside, for the session of the browser. */
const ASIDE = ours("agent-server-aside"),
  MOST_ASIDE = 500;

function aside() {
  return JSON.parse(sessionStorage.getItem(ASIDE) ?? "[]");
}

/** Put an item behind all others, also after a reload. */
export function setAside(item) {
  const names = aside().filter((name) => name !== nameOf(item));
  sessionStorage.setItem(ASIDE, JSON.stringify([...names, nameOf(item)].slice(-MOST_ASIDE)));
}

let entries = 0;

/**
 * A new place. state: "open", "ended", or "aside": the item has a later place now.
 *
 * group: a number that the places of one group share; of: what made them one, as `groupOf` says it.
 */
export function entry(item, of = nameOf(item), group = entries) {
  return { key: `${nameOf(item)} ${entries++}`, item, state: "open", of, group };
}

export const isOpen = ({ state }) => state === "open";

/** A place of an item that waits still: where it belongs to another group now, it has a group of its own. */
function renewed(place, item, of) {
  return of === place.of ? { ...place, item } : { ...place, item, of, group: entries++ };
}

/**
 * The places after a change: none moves, what came stands below, what ended keeps its place while it is held.
 *
 * isHeld(place): whether what ended keeps its place. isNext: where nothing waits any more, what comes takes the place
 * of what ended. passes(item), order(a, b): of what comes. groupOf(item): items of the same text that wait at the same
 * time are a group, which stands where its first one does.
 */
export function merged(
  places,
  items,
  {
    isHeld,
    isNext = false,
    passes = (_item) => true,
    order = /** @type {(a: any, b: any) => number} */ (byAge),
    groupOf = nameOf,
  },
) {
  const waiting = new Map(items.map((item) => [nameOf(item), item]));
  const kept = places.map((place) => {
    if (!isOpen(place)) return place;
    const item = waiting.get(nameOf(place.item));
    waiting.delete(nameOf(place.item));
    return item ? renewed(place, item, groupOf(item)) : { ...place, state: "ended" };
  });
  const later = aside(),
    rank = (item) => later.indexOf(nameOf(item));
  const arrived = [...waiting.values()].filter(passes).sort((a, b) => rank(a) - rank(b) || order(a, b));
  const takesOver = isNext && arrived.length > 0 && !kept.some(isOpen);
  const held = takesOver ? [] : kept.filter((place) => isOpen(place) || isHeld(place));
  const surplus = new Set(held.filter((place) => !isOpen(place)).slice(0, -MOST_ENDED));
  const groups = new Map(held.filter(isOpen).map(({ of, group }) => [of, group]));
  const fresh = arrived.map((item) => {
    const of = groupOf(item),
      place = entry(item, of, groups.get(of));
    groups.set(of, place.group);
    return place;
  });
  return [...held.filter((place) => !surplus.has(place)), ...fresh];
}

/** The places in another order, or of other items: what stays keeps its key, and so what was begun in it. */
export function anew(places, items, how) {
  const before = new Map(places.filter(isOpen).map((place) => [nameOf(place.item), place]));
  return merged([], items, how).map((place) => ({ ...place, key: before.get(nameOf(place.item))?.key ?? place.key }));
}

/**
 * Lists by what `keyOf` says of their items, in the order of their first ones: Map.groupBy, which Node 20 does not
 * have.
 */
export function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

/** The name of a group's row. */
export const headOf = (group) => `group ${group}`;

/**
 * The rows of places: [{id, group, places, isMember, isUnfolded}]; `places` of an action alone, or of a member, is one.
 *
 * unfolded: the groups whose members have rows of their own, below that of the group. What was set aside has no row.
 */
export function rowsOf(places, unfolded) {
  const groups = groupBy(
    places.filter(({ state }) => state !== "aside"),
    ({ group }) => group,
  );
  return [...groups].flatMap(([group, some]) => {
    const isUnfolded = some.length > 1 && unfolded.has(group),
      head = { id: headOf(group), group, places: some, isMember: false, isUnfolded };
    const members = some.map((place) => ({ id: place.key, group, places: [place], isMember: true, isUnfolded: false }));
    return isUnfolded ? [head, ...members] : [head];
  });
}

/**
 * What a row leads to: the name of its group where several of it wait, else the key of the one; null where none waits.
 */
export function targetOf(row, waits = isOpen) {
  const open = row.places.filter(waits);
  if (open.length > 1) return row.id;
  return open.length && !row.isUnfolded ? open[0].key : null;
}

/** The row of what is current: its own, or that of the folded group that it is in; -1 where it has none. */
export function indexOf(rows, current) {
  const own = rows.findIndex(({ id }) => id === current);
  return own >= 0 ? own : rows.findIndex(({ places }) => places.some(({ key }) => key === current));
}

/**
 * Where a step leads from what is current: to the next row in which something waits, or to the one before; else null.
 */
export function stepFrom(rows, current, by, waits = isOpen) {
  const index = indexOf(rows, current);
  const ahead = by > 0 ? rows.slice(index + 1) : rows.slice(0, Math.max(0, index)).reverse();
  return ahead.map((row) => targetOf(row, waits)).find(Boolean) ?? null;
}

/**
 * Where the focus goes once what is current is decided: what else waits in its row, else the next below, else the
 * nearest above; null where nothing waits.
 */
export function nextAfter(rows, current, waits = isOpen) {
  const own = rows[indexOf(rows, current)];
  const rest = own && targetOf(own, waits);
  return rest ?? stepFrom(rows, current, 1, waits) ?? stepFrom(rows, current, -1, waits);
}

/** The places that a decision about what is current is about. */
export function placesOf(places, current) {
  return places.filter(
    (place) => place.key === current || (place.state !== "aside" && headOf(place.group) === current),
  );
}
