"""Takes pictures of the console to look at:  python -m tests.console.pictures [VIEW …]  (or `make pictures`)

Each view becomes a contact sheet in `.pictures/`: light and dark, in four sizes of window. With the name `docs` alone
it writes the two pictures of the documentation instead. It starts servers of its own with stores of their own, and
needs Chromium and its driver. All of it takes about ten minutes.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import httpx

from tests.approvals import Conversation
from tests.console import Browser, end_browsers
from tests.console.furnished import show
from tests.console.pictured import TITLES, Story, begin, fill, nightly, script_of, waiting
from tests.console.terminals import asks, ends, reports
from tests.console.waiting import fill_inbox
from tests.servers import supervised_server

PROJECT = Path(__file__).parent.parent.parent
FOLDER = PROJECT / ".pictures"

#: most bytes of a picture of the documentation
MOST_BYTES = 200_000

SIZES = ((1440, 900), (1280, 720), (1024, 768), (390, 844))

#: seconds after a view is shown until its last parts, such as pictures and plots, are there
SETTLED = 0.6

#: views of the navigation
VIEWS = ("inbox", "conversations", "start", "sandboxes", "rules", "keys", "audit", "status")

SHEET = """<!DOCTYPE html><meta charset="utf-8"><title>{name}</title><style>
body {{ margin: 16px; background: #888; font: 20px system-ui; width: max-content; }}
p {{ margin: 0 0 8px; }} div {{ display: flex; gap: 16px; align-items: start; margin-bottom: 16px; }}
img {{ height: 640px; }}</style><p>{name}</p>{rows}"""


class Place(NamedTuple):
    """A view of a server: its name among the pictures, and where the page shows it."""

    name: str
    place: str


def _views(state: str) -> list[Place]:
    return [Place(f"{view}-{state}", view) for view in VIEWS]


def _failed() -> Story:
    """A conversation that ends with an error, after a command that failed."""
    story = nightly(900)
    story.says("Run the linter too.", seconds=30)
    story.becomes("running")
    seen = "jobs/nightly.py:41:1: F401 'os' imported but unused\nFound 1 error."
    story.sees(story.acts("Run the linter", {"command": "ruff check jobs"}), seen, 1)
    detail = "The model's endpoint did not answer within 60 s, three times."
    story.add("ConversationErrorEvent", "environment", 60, code="LLMTimeoutError", detail=detail)
    story.becomes("error")
    return story


def _running() -> Story:
    """A conversation whose agent runs a command."""
    story = nightly(120)
    story.says("And production?")
    story.becomes("running")
    story.acts("Migrate production", {"command": "alembic -x env=production upgrade head"})
    return story


def empty(_client: httpx.Client) -> list[Place]:
    """A server in which nothing has happened; its views."""
    return _views("empty")


def typical(client: httpx.Client) -> list[Place]:
    """A server on an ordinary day; its views."""
    fill(client, len(TITLES))
    rule = {"decision": "approve", "tool_name": "terminal", "arguments": {"command": {"pattern": "pytest *"}}}
    client.post("/api/v1/approval-rules", json=rule).raise_for_status()
    short = waiting(client, "Mend the nightly job", "data", "Migrate staging", script_of(1))
    long = waiting(client, "Migrate the shards", "ops", "Migrate every shard of staging", script_of(15), "HIGH")
    conversations = {
        "empty": begin(client, "Fresh", "web", []),
        "talk": begin(client, *TITLES[0], nightly().events),
        "running": begin(client, "Add the index in production", "api", _running().events),
        "failed": begin(client, "Lint the jobs", "data", _failed().events),
        "waiting-1-line": short,
        "waiting-15-lines": long,
    }
    return [
        *_views("typical"),
        *(Place(f"conversation-{name}", f"conversations/{identity}") for name, identity in conversations.items()),
    ]


def full(client: httpx.Client) -> list[Place]:
    """A server with more than fits on a page; the views that have more then."""
    fill(client, 300)
    for place in range(40):
        title, team = TITLES[place % len(TITLES)]
        lines = (1, 1, 4, 15)[place % 4]
        waiting(
            client,
            title,
            team,
            f"Step {place + 1} of “{title}”",
            script_of(lines),
            ("LOW", "MEDIUM", "HIGH")[place % 3],
        )
    story = Story(nightly(90_000).began)
    for _ in range(60):
        story.repeat(nightly())
    many = begin(client, "A conversation of a week", "data", story.events)
    return [
        Place("inbox-full", "inbox"),
        Place("inbox-by-risk", "inbox?group=security_risk"),
        Place("conversations-full", "conversations"),
        Place("audit-full", "audit"),
        Place("conversation-full", f"conversations/{many}"),
    ]


def waiting_of(client: httpx.Client, *actions: dict[str, Any], **members: Any) -> Conversation:
    """A conversation whose actions wait."""
    conversation = Conversation(client, str(uuid4()), **members)
    conversation.appends(*actions)
    return conversation


def busy(client: httpx.Client) -> list[Place]:
    """A server on which sixty actions of six kinds wait, some of them the same; its inbox, and one of them open."""
    made, actions = fill_inbox(lambda *given, **members: waiting_of(client, *given, **members), 60)
    opened = quote(f"{made[1].id} {actions[1]['id']}")
    return [Place("inbox-busy", "inbox"), Place("inbox-open", f"inbox?open={opened}")]


def terminals(client: httpx.Client) -> list[Place]:
    """A server that agents in terminals ask; its inbox with a request open, and the conversation of one of them."""
    session = "7bf5e061"
    reports(client, session, "prompt", text="Why is the nightly job slow? Fix it, and run its tests.")
    ran = asks(client, "pytest -q tests/jobs", session=session, order="races")
    ends(client, ran, "allowed")
    reports(
        client, session, "call", tool_name="Bash", arguments={"command": "pytest -q tests/jobs"}, result="48 passed"
    )
    reports(client, session, "call", tool_name="Bash", arguments={"command": "rm -rf build"}, result="")
    lost = asks(client, "alembic upgrade head", session=session, order="races")
    ends(client, lost, "allowed")
    asks(client, "git push origin fix-nightly", session=session, order="races")
    asks(
        client,
        "rm -rf dist",
        session="2",
        order="first",
        cwd="/home/bob/web",
        user="bob",
        host="build-1",
        expires_in=500,
    )
    asks(client, "npm ci", session="3", order="first", cwd="/home/bob/web", user="bob", host="build-1", expires_in=1)
    asks(client, "terraform plan", session="4", kind="gate", agent=("codex", "0.171.0"), host="ci-runner-7")
    waiting(client, "Mend the nightly job", "data", "Migrate staging", script_of(1))
    items = client.get("/api/v1/pending-actions").json()["items"]
    names = [quote(f"{one['conversation_id']} {one['action_id']}") for one in items]
    opened = [
        Place(f"terminals-{kind}", f"inbox?open={name}")
        for kind, name in zip(("races", "first", "there", "gate"), names, strict=False)
    ]
    return [
        Place("terminals-inbox", "inbox"),
        *opened,
        Place("terminals-conversation", f"conversations/{ran['conversation_id']}"),
        Place("terminals-conversations", "conversations"),
        Place("terminals-audit", "audit"),
    ]


def _settle(browser: Browser) -> None:
    """Wait until the page has drawn what it shows, and the last parts of it have come."""
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    time.sleep(SETTLED)


def _size(browser: Browser, width: int, height: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


def take(browser: Browser, place: Place, folder: Path) -> None:
    """Write the contact sheet of a view: a row for light, one for dark."""
    rows = ""
    for scheme in ("light", "dark"):
        browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        _size(browser, *SIZES[0])
        browser.open("nowhere")  # each row is a fresh load
        show(browser, place.place)
        pictures = ""
        for width, height in SIZES:
            _size(browser, width, height)
            _settle(browser)
            path = folder / f"{place.name}-{scheme}-{width}.png"
            browser.driver.save_screenshot(str(path))
            pictures += f'<img src="{path.name}" alt="">'
        rows += f"<div>{pictures}</div>"
    sheet = folder / "sheet.html"
    sheet.write_text(SHEET.format(name=place.name, rows=rows))
    browser.driver.get(sheet.as_uri())
    width, height = browser.script("return [document.body.offsetWidth + 32, document.body.offsetHeight + 32]")
    _size(browser, width, height)
    _settle(browser)
    browser.driver.save_screenshot(str(FOLDER / f"{place.name}.png"))
    print(f"{(FOLDER / place.name).relative_to(PROJECT)}.png", flush=True)


@contextmanager
def _pictured(make: Callable[[httpx.Client], list[Place]]) -> Iterator[tuple[Browser, list[Place]]]:
    """A browser before a server of its own, and the views of what has been put into it."""
    with tempfile.TemporaryDirectory() as folder, supervised_server(Path(folder)) as (client, _):
        places = make(client)
        browser = Browser(str(client.base_url).rstrip("/"), arguments=("--hide-scrollbars",))
        try:
            yield browser, places
        finally:
            browser.close()
            end_browsers()


def sheets(names: list[str]) -> None:
    """Write the contact sheets of these views, or of all."""
    FOLDER.mkdir(exist_ok=True)
    for make in (empty, typical, full, busy, terminals):
        with _pictured(make) as (browser, places), tempfile.TemporaryDirectory() as folder:
            for place in places:
                if not names or place.name in names:
                    take(browser, place, Path(folder))


#: the pictures of the documentation: what makes their server, and the view and the file of each
OF_DOCS = (
    (busy, "inbox-busy", "console-inbox.png"),
    (typical, "conversation-waiting-1-line", "console-conversation.png"),
)


def docs() -> None:
    """Write the pictures of the documentation. Raises ValueError where one is too large."""
    for make, name, file in OF_DOCS:
        with _pictured(make) as (browser, places):
            [place] = [one.place for one in places if one.name == name]
            _size(browser, 1400, 900)
            browser.open("nowhere")
            show(browser, place)
            browser.find("approve*")
            _settle(browser)
            path = PROJECT / "docs" / file
            browser.driver.save_screenshot(str(path))
            if path.stat().st_size > MOST_BYTES:
                raise ValueError(f"{path} has {path.stat().st_size} bytes, {MOST_BYTES} at most")


if __name__ == "__main__":
    if sys.argv[1:] == ["docs"]:
        docs()
    else:
        sheets(sys.argv[1:])
