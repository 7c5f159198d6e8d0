// Comments on lines of a change: kept in the browser's session until they are sent, and how an agent reads them.

/** The folder of an agent's own files, which are no part of the work. */
export const OF_AGENT = ".agent-server";

const name = (id) => `agent-server-comments-${id}`;

/** Comments by `key`, of each conversation: {path, sign, text, old, fresh, comment, and of several lines: above}. */
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

/** Characters of a line, and lines of a comment, that are quoted at most. */
const QUOTED = 300,
  MOST_QUOTED = 20;

const numberOf = ({ sign, old, fresh }) => `${sign === "-" ? "removed line" : "line"} ${sign === "-" ? old : fresh}`;

/** Which lines a comment is on: `line 3`, or `line 3 to removed line 5`. */
export function placeOf(comment) {
  return [comment.above?.[0], comment].filter(Boolean).map(numberOf).join(" to ");
}

/** One message of all comments, by file and line. */
export function messageOf(comments) {
  const sorted = comments.toSorted(
    (one, other) => one.path.localeCompare(other.path) || one.fresh - other.fresh || one.old - other.old,
  );
  const quoted = ({ sign, text }) => `    ${sign} ${text.length > QUOTED ? `${text.slice(0, QUOTED)} …` : text}`;
  const parts = sorted.map((comment) => {
    const lines = [...(comment.above ?? []), comment].map(quoted);
    if (lines.length > MOST_QUOTED) lines.splice(MOST_QUOTED - 1, lines.length - MOST_QUOTED, "    …");
    return `${JSON.stringify(comment.path)}, ${placeOf(comment)}:\n\n${lines.join("\n")}\n\n${comment.comment.trim()}`;
  });
  return `Comments on the changes:\n\n${parts.join("\n\n")}`;
}
