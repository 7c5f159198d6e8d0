// All sandboxes, live: what each is, what it takes of its machine, and what one can do with it.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { holding, useList } from "../lib/lists.js";
import { usePolled } from "../lib/polled.js";
import { go, href, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { bytes } from "../lib/words.js";
import { Dialog, Question } from "../parts/dialog.js";
import { ListFoot, ListHead, moveFocus } from "../parts/list.js";
import { attempt, Empty, Failure } from "../parts/notices.js";
import { SandboxLog } from "../parts/sandbox_log.js";
import { Deleted, SANDBOX, State } from "../parts/state.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Seconds between two reads of the one sandbox that is shown alone. */
const EVERY = 2;

/** What keeps a sandbox away from its host, in words. */
const ISOLATION = { bubblewrap: "Bubblewrap", landlock: "Landlock", container: "Container", none: "None" };

function Fact({ name, children }) {
  return html`<div><dt>${name}</dt><dd>${children}</dd></div>`;
}

function Isolation({ isolation }) {
  if (!isolation) return "–";
  const { kind, network, reaches, lacks } = isolation;
  return html`<span class=${kind === "none" ? "high" : ""} title=${[...reaches, ...lacks].join("\n")}>${ISOLATION[kind] ?? kind}, network: ${network}</span>`;
}

function Facts({ sandbox }) {
  const { status_since, host, memory_bytes, cpu_cores, disk_bytes, sandbox_spec_id, isolation, created_at } = sandbox;
  return html`<dl class="facts">
    <${Fact} name="In this state since"><${Time} at=${status_since} /><//>
    <${Fact} name="Spec"><${Text} text=${sandbox_spec_id} /><//>
    <${Fact} name="Host">${host ? html`<${Text} text=${host} />` : "–"}<//>
    <${Fact} name="Memory">${bytes(memory_bytes)}<//>
    <${Fact} name="CPU">${cpu_cores == null ? "–" : `${cpu_cores.toFixed(2)} cores`}<//>
    <${Fact} name="Disk">${bytes(disk_bytes)}<//>
    <${Fact} name="Isolation"><${Isolation} isolation=${isolation} /><//>
    <${Fact} name="Created"><${Time} at=${created_at} /><//>
  </dl>`;
}

/** What happened to it: the first line, and the others folded. */
function Happened({ text }) {
  const [sentence, ...lines] = text.split("\n");
  return html`<p class="happened"><${Text} prose text=${sentence} /></p>
    ${
      lines.length > 0 &&
      html`<details class="quiet">
      <summary>The last lines of its log</summary>
      <pre class="log" tabindex="0"><${Text} text=${lines.join("\n")} /></pre>
    </details>`
    }`;
}

/** Conversations that a client began at its agent server, each with a button that adopts it. */
function Strays({ sandbox: { id, status, stray_conversations } }) {
  const [doing, setDoing] = useState("");
  const { count, newest } = stray_conversations ?? { count: 0, newest: [] };
  if (!count) return null;
  const adopt = async (one) => {
    setDoing(one.id);
    const path = { sandbox_id: id, conversation_id: one.id };
    await attempt(
      () => call("POST /api/v1/sandboxes/{sandbox_id}/conversations/{conversation_id}/adopt", { path }),
      "The conversation is adopted.",
    );
    setDoing("");
  };
  return html`<details open class="strays">
    <summary>${count === 1 ? "1 conversation began at its agent server and is" : `${count} conversations began at its agent server and are`} not shown here</summary>
    <ul>${newest.map(
      (one) => html`<li key=${one.id}>
      <${Text} text=${one.title || one.id} />
      ${
        may("write") &&
        status === "RUNNING" &&
        html`<button type="button" class="secondary" data-testid="adopt" disabled=${Boolean(doing)}
        aria-busy=${doing === one.id} aria-label=${`Adopt the conversation ${one.title || one.id}`} onClick=${() => adopt(one)}>Adopt</button>`
      }
    </li>`,
    )}</ul>
  </details>`;
}

/** The buttons of a sandbox. doing: the operation under way, or "". */
function Actions({ sandbox: { id, status }, onOpen }) {
  const [doing, setDoing] = useState("");
  const act = async (name, operation, done) => {
    setDoing(name);
    await attempt(() => call(operation, { path: { sandbox_id: id } }), done);
    setDoing("");
  };
  const busy = (name) => ({ disabled: Boolean(doing), "aria-busy": doing === name });
  return html`<span class="actions">
    ${may("approve") && html`<button type="button" class="quiet" data-testid="logs" onClick=${() => onOpen("log")}>Log</button>`}
    ${
      status === "RUNNING" &&
      html`<button type="button" class="secondary" data-testid="pause" ...${busy("pause")}
      onClick=${() => act("pause", "POST /api/v1/sandboxes/{sandbox_id}/pause")}>Pause</button>`
    }
    ${
      ["PAUSED", "ERROR"].includes(status) &&
      html`<button type="button" class="secondary" data-testid="resume" ...${busy("resume")}
      onClick=${() => act("resume", "POST /api/v1/sandboxes/{sandbox_id}/resume")}>Resume</button>`
    }
    ${may("admin") && html`<button type="button" class="quiet danger-text" data-testid="delete" disabled=${Boolean(doing)} onClick=${() => onOpen("delete")}>Delete</button>`}
  </span>`;
}

function Row({ sandbox, leaving, onDeleted }) {
  const { id, status, status_detail } = sandbox;
  const [open, setOpen] = useState("");
  const isDeleted = leaving === "deleted",
    close = () => setOpen("");
  const remove = async () => {
    close();
    const removing = () => call("DELETE /api/v1/sandboxes/{sandbox_id}", { path: { sandbox_id: id } });
    if ((await attempt(removing, `The sandbox ${id} is deleted.`)) !== undefined) onDeleted?.();
  };
  return html`<li class=${`row sandbox${leaving ? " leaving" : ""}`} data-testid=${`sandbox-${id}`}>
    ${isDeleted ? html`<${Deleted} />` : html`<${State} of=${SANDBOX} status=${status} />`}
    <span class="what">
      <code><${Text} text=${id} /></code>
      <a class="title link" href=${href("conversations", "", { sandbox_id: id })} aria-label=${`Conversations of the sandbox ${id}`}>Conversations</a>
    </span>
    ${may("write") && !isDeleted && html`<${Actions} sandbox=${sandbox} onOpen=${setOpen} />`}
    <${Facts} sandbox=${sandbox} />
    ${status_detail && html`<${Happened} text=${status_detail} />`}
    <${Strays} sandbox=${sandbox} />
    ${
      open === "log" &&
      html`<${Dialog} title=${`Log of ${id}`} onClose=${close} class="large">
      <${SandboxLog} id=${id} />
      <footer><button type="button" autofocus onClick=${close}>Close</button></footer>
    <//>`
    }
    ${
      open === "delete" &&
      html`<${Question} title="Delete this sandbox?" yes="Delete it" onYes=${remove} onClose=${close}>
      Its processes end and its files are removed for good. Its conversations stay readable.
    <//>`
    }
  </li>`;
}

/** One sandbox alone. */
function One({ id }) {
  const { value, error, again } = usePolled(
    async (signal) => (await call("GET /api/v1/sandboxes", { query: { id }, signal }))[0],
    EVERY,
    id,
  );
  return html`
    <div class="view-head"><h1>Sandbox</h1><a href=${href("sandboxes")}>All sandboxes</a></div>
    ${error && html`<${Failure} error=${error} again=${again} />`}
    ${value === undefined && !error && html`<p aria-busy="true">Loading</p>`}
    ${
      value === null &&
      html`<${Empty} title="This sandbox is gone">
      It was deleted. <a href=${href("conversations", "", { sandbox_id: id })}>Its conversations</a> stay readable.
    <//>`
    }
    ${value && html`<ul class="rows" data-testid="sandbox-list" aria-label="Sandbox"><${Row} sandbox=${value} onDeleted=${() => go("sandboxes")} /></ul>`}
  `;
}

function All({ query }) {
  const [list, view] = useList(
    {
      search: "GET /api/v1/sandboxes/search",
      stream: "GET /api/v1/sandboxes/stream",
      query: { status__eq: query.status },
      by: "created_at",
      fits: (item) => !query.status || item.status === query.status,
    },
    query.status ?? "",
  );
  const { rows, leaving, isReading, hasMore } = view;
  useShortcuts({
    j: { label: "Next sandbox", run: () => moveFocus(".rows a.title", 1) },
    k: { label: "Previous sandbox", run: () => moveFocus(".rows a.title", -1) },
  });
  return html`
    <div class="view-head">
      <h1>Sandboxes</h1>
      <label class="inline">State
        <select data-search data-testid="filter-status" value=${query.status ?? ""} onChange=${(event) => setQuery({ ...query, status: event.target.value })}>
          <option value="">All</option>
          ${Object.entries(SANDBOX).map(([status, [words]]) => html`<option key=${status} value=${status}>${words}</option>`)}
        </select>
      </label>
    </div>
    <${ListHead} list=${list} view=${view} name="sandbox" />
    <ul class="rows" data-testid="sandbox-list" aria-label="Sandboxes" aria-busy=${isReading} ...${holding(list)}>
      ${rows?.map((sandbox) => html`<${Row} key=${sandbox.id} sandbox=${sandbox} leaving=${leaving.get(sandbox.id)} />`)}
    </ul>
    ${
      rows?.length === 0 &&
      !hasMore &&
      html`<${Empty} title=${query.status ? "No sandbox is in this state" : "No sandboxes"}>
      Each conversation that you start has a sandbox, where its agent runs.
      ${may("write") && html` <a href=${href("start")}>New conversation</a>`}
    <//>`
    }
    <${ListFoot} list=${list} view=${view} />
  `;
}

export default function View({ place }) {
  return place.id ? html`<${One} id=${place.id} />` : html`<${All} query=${place.query} />`;
}
