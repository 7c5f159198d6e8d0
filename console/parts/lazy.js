// A component that is loaded when it is first shown.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { Failure } from "./notices.js";

const FAULT = new Error(
  "This part of the page did not load. The server may be away, or was updated: load the page again.",
);

/** load(): a promise of a module, whose default export is shown with all other properties. */
export function Lazy({ load, ...properties }) {
  const [loaded, setLoaded] = useState(/** @type {any} */ ({}));
  const { Component, error } = loaded.load === load ? loaded : {};
  useEffect(() => {
    let isLate = false;
    load().then(
      (module) => isLate || setLoaded({ load, Component: module.default }),
      () => isLate || setLoaded({ load, error: FAULT }),
    );
    return () => (isLate = true);
  }, [load]);
  if (error) return html`<${Failure} error=${error} again=${() => location.reload()} />`;
  return Component ? html`<${Component} ...${properties} />` : html`<p aria-busy="true">Loading</p>`;
}
