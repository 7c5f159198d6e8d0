"""Takes pictures of the console to look at:  python -m tests.console.pictures [VIEW …]  (or `make pictures`)

Each view becomes a contact sheet in `.pictures/`: light and dark, in four sizes of window. A VIEW is the begin of the
names of sheets, such as `conversation-`. With the name `docs` alone it writes the two pictures of the documentation
instead. It starts servers of its own with stores of their own, until all sheets are there that were asked for; the
sheets of one server share it. It needs Chromium and its driver. All of it takes about ten minutes.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from tests.approvals import DecidedConversation, shown
from tests.console import Browser, end_browsers
from tests.console.pictured import TITLES, Story, begin, fill, nightly, script_of, waiting
from tests.console.scenes import ADMIN, Day, Scene, day_server, decide_some, make_keys
from tests.console.terminals import asks, ends, reports
from tests.console.waiting import fill_inbox
from tests.servers import supervised_server

PROJECT = Path(__file__).parent.parent.parent
FOLDER = PROJECT / ".pictures"

#: most bytes of a picture of the documentation
MOST_BYTES = 200_000

#: of a window; the last two are a small phone, and a window of 1280 by 720 at 200 %
SIZES = ((1440, 900), (390, 844), (320, 568), (640, 360))

#: seconds after a view is shown until its last parts, such as pictures and plots, are there
SETTLED = 0.4

#: views of the navigation
VIEWS = ("inbox", "conversations", "start", "sandboxes", "rules", "keys", "audit", "status")

SHEET = """<!DOCTYPE html><meta charset="utf-8"><title>{name}</title><style>
body {{ margin: 16px; background: #888; font: 20px system-ui; width: max-content; }}
p {{ margin: 0 0 8px; }} div {{ display: flex; gap: 16px; align-items: start; margin-bottom: 16px; }}
img {{ height: 640px; }}</style><p>{name}</p>{rows}"""


def empty(_client: httpx.Client) -> list[Scene]:
    """A server in which nothing has happened; its views."""
    return [Scene(f"{view}-empty", view) for view in VIEWS]


def full(client: httpx.Client) -> list[Scene]:
    """A server with more than fits on a page; the views that have more then."""
    decide_some(client, make_keys(client), 90)
    fill(client, 200)
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
        Scene("inbox-full", "inbox", shows="40 in all"),
        Scene("inbox-by-risk", "inbox?group=security_risk"),
        Scene("conversations-full", "conversations", shows="Show more"),
        Scene("audit-full", "audit", shows="Keep the last two releases"),
        Scene("conversation-full", f"conversations/{many}", shows="The plan before and after"),
    ]


def waiting_of(client: httpx.Client, *actions: dict[str, Any], **members: Any) -> DecidedConversation:
    """A conversation whose actions wait."""
    conversation = DecidedConversation(client, str(uuid4()), **members)
    conversation.appends(*actions)
    return conversation


def busy(client: httpx.Client) -> list[Scene]:
    """A server on which sixty actions of six kinds wait, some of them the same; its inbox, and one of them open."""
    made, actions = fill_inbox(lambda *given, **members: waiting_of(client, *given, **members), 60)
    opened = quote(f"{made[1].id} {actions[1]['id']}")
    return [Scene("inbox-busy", "inbox", shows="60 in all"), Scene("inbox-busy-open", f"inbox?open={opened}")]


def terminals(client: httpx.Client) -> list[Scene]:
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
        Scene(f"terminals-{kind}", f"inbox?open={name}")
        for kind, name in zip(("races", "first", "there", "gate"), names, strict=False)
    ]
    return [
        Scene("terminals-inbox", "inbox"),
        *opened,
        Scene("terminals-conversation", f"conversations/{ran['conversation_id']}"),
        Scene("terminals-conversations", "conversations"),
        Scene("terminals-audit", "audit"),
    ]


def _settle(browser: Browser) -> None:
    """Wait until the page has drawn what it shows, and the last parts of it have come."""
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    time.sleep(SETTLED)


def _size(browser: Browser, width: int, height: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


def take(browser: Browser, scene: Scene, key: str, folder: Path) -> None:
    """Write the contact sheet of a scene: a row for light, one for dark."""
    rows = ""
    for scheme in ("light", "dark"):
        browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        _size(browser, *SIZES[0])
        scene.appear(browser, key)
        pictures = ""
        for width, height in SIZES:
            _size(browser, width, height)
            _settle(browser)
            path = folder / f"{scene.name}-{scheme}-{width}.png"
            browser.driver.save_screenshot(str(path))
            pictures += f'<img src="{path.name}" alt="">'
        rows += f"<div>{pictures}</div>"
    browser.offline(False)
    sheet = folder / "sheet.html"
    sheet.write_text(SHEET.format(name=scene.name, rows=rows))
    browser.driver.get(sheet.as_uri())
    width, height = browser.script("return [document.body.offsetWidth + 32, document.body.offsetHeight + 32]")
    _size(browser, width, height)
    _settle(browser)
    browser.driver.save_screenshot(str(FOLDER / f"{scene.name}.png"))
    print(f"{(FOLDER / scene.name).relative_to(PROJECT)}.png", flush=True)


@contextmanager
def _day(make: Callable[[httpx.Client], list[Scene]] | None) -> Iterator[Day]:
    """A server of its own with what a function puts into it; without one, with an ordinary day."""
    with tempfile.TemporaryDirectory() as folder:
        if make is None:
            with day_server(Path(folder)) as day:
                yield day
            return
        with supervised_server(Path(folder), SESSION_API_KEY=ADMIN) as (client, _):
            client.headers.update(shown(ADMIN))
            yield Day(str(client.base_url).rstrip("/"), ADMIN, make(client))


@contextmanager
def _browser(day: Day) -> Iterator[Browser]:
    browser = Browser(day.base_url, arguments=("--hide-scrollbars",))
    try:
        yield browser
    finally:
        browser.close()
        end_browsers()


def sheets(names: list[str]) -> None:
    """Write the contact sheets whose names begin with one of these, or all."""
    FOLDER.mkdir(exist_ok=True)
    left = set(names)
    for make in (None, empty, full, busy, terminals):
        if names and not left:
            return
        with _day(make) as day, _browser(day) as browser, tempfile.TemporaryDirectory() as folder:
            for scene in day.scenes:
                wanted = {name for name in names if scene.name.startswith(name)}
                if wanted or not names:
                    take(browser, scene, day.key, Path(folder))
                left -= wanted


#: the pictures of the documentation: what makes their server, and the view and the file of each
OF_DOCS = (
    (busy, "inbox-busy-open", "console-inbox.png"),
    (None, "conversation-waiting-1-line", "console-conversation.png"),
)


def docs() -> None:
    """Write the pictures of the documentation. Raises ValueError where one is too large."""
    for make, name, file in OF_DOCS:
        with _day(make) as day, _browser(day) as browser:
            [scene] = [one for one in day.scenes if one.name == name]
            _size(browser, 1400, 900)
            scene.appear(browser, day.key)
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
