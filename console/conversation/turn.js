// What happened between the steps of a turn, on one line: how long the agent worked, and what it used.
import { Component } from "preact";
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useStore } from "../lib/store.js";
import { counted, now, took } from "../lib/words.js";
import { EventRow } from "./event.js";

/** Running time since a moment. */
export function Since({ at }) {
  return took(Math.round((useStore(now) - at) / 1000) * 1000);
}

function Words({ line: { actions, milliseconds, since, tokens, events } }) {
  const facts = [actions > 0 && counted(actions, "action"), tokens > 0 && counted(tokens, "token")].filter(Boolean);
  if (since !== null)
    return html`Working for <${Since} at=${since - milliseconds} />${facts.map((fact) => `, ${fact}`)}`;
  if (milliseconds > 0) facts.unshift(`Worked ${took(milliseconds)}`);
  return facts.length ? facts.join(", ") : counted(events.length, "event");
}

function Between({ line, focus, forkOf }) {
  const [isOpened, setOpened] = useState(false),
    [closedFor, setClosedFor] = useState(null);
  const isOpen = isOpened || (focus !== null && focus !== closedFor); // the address may name an event of it later
  const toggle = ({ target: { open } }) => (setOpened(open), !open && setClosedFor(focus));
  return html`<details open=${isOpen} onToggle=${toggle}>
    <summary data-testid="turn"><${Words} line=${line} /></summary>
    ${
      isOpen &&
      html`<ol>${line.events.map(
        (event) =>
          html`<${EventRow} key=${event.id} row=${{ event, results: [] }} isFocus=${event.id === focus}
      onFork=${forkOf({ event, results: [] })} />`,
      )}</ol>`
    }
  </details>`;
}

/**
 * line: of talkOf. focus: the id of an event that the address names, or null. forkOf(row): its onFork(row), or
 * undefined. Drawn again when it changes.
 */
export class Turn extends Component {
  shouldComponentUpdate(next) {
    return ["line", "focus", "forkOf"].some((name) => next[name] !== this.props[name]);
  }

  render(properties) {
    return html`<li class="turn"><${Between} ...${properties} /></li>`;
  }
}
