// What the server sees that actions do, in words. core/effects.toml has the same words; a test compares the two.
export const EFFECTS = {
  privileges: "Uses privileges",
  credentials: "Reads credentials",
  deletes: "Deletes",
  history: "Rewrites the history of Git",
  writes_outside: "Writes outside the folder",
  unreadable: "Cannot be read whole",
  network: "Uses the network",
  scripts: "Runs scripts",
  unknown: "Effect unknown",
  writes_temporary: "Writes temporary files",
  writes_inside: "Writes files",
  reads_outside: "Reads outside the folder",
  reads: "Reads",
};
