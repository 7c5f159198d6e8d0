// A terminal in the conversation's sandbox. The library and its style come when the panel is opened for the first time.
import { useEffect, useRef, useState } from "preact/hooks";
import { FitAddon } from "../vendor/xterm-fit/addon-fit.mjs";
import { Terminal as Screen } from "../vendor/xterm/xterm.mjs";
import { call } from "../lib/api.js";
import { html } from "../lib/html.js";
import { ROOT } from "../lib/root.js";

/**
 * Characters of one message, columns and rows at most, as the server takes them; lines that can be scrolled back to.
 */
const MOST_INPUT = 4096,
  MOST_COLS = 500,
  MOST_ROWS = 200,
  MOST_LINES = 5_000;

/** Debounce of a resize of the panel, in milliseconds. */
const SETTLED = 100;

/** Close code of a socket that ended without a close frame. */
const GONE = 1006;

/** Why the terminal ended, in words, by the close code of the socket. Used where the server gave no reason. */
const REASONS = { [GONE]: "The connection broke." };

/**
 * Takes the place of document.createElement while a terminal is shown. The library writes its rules into <style>
 * elements and colours into style attributes, and the page's policy refuses both: what it makes takes them as style
 * sheets and properties of the script instead, which the policy allows.
 */
function create(name, ...others) {
  const isStyle = name === "style",
    made = Document.prototype.createElement.call(document, isStyle ? "span" : name, ...others);
  if (isStyle) {
    const sheet = new CSSStyleSheet();
    made.hidden = true;
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    Object.defineProperty(made, "textContent", { set: (text) => sheet.replaceSync(text) });
    made.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
      Element.prototype.remove.call(made);
    };
  } else if (name === "span") {
    made.setAttribute = (attribute, value) =>
      attribute === "style"
        ? (made.style.cssText = value)
        : Element.prototype.setAttribute.call(made, attribute, value);
  }
  return made;
}

/** Colours of the terminal. Dark in both themes of the page: programs choose their colours for a dark ground. */
const COLOURS = { background: "#16141a", foreground: "#e6e1ea", cursor: "#e6e1ea", selectionBackground: "#5a4a80" };

/** F6 moves the focus out of the terminal, as Tab belongs to the shell. */
function leave(event) {
  if (event.key !== "F6" || event.type !== "keydown") return true;
  event.preventDefault();
  /** @type {HTMLElement} */ (document.querySelector(".composer textarea"))?.focus();
  return false;
}

/** Open a screen in an element. Returns the screen, and a function that ends it. */
function screenIn(place) {
  const screen = new Screen({
    scrollback: MOST_LINES,
    fontSize: 13,
    fontFamily: "ui-monospace, monospace",
    theme: COLOURS,
  });
  const fit = new FitAddon();
  screen.loadAddon(fit);
  document.createElement = create;
  screen.open(place);
  screen.attachCustomKeyEventHandler(leave);
  const dispose = () => {
    screen.dispose();
    delete document.createElement;
  };
  return { screen, fit, dispose };
}

const size = ({ cols, rows }) => ({ cols: Math.min(cols, MOST_COLS), rows: Math.min(rows, MOST_ROWS) });

/** Split a text into parts of at most MOST_INPUT characters. No part ends within a character. */
function* parts(text) {
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + MOST_INPUT, text.length);
    if (end < text.length && text.codePointAt(end - 1) > 0xffff) end -= 1;
    yield text.slice(at, end);
    at = end;
  }
}

/** Opens a terminal and shows it until it ends; returns what ends it. onState: told "open", or why it ended. */
function connect(id, { screen, fit }, onState) {
  let socket,
    isOver = false;
  const send = (message) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));
  const over = (why) => {
    if (!isOver) onState(why);
    isOver = true;
  };
  const ends = [
    screen.onData((text) => {
      for (const input of parts(text.toWellFormed())) send({ input });
    }),
    screen.onResize(() => send(size(screen))),
  ];
  const begin = async () => {
    fit.fit();
    const { ticket } = await call("POST /api/v1/tickets", {
      body: { conversation_id: id, scopes: ["write", "approve"] },
    });
    if (isOver) return;
    const query = new URLSearchParams(/** @type {any} */ ({ ...size(screen), ticket }));
    const url = new URL(`${ROOT}sockets/terminals/${encodeURIComponent(id)}?${query}`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      onState("open");
      screen.focus();
    };
    socket.onmessage = ({ data }) => screen.write(new Uint8Array(data));
    socket.onclose = ({ code, reason }) => over(reason || REASONS[code] || "The terminal has ended.");
  };
  begin().catch((fault) => over(fault.message));
  return () => {
    isOver = true;
    socket?.close();
    for (const end of ends) end.dispose();
  };
}

/** id: of the conversation. */
export default function Terminal({ id }) {
  const place = useRef(null),
    [state, setState] = useState(""),
    [number, setNumber] = useState(0);
  useEffect(() => {
    setState("");
    const shown = screenIn(place.current),
      end = connect(id, shown, setState);
    let timer;
    const seen = new ResizeObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(() => shown.fit.fit(), SETTLED);
    });
    seen.observe(place.current);
    return () => {
      clearTimeout(timer);
      seen.disconnect();
      end();
      shown.dispose();
    };
  }, [id, number]);
  const hasEnded = state && state !== "open";
  return html`<section class="beside shell" aria-label="Terminal" data-testid="terminal-panel"
    data-state=${hasEnded ? "ended" : state || "opening"}>
    <header><strong>Terminal</strong>
      <span class="muted">Runs in the sandbox without asking. Opening it is in the audit; what you type is
        not. <kbd>F6</kbd> leaves it.</span></header>
    <div class="screen" ref=${place} data-testid="terminal"></div>
    ${
      hasEnded &&
      html`<p class="end" role="status"><span data-testid="terminal-end">${state}</span>
      <button type="button" class="quiet" data-testid="terminal-again"
        onClick=${() => setNumber(number + 1)}>Open again</button></p>`
    }
  </section>`;
}
