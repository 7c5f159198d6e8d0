// How the server is: its store, its hosts, its notifications, and whether this page is live.
import { useState } from "preact/hooks";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { connection } from "../lib/live.js";
import { useRead } from "../lib/read.js";
import { may, me } from "../lib/session.js";
import { useStore } from "../lib/store.js";
import { bytes } from "../lib/words.js";
import { Failure, Loading } from "../parts/notices.js";
import { NotificationTargets } from "../parts/notification_targets.js";
import { Ring } from "../parts/ring.js";
import { Marked, Text } from "../parts/text.js";
import { Time } from "../parts/time.js";

/** Seconds between two reads. */
const EVERY = 5;

const LIVE = {
  live: "Live: changes show at once",
  lost: "Not live: the page connects again by itself",
  offline: "Not live: the browser has no network",
};

/** When the store writes to its disk, by its setting `appendfsync`. */
const FSYNC = {
  always: "written before each reply",
  everysec: "written each second",
  no: "written when the system does",
};

/** What holds when a write is acknowledged, by the setting DURABILITY. */
function acknowledged(durability) {
  if (durability === "fsync") return "When it is on the disk";
  const number = durability.startsWith("replicas:") ? durability.slice("replicas:".length) : null;
  return number ? `When ${number} ${number === "1" ? "replica has" : "replicas have"} it` : "When the store has it";
}

function StatusFact({ name, look, children }) {
  return html`<div><dt>${name}</dt><dd class=${look}>${children || children === 0 ? children : "–"}</dd></div>`;
}

function StatusCard({ title, testid, children }) {
  return html`<section class="card" data-testid=${testid}><h2>${title}</h2>${children}</section>`;
}

function Health({ readiness, info }) {
  const page = useStore(connection),
    who = useStore(me),
    places = info?.sandboxes;
  const startedAt = info && new Date(Date.now() - info.uptime * 1000).toISOString();
  // Without a conversation the server has been idle since it started.
  const wasUsedAt = info && info.idle_time < info.uptime && new Date(Date.now() - info.idle_time * 1000).toISOString();
  return html`<${StatusCard} title="Health" testid="health">
    <dl class="facts">
      <${StatusFact} name="Server" look=${readiness.isReady ? "low" : "high"}>
        ${readiness.isReady ? "Ready" : readiness.words}<//>
      <${StatusFact} name="This page" look=${page === "live" ? "low" : "high"}>${LIVE[page]}<//>
      <${StatusFact} name="A worker started">${info && html`<${Time} at=${startedAt} />`}<//>
      <${StatusFact} name="Last conversation">
        ${info && (wasUsedAt ? html`changed <${Time} at=${wasUsedAt} />` : "None changed since then")}<//>
      <${StatusFact} name="Workers of this host">${info?.workers}<//>
      <${StatusFact} name="Running sandboxes" look=${places?.running >= places?.most ? "medium" : ""}>
        ${places && `${places.running} of ${places.most}`}<//>
      <${StatusFact} name="Model">${who && html`<${Text} text=${who.llm_model ?? "None of this server’s own"} />`}<//>
    </dl>
  <//>`;
}

function StoreCard({ store }) {
  if (!store)
    return html`<${StatusCard} title="Store" testid="store"><p class="high">The store does not answer.</p><//>`;
  const { kind, version, used_memory_bytes: used, max_memory_bytes: most, policy, durable, fsync, durability } = store;
  return html`<${StatusCard} title="Store" testid="store">
    <dl class="facts">
      <${StatusFact} name="Kind">${kind} ${version ?? ""}<//>
      <${StatusFact} name="Memory">${bytes(used)}${most ? ` of ${bytes(most)}` : ""}<//>
      <${StatusFact} name="When memory is full" look=${policy && policy !== "noeviction" ? "high" : ""}>${policy}<//>
      <${StatusFact} name="Durable" look=${durable ? "low" : "high"}>
        ${durable ? `Yes${fsync ? `, ${FSYNC[fsync] ?? fsync}` : ""}` : "No: a restart loses everything"}<//>
      <${StatusFact} name="A write is acknowledged">${acknowledged(durability)}<//>
    </dl>
  <//>`;
}

