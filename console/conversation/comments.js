// Comments on changed lines. They are kept in the browser's session until they are sent to the agent as one message.

/** Folder of the agent server's own files, which are not part of the changes. */
export const OF_AGENT = ".agent-server";

const name = (id) => `agent-server-comments-${id}`;

/** Comments by `key`, per conversation: {path, sign, text, old, fresh, comment, above: earlier lines of a range}. */
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

/** Return the key of a changed line. Its comment is kept as long as its text and its number are the same. */
export function key(path, { sign, text, old, fresh }) {
  return JSON.stringify([path, sign, sign === "-" ? old : fresh, text]);
}

/** Maximum number of quoted characters of a line, and of quoted lines of a comment. */
const QUOTED = 300,
  MOST_QUOTED = 20;

const numberOf = ({ sign, old, fresh }) => `${sign === "-" ? "removed line" : "line"} ${sign === "-" ? old : fresh}`;

/** Return the lines of a comment in words: `line 3`, or `line 3 to removed line 5`. */
export function placeOf(comment) {
  return [comment.above?.[0], comment].filter(Boolean).map(numberOf).join(" to ");
}

/** Return all comments as one message, ordered by file and line. */
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
