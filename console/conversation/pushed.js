// A push that was made: its branch and commit, and where it can be seen.
import { html } from "../lib/html.js";
import { beginning } from "../lib/visible.js";
import { followable } from "../parts/markdown.js";
import { Text } from "../parts/text.js";

/** An address of the host as a link. */
function PushLink({ address, words }) {
  const url = followable(String(address));
  return (
    url &&
    html` · <a href=${url.href} target="_blank" rel="noopener noreferrer nofollow">${words}</a> <span
      class="muted leads" dir="ltr">(${url.host})</span>`
  );
}

/** value: as the event `pushed` has it. */
export function Pushed({ value }) {
  const { branch, commit, url, pull_request: request, offered_url: offered } = value ?? {};
  return html`Pushed <code><${Text} text=${beginning(String(branch), 300)} /></code> at <code>
    ${String(commit).slice(0, 10)}</code> to <${Text} text=${beginning(String(url), 300)} />
    ${
      request
        ? html`<${PushLink} address=${request} words="Pull request" />`
        : offered && html`<${PushLink} address=${offered} words="Open a pull request" />`
    }`;
}
