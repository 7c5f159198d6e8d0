"""A server whose every view shows something, also what means harm: texts that would run, hide or break the layout."""

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from settings.specs import BUNDLED
from tests.console import Browser
from tests.console.logs import action, conversation, event, message, observation, post
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi

#: what would set `window.hostile` if a page took it for more than a text
HTML = (
    '<img src=x onerror="hostile=1"><script>hostile=1</script><b style="position:fixed;inset:0">"\'>{{hostile=1}}${1}'
)

#: terminal sequences: clear, colours, a title, a link to a script; and what turns a line around or hides in it
CONTROLS = "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;javascript:hostile=1\x1b\\link\x1b]8;;\x1b\\ "
CONTROLS += "\u202egnp.exe\u202c \u200bzero\x9b"

#: one line of a megabyte, without a place to break
LONG = "w" * 1_000_000

#: images that must not be asked for, and one that may be shown and must not run
IMAGES = [
    "http://elsewhere.example/x.png",
    "//elsewhere.example/x.png",
    "javascript:hostile=1",
    "data:text/html,<script>hostile=1</script>",
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'><script>parent.hostile=1</script></svg>",
]

#: what a sandbox prints before it fails
LOUD = base64.b64encode(f"{HTML}\n{CONTROLS}\x00\n".encode()).decode()
PRINT = f"sys.exit(base64.b64decode('{LOUD}').decode() + 'l' * 100_000 + '\\nthe end')"
SPEC = f"""
[[spec]]
id = "loud"
created_at = 2026-11-21T00:00:00Z
restarts = 0
command = ["{{PYTHON}}", "-c", {json.dumps(f"import base64, sys; {PRINT}")}]
"""


class Furnished(NamedTuple):
    """A server, and what is in it."""

    client: httpx.Client
    hostile: str  #: a conversation
    calm: str
    sandbox: str

    @property
    def base_url(self) -> str:
        return str(self.client.base_url).rstrip("/")

    @property
    def places(self) -> tuple[str, ...]:
        """Every view, with and without filters."""
        return (
            "inbox",
            "conversations",
            "conversations?text=hostile",
            "conversations?in=messages&text=hostile",
            "conversations?text=nothing+has+this+name",
            f"conversations/{self.hostile}",
            f"conversations/{self.calm}",
            "conversations/5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001",
            "start",
            "sandboxes",
            f"sandboxes/{self.sandbox}",
            "rules",
            "keys",
            "audit",
            f"audit?conversation_id={self.hostile}",
            "status",
            "nowhere",
        )


def hostile_events() -> list[dict[str, Any]]:
    """Events whose every text means harm."""
    text = HTML + CONTROLS
    edit = {
        "kind": "FileEditorAction",
        "command": "str_replace",
        "path": text,
        "old_str": text,
        "new_str": f"{text}\n{LONG}",
    }
    content = [{"type": "text", "text": text}, {"type": "image", "image_urls": IMAGES}]
    said = [{"type": "text", "text": text}]
    return [
        message("said", 1, f"{text}\x00{LONG}"),
        {**message("shown", 2), "llm_message": {"role": "user", "content": content}},
        message("answered", 3, text, "agent", reasoning_content=text),
        action("ran", 4, f"echo {text}\x00{LONG}", thought=said, summary=text, reasoning_content=text),
        observation("seen", "ran", 5, f"{text}\x00\n{LONG}"),
        action("edited", 6, tool_name="file_editor", action=edit),
        observation(
            "saved", "edited", 7, text, kind="FileEditorObservation", old_content=text, new_content=text, path=text
        ),
        action(
            "odd", 8, tool_name=HTML, action={"kind": "OddAction", HTML: CONTROLS, "__proto__": [LONG], "list": [text]}
        ),
        event("ConversationErrorEvent", "broke", 9, code=text, detail=f"{text}{LONG}"),
        event("ConversationStateUpdateEvent", "told", 10, key="stats", value={HTML: text}),
        action("refused", 12, f"rm {text}"),
        event("OddEvent", f"{HTML[:100]}", 11, **{"text": text, "constructor": text}),
    ]


def furnish(client: httpx.Client) -> Furnished:
    """Put something into every view. The calm conversation and the sandbox are those of an agent that runs."""
    api = WireApi(client)
    hostile = conversation(client, policy="AlwaysConfirm")
    path = f"/api/conversations/{hostile}"
    client.patch(path, json={"title": (HTML + CONTROLS)[:200], "tags": {"hostile": HTML + CONTROLS}}).raise_for_status()
    post(client, hostile, *hostile_events())
    decisions = {"decisions": [{"action_id": "refused", "decision": "reject", "reason": HTML + CONTROLS}]}
    client.post(f"/api/v1/conversation/{hostile}/pending-actions/decisions", json=decisions).raise_for_status()
    rule = {
        "decision": "reject",
        "tool_name": HTML,
        "reason": HTML + CONTROLS,
        "arguments": {HTML: {"equals": CONTROLS}},
    }
    client.post("/api/v1/approval-rules", json=rule).raise_for_status()
    client.post("/api/v1/keys", json={"name": HTML[:100].strip(), "scopes": ["read"]}).raise_for_status()
    loud = api.start_sandbox("loud")["id"]
    calm = api.app_conversation(title="Look around")["id"]
    api.send(calm, "run: uname -sr")
    api.until(calm, "waiting_for_confirmation")
    api.wait_for(loud, "ERROR")
    return Furnished(client, hostile, calm, loud)


@contextlib.contextmanager
def furnished_server(folder: Path) -> Iterator[Furnished]:
    """A whole server whose every view shows something."""
    specs = folder / "specs.toml"
    specs.write_text(BUNDLED.read_text() + SPEC)
    with supervised_server(folder, SANDBOX_SPECS=str(specs)) as (client, _):
        yield furnish(client)


def show(browser: Browser, place: str) -> None:
    """Go to a place, and wait until it shows what it has, and no more what was shown before."""
    browser.driver.execute_async_script(GO, f"#/{place}")
    wait_until(lambda: browser.script(IS_SHOWN, f"#/{place}"), f"the place {place}")


#: goes to a place; done once the page has drawn for it
GO = """
const [place, done] = arguments;
if (location.hash === place) return done();
addEventListener("hashchange", () => requestAnimationFrame(() => setTimeout(done)), { once: true });
location.hash = place;
"""

IS_SHOWN = """
const main = document.querySelector("main"), isBusy = main.querySelector("p[aria-busy=true]");
return location.hash === arguments[0] && main.querySelector("h1, h2, .failure") && !isBusy;
"""
