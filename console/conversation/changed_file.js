// A changed file of a review: its head, which stays in sight, and its lines.
import { useEffect, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { counted } from "../lib/words.js";
import { Failure } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { ChangedLines } from "./changed_lines.js";

const STATUSES = { ADDED: "Added", DELETED: "Deleted", UPDATED: "Changed", MOVED: "Moved" };

/** Lines that go and come in a file that is open at first. */
const MOST_OPEN = 1_000;

/** How many lines come and go. */
export function Counts({ added, removed }) {
  return html`<span class="counts">
    ${added > 0 && html`<span class="added" title=${`${counted(added, "line")} added`}>+${added}</span>`}
    ${removed > 0 && html`<span class="removed" title=${`${counted(removed, "line")} removed`}>−${removed}</span>`}
  </span>`;
}

/**
 * change: {path, status}. file: as `review_files.js` reads it; undefined: not read. isOpen: at first. isViewed: a
 * person has ticked it as it is.
 */
export function ChangedFile({ change, file, read, isOpen, isViewed, setViewed, isSplit, comments, setComment }) {
  const [chosen, setChosen] = useState(null);
  const { added = 0, removed = 0 } = file?.counts ?? {};
  const open = chosen ?? (isOpen && !isViewed && added + removed <= MOST_OPEN);
  useEffect(() => void (chosen && !file && read()), [chosen, file]); // the others are read in their order
  const number = Object.values(comments).filter(({ path, comment }) => path === change.path && comment.trim()).length;
  let shown = html`<p aria-busy="true">Loading</p>`;
  if (file?.error) shown = html`<${Failure} error=${file.error} again=${read} />`;
  else if (file?.isBinary) shown = html`<p class="muted">This file is not text.</p>`;
  else if (file)
    shown = html`<${ChangedLines} path=${change.path} file=${file} isSplit=${isSplit} comments=${comments}
      setComment=${setComment} />`;
  const tick = (event) => {
    setViewed(event.target.checked);
    setChosen(!event.target.checked);
  };
  return html`<div class="changed-file">
    <details class="changed" data-testid="changed" data-path=${change.path} open=${open}
      onToggle=${(event) => event.target.open !== open && setChosen(event.target.open)}>
      <summary><code><${Text} text=${change.path} /></code> <span class=${`status ${change.status.toLowerCase()}`}>
        ${STATUSES[change.status] ?? "Changed"}</span>
        ${file?.counts && html`<${Counts} ...${file.counts} />`}
        ${number > 0 && html` <span class="muted">${counted(number, "comment")}</span>`}</summary>
      ${open && shown}
    </details>
    ${
      file?.counts &&
      html`<label class="viewed"><input type="checkbox" data-testid="viewed" checked=${isViewed}
      onChange=${tick} />Viewed</label>`
    }
  </div>`;
}
