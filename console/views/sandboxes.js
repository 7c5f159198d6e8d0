// All sandboxes, live: what each is, what it takes of its machine, and what one can do with it.
import { useMemo, useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { holding, useList } from "../lib/lists.js";
import { groupBy } from "../lib/places.js";
import { useRead } from "../lib/read.js";
import { go, href, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { useShortcuts } from "../lib/shortcuts.js";
import { age, bytes } from "../lib/words.js";
import { Dialog, Question } from "../parts/dialog.js";
import { ListFoot, ListHead, moveFocus } from "../parts/list.js";
import { Menu } from "../parts/menu.js";
import { attempt, Empty, Failure, Loading } from "../parts/notices.js";
import { SandboxLog } from "../parts/sandbox_log.js";
import { Deleted, SANDBOX, State } from "../parts/state.js";
import { Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Seconds between two reads of the one sandbox that is shown alone, and of the conversations; most of those. */
const EVERY = 2,
  HOUSED_EVERY = 10,
  MOST_HOUSED = 100;

/** What keeps a sandbox away from its host, in words. */
const ISOLATION = { bubblewrap: "Bubblewrap", landlock: "Landlock", container: "Container", none: "None" };

function SandboxFact({ name, children }) {
  return html`<div><dt>${name}</dt><dd>${children}</dd></div>`;
}

function IsolationWords({ isolation }) {
  if (!isolation) return "–";
  const { kind, network, reaches, lacks } = isolation;
  return html`<span class=${kind === "none" ? "high" : ""} title=${[...reaches, ...lacks].join("\n")}>
    ${ISOLATION[kind] ?? kind}, network: ${network}</span>`;
}

const cores = (number) => (number == null ? "–" : number.toFixed(2));

/** All facts of the one sandbox that is shown alone. */
function SandboxFacts({ sandbox }) {
  const { id, status_since, host, memory_bytes, cpu_cores, disk_bytes, sandbox_spec_id, isolation, created_at } =
    sandbox;
  return html`<dl class="facts">
    <${SandboxFact} name="ID"><code>${id}</code><//>
    <${SandboxFact} name="Since"><${Time} at=${status_since} /><//>
    <${SandboxFact} name="Agent"><${Text} text=${sandbox_spec_id} /><//>
    <${SandboxFact} name="Host">${host ? html`<${Text} text=${host} />` : "–"}<//>
    <${SandboxFact} name="Memory">${bytes(memory_bytes)}<//>
    <${SandboxFact} name="CPU">${cpu_cores == null ? "–" : `${cores(cpu_cores)} cores`}<//>
    <${SandboxFact} name="Disk">${bytes(disk_bytes)}<//>
    <${SandboxFact} name="Isolation"><${IsolationWords} isolation=${isolation} /><//>
    <${SandboxFact} name="Created"><${Time} at=${created_at} /><//>
  </dl>`;
}

/** Returns of(id): the conversations of a sandbox; undefined where only the view of conversations knows older ones. */
function useHoused() {
  const { value } = useRead("GET /api/v1/conversations/search", { query: { limit: MOST_HOUSED }, every: HOUSED_EVERY });
  return useMemo(() => {
    const all = groupBy(value?.items ?? [], (item) => item.sandbox_id),
      others = value && !value.next_page_id ? [] : undefined;
    return (id) => all.get(id) ?? others;
  }, [value]);
}

/** What runs in a sandbox. housed: its conversations, as far as they are known. */
function Housed({ id, housed }) {
  const [first, ...others] = housed ?? [],
    all = href("conversations", "", { sandbox_id: id });
  if (housed?.length === 0) return html`<span class="muted">No conversation</span>`;
  if (!first)
    return html`<a class="title link" href=${all} aria-label=${`Conversations of the sandbox ${id}`}>Conversations</a>`;
  return html`<a class="title" href=${href("conversations", first.id)}><${Text} prose
    text=${first.title || "Without a title"} /></a>
    ${
      others.length > 0 &&
      html`<a class="title link" href=${all}
      aria-label=${`All ${housed.length} conversations of the sandbox`}>+${others.length}</a>`
    }`;
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
    <summary>${
      count === 1
        ? "1 conversation began at its agent server and is"
        : `${count} conversations began at its agent server and are`
    } not shown here</summary>
    <ul>${newest.map(
      (one) => html`<li key=${one.id}>
      <${Text} text=${one.title || one.id} />
      ${
        may("write") &&
        status === "RUNNING" &&
        html`<button type="button" class="secondary" data-testid="adopt" disabled=${Boolean(doing)}
        aria-busy=${doing === one.id} aria-label=${`Adopt the conversation ${one.title || one.id}`}
          onClick=${() => adopt(one)}>Adopt</button>`
      }
    </li>`,
    )}</ul>
  </details>`;
}

/** What can be done with a sandbox. doing: the operation under way, or "". */
function SandboxMenu({ sandbox: { id, status }, name, onOpen }) {
  const [doing, setDoing] = useState("");
  const act = async (verb, operation) => {
    setDoing(verb);
    await attempt(() => call(operation, { path: { sandbox_id: id } }));
    setDoing("");
  };
  const button = (testid, label, onClick, look = "") =>
    html`<button type="button" class=${`quiet ${look}`} data-testid=${testid} disabled=${Boolean(doing)}
      onClick=${onClick}>${label}</button>`;
  const pause = () => act("pause", "POST /api/v1/sandboxes/{sandbox_id}/pause"),
    resume = () => act("resume", "POST /api/v1/sandboxes/{sandbox_id}/resume");
  return html`<span class="actions" aria-busy=${Boolean(doing)}><${Menu} id=${`menu-${id}`} text="⋯"
    label=${`Actions of the sandbox of ${name}`}>
    <a class="quiet" role="button" href=${href("sandboxes", id)} data-testid="show-sandbox">Details</a>
    ${may("approve") && button("logs", "Log", () => onOpen("log"))}
    ${status === "RUNNING" && button("pause", "Pause", pause)}
    ${["PAUSED", "ERROR"].includes(status) && button("resume", "Resume", resume)}
    ${may("admin") && button("delete", "Delete…", () => onOpen("delete"), "danger-text")}
  <//></span>`;
}

/** A sandbox in a line, and what happened to it below. isAlone: it is shown with all its facts. */
function SandboxRow({ sandbox, housed = undefined, leaving = undefined, isAlone = false, onDeleted = undefined }) {
  const { id, status, status_detail, sandbox_spec_id, memory_bytes, cpu_cores, disk_bytes, created_at } = sandbox;
  const [open, setOpen] = useState("");
  const isDeleted = leaving === "deleted",
    close = () => setOpen("");
  const remove = async () => {
    close();
    const removing = () => call("DELETE /api/v1/sandboxes/{sandbox_id}", { path: { sandbox_id: id } });
    if ((await attempt(removing, "The sandbox is deleted.")) !== undefined) onDeleted?.();
  };
  const cell = (name, words) => html`<span class="cell"><span class="hidden">${name} </span>${words}</span>`;
  return html`<li class=${`row sandbox${leaving ? " leaving" : ""}`} data-testid=${`sandbox-${id}`}>
    ${isDeleted ? html`<${Deleted} />` : html`<${State} of=${SANDBOX} status=${status} />`}
    <span class="what"><${Housed} id=${id} housed=${housed} /></span>
    <span class="cell spec"><${Text} text=${sandbox_spec_id} /></span>
    ${cell("Memory", bytes(memory_bytes))}${cell("CPU cores", cores(cpu_cores))}${cell("Disk", bytes(disk_bytes))}
    <span class="cell when"><span class="hidden">Age </span><${Time} at=${created_at} words=${age} /></span>
    ${
      may("write") &&
      !isDeleted &&
      html`<${SandboxMenu} sandbox=${sandbox} name=${housed?.[0]?.title || id} onOpen=${setOpen} />`
    }
    ${isAlone && html`<${SandboxFacts} sandbox=${sandbox} />`}
    ${status_detail && html`<${Happened} text=${status_detail} />`}
    <${Strays} sandbox=${sandbox} />
    ${
      open === "log" &&
      html`<${Dialog} title="Log of the sandbox" onClose=${close} class="large">
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

/** Column names, for sighted people. Each cell has its name for screen readers. */
function SandboxColumns() {
  return html`<p class="row sandbox columns" aria-hidden="true"><span>State</span><span>Conversation</span>
    <span>Agent</span><span class="cell">Memory</span><span class="cell">CPU</span><span class="cell">Disk</span><span
    class="cell">Age</span></p>`;
}

/** One sandbox alone. */
function One({ id }) {
  const housed = useHoused();
  const { value, error, again } = useRead(
    async (signal) => (await call("GET /api/v1/sandboxes", { query: { id }, signal }))[0],
    { every: EVERY, key: id },
  );
  return html`
    <div class="view-head"><h1>Sandbox</h1><a href=${href("sandboxes")}>All sandboxes</a></div>
    ${error && html`<${Failure} error=${error} again=${again} />`}
    ${value === undefined && !error && html`<${Loading} />`}
    ${
      value === null &&
      html`<${Empty} title="This sandbox is gone">
      It was deleted. <a href=${href("conversations", "", { sandbox_id: id })}>Its conversations</a> stay readable.
    <//>`
    }
    ${
      value &&
      html`<ul class="rows" data-testid="sandbox-list" aria-label="Sandbox"><${SandboxRow} sandbox=${value}
      housed=${housed(id)} isAlone onDeleted=${() => go("sandboxes")} /></ul>`
    }
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
  const { rows, leaving, isReading, hasMore } = view,
    housed = useHoused();
  useShortcuts({
    j: { label: "Next sandbox", run: () => moveFocus(".rows .what > a:first-child", 1) },
    k: { label: "Previous sandbox", run: () => moveFocus(".rows .what > a:first-child", -1) },
  });
  return html`
    <div class="view-head">
      <h1>Sandboxes</h1>
      <label class="inline">State
        <select data-search data-testid="filter-status" value=${query.status ?? ""}
          onChange=${(event) => setQuery({ ...query, status: event.target.value }, true)}>
          <option value="">All</option>
          ${Object.entries(SANDBOX).map(
            ([status, [words]]) => html`<option key=${status} value=${status}>${words}</option>`,
          )}
        </select>
      </label>
    </div>
    <${ListHead} list=${list} view=${view} name="sandbox" />
    ${rows?.length > 0 && html`<${SandboxColumns} />`}
    <ul class="rows" data-testid="sandbox-list" aria-label="Sandboxes" aria-busy=${isReading} ...${holding(list)}>
      ${rows?.map(
        (sandbox) =>
          html`<${SandboxRow} key=${sandbox.id} sandbox=${sandbox} housed=${housed(sandbox.id)}
        leaving=${leaving.get(sandbox.id)} />`,
      )}
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

export default function SandboxesView({ place }) {
  return place.id ? html`<${One} id=${place.id} />` : html`<${All} query=${place.query} />`;
}
