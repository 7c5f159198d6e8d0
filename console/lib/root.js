// Where this server is: behind a proxy it may have a path, and share its origin with another one.

/** The path of the server, which ends in a slash: "/", or "/agents/" behind a proxy that serves it there. */
export const ROOT = new URL("../../../", import.meta.url).pathname;

/** A name for what the browser keeps of this server: it keeps by origin, and another path may have another server. */
export const ours = (name) => (ROOT === "/" ? name : `${name} ${ROOT}`);
