// Comments on lines of a change: kept in the browser's session until they are sent, and how an agent reads them.

/** The folder of an agent's own files, which are no part of the work. */
export const OF_AGENT = ".agent-server";

const name = (id) => `agent-server-comments-${id}`;

/** Comments by `key`, of each conversation: {path, sign, text, old, fresh, comment}. */
export const kept = {
  get(id) {
    try {
      return JSON.parse(sessionStorage.getItem(name(id)) ?? "{}");
    } catch {
      return {};
    }
  },
  set(id, comments) {
    try {
      Object.keys(comments).length
        ? sessionStorage.setItem(name(id), JSON.stringify(comments))
        : sessionStorage.removeItem(name(id));
    } catch {
      // the browser's session is full: the comments stay on the page
    }
  },
};

/** What names a line of a change: a comment stays at it while its text and its number are the same. */
export function key(path, { sign, text, old, fresh }) {
  return JSON.stringify([path, sign, sign === "-" ? old : fresh, text]);
}

/** Characters of a line that are quoted at most. */
const QUOTED = 300;

/** One message of all comments, by file and line. */
export function messageOf(comments) {
  const sorted = comments.toSorted(
    (one, other) => one.path.localeCompare(other.path) || one.fresh - other.fresh || one.old - other.old,
  );
  const parts = sorted.map(({ path, sign, text, old, fresh, comment }) => {
    const place = sign === "-" ? `removed line ${old}` : `line ${fresh}`;
    const quoted = text.length > QUOTED ? `${text.slice(0, QUOTED)} …` : text;
    return `${JSON.stringify(path)}, ${place}:\n\n    ${sign} ${quoted}\n\n${comment.trim()}`;
  });
  return `Comments on the changes:\n\n${parts.join("\n\n")}`;
}
