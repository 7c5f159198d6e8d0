// The views that are offered: beside the page in groups, and on a phone a bar at the bottom with the rest in a sheet.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { href } from "../lib/router.js";
import { may } from "../lib/session.js";
import { Icon } from "./icon.js";

/** The daily views, of which the first is the page's primary button, and the groups of the others. */
const DAILY = ["start", "inbox", "conversations"];
const GROUPS = { Operate: ["sandboxes", "rules", "audit"], Admin: ["keys", "status"] };

/** Icons that are not called as their views. */
const ICONS = { start: "plus" };

/** views: {name: {label, scope}}. Its room is there before `who` is known, so that nothing below it moves. */
export function Navigation({ views, view, who, badge }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [view]);
  if (!who) return html`<nav aria-label="Views"></nav>`;
  const offered = (names) => names.filter((name) => !views[name].scope || may(views[name].scope));
  const onKey = (event) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    setOpen(false);
    event.currentTarget.querySelector(".more-views").focus();
  };
  const list = (names) =>
    offered(names).map(
      (name) => html`<li key=${name} class=${`to-${name}`}>
        <a href=${href(name)} aria-current=${name === view ? "page" : null} onClick=${() => setOpen(false)}>
          <${Icon} name=${ICONS[name] ?? name} /><span>${views[name].label}</span>${name === "inbox" && badge}
        </a>
      </li>`,
    );
  const isInRest = Object.values(GROUPS).some((names) => names.includes(view));
  return html`<nav aria-label="Views" onKeyDown=${onKey}>
    <ul>
      ${list(DAILY)}
      <li class="to-more">
        <button type="button" class=${`more-views ${isInRest ? "holds-view" : ""}`} aria-expanded=${isOpen}
          aria-controls="rest-of-views" onClick=${() => setOpen(!isOpen)}>
          <${Icon} name="more" /><span>More</span>
        </button>
      </li>
    </ul>
    <div id="rest-of-views" class=${isOpen ? "rest open" : "rest"}>
      ${Object.entries(GROUPS).map(
        ([label, names]) =>
          offered(names).length > 0 &&
          html`<section key=${label} aria-label=${label}>
            <p aria-hidden="true">${label}</p>
            <ul>${list(names)}</ul>
          </section>`,
      )}
    </div>
    ${isOpen && html`<div class="behind" onClick=${() => setOpen(false)}></div>`}
  </nav>`;
}
