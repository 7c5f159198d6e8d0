// Verifies one chain of the audit, of a conversation or of a day's destinations, as `python -m admin audit verify`
// does: every byte, every hash, no gap.

/** Whether this browser can: it computes hashes for addresses that it trusts, https or this machine. */
export const canVerify = Boolean(globalThis.crypto?.subtle);

/**
 * Verify an export, one entry a line. Returns {number, hash}: of the last entry. Throws Error, whose words say what
 * differs.
 */
export async function verify(lines, chain) {
  let seq = 0,
    previous = "";
  for (const line of lines.split("\n").slice(0, -1)) {
    const where = `Entry ${seq + 1}`,
      entry = parsed(line, where);
    if (canonical(entry) !== line) throw new Error(`${where}: its bytes are not those that were written.`);
    if ((entry.chain ?? entry.conversation_id) !== chain) throw new Error(`${where}: it is of another chain.`);
    const { hash, ...content } = entry,
      found = await sha256(canonical(content));
    if (hash !== found) throw new Error(`${where}: its hash is ${hash}, and that of its content is ${found}.`);
    if (entry.seq !== seq + 1)
      throw new Error(`${where}: seq ${entry.seq} stands here, so entries are missing, repeated or out of order.`);
    if (entry.previous !== previous) throw new Error(`${where}: it does not follow the entry before.`);
    seq = entry.seq;
    previous = hash;
  }
  if (!lines.endsWith("\n") && lines) throw new Error(`Entry ${seq + 1}: the export breaks off.`);
  return { number: seq, hash: previous };
}

function parsed(line, where) {
  try {
    return JSON.parse(line);
  } catch {
    throw new Error(`${where}: it is not JSON.`);
  }
}

/** The canonical JSON of a value, after RFC 8785: JSON of this language, with the members of objects in their order. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
  return `{${members.join(",")}}`;
}

async function sha256(text) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
