// The actions of this conversation that wait for a decision. A prompt that ends keeps its place while it is held.
import { html } from "../lib/html.js";
import { PromptList } from "../parts/prompt_list.js";

export function Prompts({ items }) {
  return html`<section class="waits-here" aria-label="What waits for your decision"><${PromptList} items=${items} isHere /></section>`;
}
