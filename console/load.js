// Loads the page again when one of its modules did not come, as when the network changed meanwhile: nothing would show.

/** Maximum number of reloads in a row, and the delay before each, in milliseconds. */
const MOST = 5,
  LATER = 1_000;

const NAME = "agent-server-loads";

addEventListener(
  "error",
  ({ target }) => {
    if (/** @type {Element | null} */ (target)?.localName !== "script") return;
    const number = Number(sessionStorage.getItem(NAME)) + 1;
    sessionStorage.setItem(NAME, String(number));
    if (number <= MOST) setTimeout(() => location.reload(), number * LATER);
    else document.getElementById("console").textContent = "The page did not load whole. Load it again.";
  },
  true,
);

addEventListener("load", () => document.getElementById("main") && sessionStorage.removeItem(NAME));
