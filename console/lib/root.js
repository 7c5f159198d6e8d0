// The path of this server. Behind a proxy it may share its origin with another server.

/** The path of the server, which ends in a slash: "/", or "/agents/" behind a proxy that serves it there. */
export const ROOT = new URL("../../../", import.meta.url).pathname;

/** Storage key of this server: the browser stores by origin, and another path may have another server. */
export const ours = (name) => (ROOT === "/" ? name : `${name} ${ROOT}`);