function Hosts({ info }) {
  const isolation = new Map((info.isolation ?? []).map((one) => [one.host, one]));
  const hosts = info.hosts ?? [...isolation.keys()].map((id) => ({ id }));
  return html`<${StatusCard} title="Hosts" testid="hosts">
    ${
      hosts.length === 0 &&
      html`<p
      class="muted">No supervisor is running, so no sandbox can start. <code>SUPERVISOR=1</code> is the default of a
      server.</p>`
    }
    ${hosts.map(
      ({ id, seen_at, sandboxes, version }) => html`<div class="host" key=${id}>
      <h3><${Text} text=${id} /></h3>
      <dl class="facts">
        <${StatusFact} name="Seen">${seen_at && html`<${Time} at=${seen_at} />`}<//>
        <${StatusFact} name="Sandboxes, also paused">${sandboxes}<//>
        <${StatusFact} name="Release">${version}<//>
      </dl>
      ${ofSpecs(isolation.get(id)).map(
        (one) => html`<div key=${one.spec}>
        <dl class="facts"><${StatusFact} name=${one.spec ? `Sandboxes of ${one.spec}` : "Isolation"}
          look=${one.kind === "none" ? "high" : ""}>
          ${one.kind === "none" ? "not isolated" : one.kind}, network: ${one.network}<//></dl>
        <${Sentences} isolation=${one} />
      </div>`,
      )}
    </div>`,
    )}
  <//>`;
}

/** What isolates the sandboxes of each spec; of a host of an earlier release, those that leave it as it is. */
function ofSpecs(isolation) {
  if (!isolation) return [];
  return isolation.specs?.length ? isolation.specs : [isolation];
}

/** What a sandbox of a host reaches, and what the host lacks. */
function Sentences({ isolation }) {
  const sentences = [...(isolation?.lacks ?? []), ...(isolation?.reaches ?? [])];
  if (!sentences.length) return null;
  return html`<details class="quiet"><summary>What its sandboxes reach</summary><ul>
    ${sentences.map((one) => html`<li key=${one}><${Marked} text=${one} /></li>`)}</ul></details>`;
}

function Releases({ info }) {
  return html`<${StatusCard} title="Releases" testid="releases">
    <dl class="facts">
      <${StatusFact} name="Server">${info.title} ${info.api_version}<//>
      <${StatusFact} name="Agent server API">${info.version}<//>
      <${StatusFact} name="Python">${info.python_version}<//>
    </dl>
  <//>`;
}

/** {isReady, words}: whether the server can serve requests. */
async function readReadiness(signal) {
  try {
    await call("GET /ready", { signal });
    return { isReady: true, words: "" };
  } catch (error) {
    if (signal.aborted) throw error;
    return { isReady: false, words: error.message };
  }
}

async function read(signal) {
  const notifications = may("admin") ? call("GET /api/v1/notifications", { signal }) : null;
  /** @type {any[]} */
  const [readiness, info, outbox] = await Promise.allSettled([
    readReadiness(signal),
    call("GET /server_info", { signal }),
    notifications,
  ]);
  if (info.status === "rejected" && signal.aborted) throw info.reason;
  return {
    readiness: readiness.value,
    info: info.value,
    fault: info.reason,
    outbox: outbox.value,
    outboxFault: outbox.reason,
  };
}

export default function StatusView() {
  const [known, setKnown] = useState(null);
  const { value, again } = useRead(
    async (signal) => {
      const next = await read(signal);
      setKnown((before) => next.info ?? before);
      return next;
    },
    { every: EVERY },
  );
  if (!value) return html`<div class="view-head"><h1>Status</h1></div><${Loading} />`;
  const info = value.info ?? known;
  return html`
    <div class="view-head"><h1>Status</h1></div>
    ${value.fault && html`<${Failure} error=${value.fault} again=${again} />`}
    ${info?.notice && html`<p class="card notice-of-server" role="note"><${Marked} text=${info.notice} /></p>`}
    <div class="cards">
      <${Health} readiness=${value.readiness} info=${info} />
      ${info && html`<${StoreCard} store=${info.store} /><${Hosts} info=${info} /><${Releases} info=${info} />`}
      <${Ring} />
      ${
        may("admin") &&
        html`<${NotificationTargets} outbox=${value.outbox} error=${value.outboxFault}
        again=${again} />`
      }
    </div>
  `;
}
