// The files of a conversation's folder: a tree, one of them as text, upload and download. No file is ever a page or a
// picture here.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, download } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useRead } from "../lib/read.js";
import { href, route, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { counted } from "../lib/words.js";
import { Question } from "../parts/dialog.js";
import { attempt, Empty, Failure, Loaded, Loading } from "../parts/notices.js";
import { Text } from "../parts/text.js";
import { OF_AGENT } from "./comments.js";
import { Listing } from "./listing.js";

/** Files that the server lists at most; characters of a file in which a zero byte says that it is no text. */
const MOST_NAMES = 2_000,
  LOOKED = 8_000;

const FILE = "GET /api/conversations/{conversation_id}/file/{rest}",
  UPLOAD = "POST /api/conversations/{conversation_id}/file/{rest}";
const NAMES = "GET /api/v1/app-conversations/{conversation_id}/files";

/** Paths as a tree: {folders: Map of name to tree, files: [[name, path]]}. */
function treeOf(paths) {
  const root = { folders: new Map(), files: [] };
  for (const path of paths) {
    const names = path.split("/"),
      last = names.pop();
    let place = root;
    for (const one of names) {
      if (!place.folders.has(one)) place.folders.set(one, { folders: new Map(), files: [] });
      place = place.folders.get(one);
    }
    place.files.push([last, path]);
  }
  return root;
}

/** isOnly: whether nothing lies beside it; such a folder is open at first, and so is one with the chosen file in it. */
function Folder({ name, tree, inner, isOnly, ...others }) {
  const [isOpen, setOpen] = useState(isOnly),
    isWay = others.chosen?.startsWith(inner);
  useEffect(() => void (isWay && setOpen(true)), [isWay]);
  return html`<li><details data-testid="folder" open=${isOpen}
    onToggle=${(event) => event.target === event.currentTarget && setOpen(event.target.open)}>
    <summary><${Text} text=${name} />/</summary>
      ${isOpen && html`<${FolderTree} tree=${tree} inner=${inner} ...${others} />`}
  </details></li>`;
}

function FolderTree({ tree, inner = "", chosen, choose }) {
  const isOnly = tree.folders.size === 1 && !tree.files.length;
  return html`<ul>
    ${[...tree.folders].map(
      ([name, one]) =>
        html`<${Folder} key=${`${name}/`} name=${name} tree=${one} inner=${`${inner}${name}/`} isOnly=${isOnly}
      chosen=${chosen} choose=${choose} />`,
    )}
    ${tree.files.map(
      ([name, path]) =>
        html`<li key=${path}><button type="button" class="quiet" data-testid="file" aria-pressed=${path === chosen}
      onClick=${() => choose(path)}><${Text} text=${name} /></button></li>`,
    )}
  </ul>`;
}

/**
 * A file as text, masked as the server sends it; the download has its bytes. line: the number that is named; NaN: none.
 */
function Shown({ id, path, line, onClose }) {
  const file = useRead("GET /api/v1/app-conversations/{conversation_id}/file", {
    path: { conversation_id: id },
    query: { file_path: path },
  });
  const save = () =>
    attempt(() =>
      download(FILE, {
        path: { conversation_id: id, rest: "download" },
        query: { path },
        name: path.split("/").at(-1),
      }),
    );
  return html`<div class="file" data-testid="file-shown">
    <header><code><${Text} text=${path} /></code>
      <button type="button" class="quiet" data-testid="download-file" onClick=${save}>Download</button>
      <button type="button" class="quiet" data-testid="close-file" onClick=${onClose}>Close</button></header>
    <${Loaded} of=${file}>${(text) =>
      html`<${FileText} key=${path} id=${id} path=${path} text=${text} line=${line} />`}<//>
  </div>`;
}

/** The content of a text file. */
function FileText({ id, path, text, line }) {
  const begin = text.slice(0, LOOKED);
  if (begin.includes("\0") || begin.includes("\ufffd"))
    return html`<p class="muted">This file is not text. Download it to see it.</p>`;
  return text
    ? html`<${Listing} text=${text} path=${path} line=${line}
      addressOf=${(number) => href("conversations", id, { show: "files", file: path, line: number })} />`
    : html`<p class="muted">The file is empty.</p>`;
}

/** Upload files into the working folder. Asks before a file replaces another one. */
function Upload({ id, onDone }) {
  const [asked, setAsked] = useState(null),
    [isSending, setSending] = useState(false),
    field = useRef(null);
  const send = async (files) => {
    setAsked(null);
    setSending(true);
    for (const file of files) {
      const options = { path: { conversation_id: id, rest: "upload" }, query: { path: file.name }, file, isLong: true };
      if ((await attempt(() => call(UPLOAD, options), `${file.name} was uploaded.`)) === undefined) break;
    }
    setSending(false);
    onDone();
  };
  const take = async (event) => {
    const files = [...event.target.files];
    event.target.value = ""; // the same file may be chosen again
    setSending(true);
    // the agent may have written some since
    const names = await attempt(() => call(NAMES, { path: { conversation_id: id }, query: { path: "." } }));
    setSending(false);
    if (!names) return;
    const isCut = names.length >= MOST_NAMES,
      present = isCut ? files : files.filter(({ name }) => names.includes(name));
    if (present.length) setAsked({ files, present, isCut });
    else send(files);
  };
  return html`<input ref=${field} type="file" multiple hidden data-testid="upload-files" onChange=${take} />
    <button type="button" class="quiet" data-testid="upload" aria-busy=${isSending} disabled=${isSending}
      onClick=${() => field.current.click()}>Upload</button>
    ${
      asked &&
      html`<${Question} title="Replace files?" yes="Replace" onYes=${() => send(asked.files)}
        onClose=${() => setAsked(null)}>
      ${
        asked.isCut
          ? "The working folder has more files than are listed, and may have"
          : "In the working folder there is already"
      }: <${Text} prose
        text=${asked.present.map(({ name }) => name).join(", ")} />.
    <//>`
    }`;
}

function DownloadAll({ id }) {
  const [isBusy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    await attempt(async () => {
      const [{ sandbox_id }] = await call("GET /api/v1/app-conversations", { query: { ids: id } });
      await download("GET /api/v1/sandboxes/{sandbox_id}/archive", {
        path: { sandbox_id },
        name: `${sandbox_id}.tar.zst`,
      });
    });
    setBusy(false);
  };
  return html`<button type="button" class="quiet" data-testid="download-all"
    title="All files of the sandbox, as .tar.zst" aria-busy=${isBusy} disabled=${isBusy}
    onClick=${save}>Download all</button>`;
}

/** Show a file, or none. The address names the file. */
const choose = (file) => setQuery({ ...route.get().query, file, line: "" }, true);

/**
 * id: of the conversation. status: of the conversation; the list is read again when it changes. file, line: what the
 * address names.
 */
export default function FolderFiles({ id, status, file = "", line = "" }) {
  const chosen = file.replace(/^\.\//, "");
  const {
    value: all,
    error,
    again,
  } = useRead(NAMES, { path: { conversation_id: id }, query: { path: "." }, version: status });
  const [text, setText] = useState("");
  const paths = useMemo(() => all?.filter((path) => !path.startsWith(`${OF_AGENT}/`)), [all]),
    isCut = all?.length >= MOST_NAMES;
  const wanted = text.trim().toLowerCase();
  const found = useMemo(() => paths?.filter((path) => path.toLowerCase().includes(wanted)), [paths, wanted]);
  const tree = useMemo(
    () => found && (wanted ? { folders: new Map(), files: found.map((path) => [path, path]) } : treeOf(found)),
    [found],
  );
  if (error)
    return html`<section class="beside" aria-label="Files" data-testid="files-panel"><${Failure} error=${error}
      again=${again} /></section>`;
  return html`<section class=${`beside files${chosen ? " chosen" : ""}`} aria-label="Files" data-testid="files-panel">
    <header><strong>${found ? counted(found.length, "file", isCut) : "Files"}</strong>
      <input type="search" data-testid="find-file" aria-label="Find a file" placeholder="Find a file" value=${text}
        onInput=${(event) => setText(event.target.value)} />
      <button type="button" class="quiet" data-testid="read-files" onClick=${again}>Refresh</button>
      ${paths && html`<${Upload} id=${id} onDone=${again} />`}
      ${may("write") && may("approve") && html`<${DownloadAll} id=${id} />`}</header>
    ${!found && html`<${Loading} />`}
    ${
      found?.length === 0 &&
      html`<${Empty} title=${wanted ? "No such file" : "No files"}>
      ${wanted ? "No path has these letters." : "The working folder is empty."}<//>`
    }
    <div class="columns">${
      tree &&
      found.length > 0 &&
      html`<div class="tree"><${FolderTree} tree=${tree} chosen=${chosen} choose=${choose} /></div>`
    }
      ${
        chosen &&
        html`<${Shown} id=${id} path=${chosen} line=${Number.parseInt(line, 10)}
        onClose=${() => choose("")} />`
      }</div>
  </section>`;
}
