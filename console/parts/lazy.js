// A component that is loaded when it is first shown.
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { Failure, Loading } from "./notices.js";

/** Error of a module that did not load. status 0: the page loads it again by itself, as after an outage. */
const fault = () =>
  Object.assign(new Error("This part of the page did not load. If the server was updated, load the page again."), {
    status: 0,
  });

/** load(): a promise of a module, whose default export is shown with all other properties. */
export function Lazy({ load, ...properties }) {
  const { value: module, error } = useRead(() => load().catch(() => Promise.reject(fault())), { key: load });
  if (error) return html`<${Failure} error=${error} again=${() => location.reload()} />`;
  return module ? html`<${module.default} ...${properties} />` : html`<${Loading} />`;
}
