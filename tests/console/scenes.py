"""States of the console as a person meets them on an ordinary day: for its pictures, and for tests of every view.

One server has them all. A scene is a view of it, what a person does there, and the words that prove that it is full.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from settings.specs import BUNDLED
from store import Store
from tests.approvals import shown
from tests.conftest import limits_of, store_of
from tests.console import Browser
from tests.console.furnished import show
from tests.console.pictured import TITLES, Story, begin, fill, nightly, script_of, waiting
from tests.servers import store_server, supervised_server, wait_until
from tests.v1 import WireApi

#: what an agent prints whose process ends before it listens
END = "Loading the model\nRuntimeError: No CUDA GPUs are available"
BROKEN = f"""
[[spec]]
id = "gpu"
created_at = 2026-11-21T00:00:00Z
restarts = 0
command = ["{{PYTHON}}", "-c", {json.dumps(f"import sys; sys.exit({END!r})")}]
"""

#: the key of the server's settings; people have keys of their own
ADMIN = "an-admin-key-for-tests-only"

#: a module and its test, before an agent changed them and after it, as `printf` writes them
HEAD = 'FORMATS = ("%%d.%%m.%%Y", "%%Y-%%m-%%d")\\n\\n\\ndef parse(text):\\n    for form in FORMATS:\\n'
BEFORE = f"{HEAD}        return strptime(text, form)\\n"
AFTER = (
    f"{HEAD}        try:\\n            return strptime(text.strip(), form)\\n"
    "        except ValueError:\\n            continue\\n    raise ValueError(text)\\n"
)
TEST = 'def test_blanks_around_a_date_are_ignored():\\n    assert parse(" 1.2.2026 ").day == 1\\n'

#: a repository with a commit, and what an agent does in it then; a program that listens
SETUP = (
    "mkdir -p src tests && git init -q . && git config user.email agent@example.org && git config user.name Agent",
    f"printf '{BEFORE}' > src/dates.py && printf '# Invoices\\n' > README.md",
    "git add . && git commit -qm 'Read dates of invoices'",
    f"printf '{AFTER}' > src/dates.py",
    f"printf 'from dates import parse\\n\\n\\n{TEST}' > tests/test_dates.py",
    "python3 -m http.server 8123 --directory src > /dev/null 2>&1 & sleep 0.3; git status --short",
)

#: decisions of people: who, a command, the decision, the reason
DECIDED = (
    ("ada", "pytest -q tests/jobs", "approve", ""),
    ("ada", "git diff --stat", "approve", ""),
    ("ben", "rm -rf /srv/releases/4.1", "reject", "Keep the last two releases, and ask again."),
    ("ben", "alembic -x env=staging upgrade head", "approve", ""),
    ("ada", "pip install requests==2.32.4", "approve", ""),
    ("ada", "git push --force origin main", "reject", "Never to main."),
    ("ben", "kubectl rollout restart deployment/web", "approve", ""),
    ("ada", "ruff check --fix jobs", "approve", ""),
    ("ben", "curl -s https://status.example.org/api/v2/summary.json", "approve", ""),
)

#: keys: name, scopes, days until it expires
KEYS = (("ada", ["admin"], 90), ("ben", ["approve"], 90), ("ci", ["write"], 30), ("dashboard", ["read"], None))

RULES: tuple[dict[str, Any], ...] = (
    {"decision": "approve", "tool_name": "terminal", "arguments": {"command": {"pattern": "pytest *"}}},
    {"decision": "approve", "tool_name": "terminal", "arguments": {"command": {"pattern": "git status *"}}},
    {
        "decision": "reject",
        "tool_name": "terminal",
        "arguments": {"command": {"pattern": "git push --force *"}},
        "reason": "Nobody rewrites what others have.",
    },
)


def _nothing(_browser: Browser) -> None:
    """Leave the view as it is."""


class Scene(NamedTuple):
    """A state of a view."""

    name: str
    place: str  #: as the address has it
    act: Callable[[Browser], None] = _nothing  #: what a person does there
    shows: str = ""  #: words of the page that prove that it has what its name says

    def appear(self, browser: Browser, key: str) -> None:
        """Load it with a person's key, and wait until it shows what it should."""
        browser.offline(False)
        browser.open("nowhere")  # a fresh load each, and nothing that another scene has left open
        browser.script("sessionStorage.clear(), localStorage.clear()")
        browser.open("nowhere", key=key)
        show(browser, self.place)
        self.act(browser)
        if self.shows:
            browser.says(self.shows)


def press(*names: str) -> Callable[[Browser], None]:
    """Press buttons one after the other, each as soon as a press counts."""

    def act(browser: Browser) -> None:
        for name in names:
            browser.wait(lambda wanted=name: browser.script(PRESS, wanted), f"the button {name}")

    return act


#: presses the first button of a name that is shown, but one that has opened what it opens; whether there was one
PRESS = """
const shown = [...document.querySelectorAll(`[data-testid="${arguments[0]}"]`)].find((one) => one.checkVisibility());
const foot = shown?.closest("footer");
if (shown?.ariaExpanded === "true") return true;
if (!shown || shown.disabled || (foot?.closest(".decision") && foot.dataset.steady === undefined)) return false;
shown.click();
return true;
"""


def press_row(words: str) -> Callable[[Browser], None]:
    """Open the row of the inbox that has these words."""
    find = """
    const row = [...document.querySelectorAll(".index li")].find((one) => one.textContent.includes(arguments[0]));
    row?.querySelector("[data-testid=open]")?.click();
    return Boolean(row);
    """
    return lambda browser: browser.wait(lambda: browser.script(find, words), f"the row of {words}")


def types(name: str, text: str, *then: str) -> Callable[[Browser], None]:
    """Press buttons, and type into a field."""

    def act(browser: Browser) -> None:
        press(*then)(browser)
        browser.find(name).send_keys(text)

    return act


def _lose(browser: Browser) -> None:
    """Cut the network, and wait until the page has noticed."""
    browser.offline()
    browser.wait(lambda: browser.script("return !document.querySelector('[data-state=live]')"), "the loss")


def _fail(browser: Browser) -> None:
    """Start an agent that ends at once, and wait until the page says so."""
    for name, value, event in (
        ("message", "Train the ranking model on last week's clicks.", "input"),
        ("spec", "gpu", "change"),
    ):
        browser.wait(lambda given=(name, value, event): browser.script(FILL, *given), f"the field {name}")
    press("start")(browser)


#: gives a field of the form a value
FILL = """
const [name, value, event] = arguments, field = document.querySelector(`form [name="${name}"]`);
if (!field) return false;
field.value = value;
field.dispatchEvent(new Event(event, { bubbles: true }));
return field.value === value;
"""


def failed() -> Story:
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


def running() -> Story:
    """A conversation whose agent runs a command."""
    story = nightly(120)
    story.says("And production?")
    story.becomes("running")
    story.acts("Migrate production", {"command": "alembic -x env=production upgrade head"})
    return story


def make_keys(client: httpx.Client) -> dict[str, str]:
    """Make the keys; the secrets by their names."""
    made = {}
    for name, scopes, days in KEYS:
        ends = days and (datetime.now(UTC) + timedelta(days=days)).isoformat()
        body = {"name": name, "scopes": scopes, "expires_at": ends}
        made[name] = client.post("/api/v1/keys", json=body).raise_for_status().json()["key"]
    return made


def decide_some(client: httpx.Client, keys: dict[str, str], number: int) -> None:
    """Have people decide so many actions of conversations."""
    for place in range(number):
        who, command, decision, reason = DECIDED[place % len(DECIDED)]
        title, team = TITLES[place % len(TITLES)]
        conversation = waiting(client, title, team, "One step", command)
        for action in client.get(f"/api/conversations/{conversation}/pending_actions").raise_for_status().json():
            # none of a command that a rule has decided
            said = {"action_id": action["id"], "decision": decision} | ({"reason": reason} if reason else {})
            path = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
            client.post(path, json={"decisions": [said]}, headers=shown(keys[who])).raise_for_status()


def _work(client: httpx.Client, store: Store, keys: dict[str, str]) -> tuple[str, str, str]:
    """A conversation with a changed repository, one whose sandbox asks for a destination, and that sandbox."""
    api = WireApi(client)
    commands = "\n".join(f"run: {command}" for command in SETUP)
    work = api.app_conversation(title="Dates with blanks around them are refused")
    api.send(work["id"], f"Blanks around a date must not matter. Mend it, and write a test.\n{commands}")
    api.until(work["id"], "waiting_for_confirmation")

    def is_done() -> bool:
        decide_all = {"accept": True, "reason": ""}
        client.post(
            f"/api/conversations/{work['id']}/events/respond_to_confirmation",
            json=decide_all,
            headers=shown(keys["ada"]),
        )
        return api.conversation(work["id"])["execution_status"] in ("finished", "idle")

    wait_until(is_done, "the end of the work")
    asking = api.app_conversation(title="Pin the requirements to their newest releases")
    store.destinations.verdict(asking["sandbox_id"], "files.pythonhosted.org", 443, "pip")
    rest = api.app_conversation(title="Draw the architecture as a picture")
    client.post(f"/api/v1/sandboxes/{rest['sandbox_id']}/pause").raise_for_status()
    broken = api.start_sandbox("gpu")["id"]
    api.wait_for(broken, "ERROR")
    return work["id"], asking["id"], asking["sandbox_id"]


def furnish(client: httpx.Client, store: Store, keys: dict[str, str]) -> list[Scene]:
    """Fill a server with an ordinary day of people with these keys; its scenes."""
    for rule in RULES:
        client.post("/api/v1/approval-rules", json=rule, headers=shown(keys["ada"])).raise_for_status()
    for name in ("pypi.org", "*.debian.org"):
        body = {"name": name, "decision": "approve"}
        client.post("/api/v1/destination-rules", json=body, headers=shown(keys["ada"])).raise_for_status()
    fill(client, len(TITLES))
    decide_some(client, keys, 2 * len(DECIDED))
    work, asking, sandbox = _work(client, store, keys)
    short = waiting(client, "Mend the nightly job", "data", "Migrate staging", script_of(1))
    long = waiting(client, "Migrate the shards", "ops", "Migrate every shard of staging", script_of(15), "HIGH")
    fresh = begin(client, "Fresh", "web", [])
    talk = begin(client, *TITLES[0], nightly().events)
    runs = begin(client, "Add the index in production", "api", running().events)
    failing = begin(client, "Lint the jobs", "data", failed().events)
    [waits] = client.get(f"/api/conversations/{short}/pending_actions").raise_for_status().json()
    opened = f"inbox?open={quote(short + ' ' + waits['id'])}"

    def at(conversation: str, query: str = "") -> str:
        return f"conversations/{conversation}{query}"

    return [
        Scene("inbox", "inbox", shows="Mend the nightly job"),
        Scene("inbox-open", opened, shows="alembic"),
        Scene("inbox-reject", opened, press("reject"), "Reject"),
        Scene("inbox-always", opened, press("always"), "Always"),
        Scene("inbox-destination", "inbox", press_row("files.pythonhosted.org"), "files.pythonhosted.org"),
        Scene("conversations", "conversations", shows="Lint the jobs"),
        Scene("search", "conversations?in=messages&text=index", shows="index"),
        Scene("start", "start", shows="What should an agent do"),
        Scene("start-failed", "start", _fail, "No CUDA GPUs"),
        Scene("sandboxes", "sandboxes", shows="Running"),
        Scene("sandbox", f"sandboxes/{sandbox}", shows="Running"),
        Scene("rules", "rules", shows="git push --force *"),
        Scene("rules-new", "rules", press("new-rule")),
        Scene("keys", "keys", shows="dashboard"),
        Scene("keys-new", "keys", press("make-key")),
        Scene("audit", "audit", shows="Keep the last two releases"),
        Scene("status", "status", shows="Health"),
        Scene("lost", at(talk), _lose),
        Scene("lost-inbox", "inbox", _lose),
        Scene("shortcuts", "inbox", lambda browser: browser.press("?")),
        Scene("nowhere", "nothing-is-here", shows="There is nothing at this address"),
        Scene("conversation-empty", at(fresh)),
        Scene("conversation-talk", at(talk), shows="runs_by_day"),
        Scene("conversation-search", at(talk), types("filter-text", "index", "filters"), "index"),
        Scene("conversation-details", at(work), press("details"), "Sandbox"),
        Scene("conversation-events", at(talk), press("more", "all-events")),
        Scene("conversation-running", at(runs), shows="Migrate production"),
        Scene("conversation-failed", at(failing), shows="three times"),
        Scene("conversation-waiting-1-line", at(short), shows="env=staging"),
        Scene("conversation-waiting-15-lines", at(long), shows="bin/migrate"),
        Scene("conversation-reject", at(short), press("reject")),
        Scene("conversation-always", at(short), press("always"), "Always"),
        Scene("conversation-destination", at(asking), shows="files.pythonhosted.org"),
        Scene("conversation-changes", at(work, "?show=changes"), shows="dates.py"),
        Scene("conversation-files", at(work, "?show=files"), shows="README.md"),
        Scene("conversation-terminal", at(work, "?show=terminal"), shows="$"),
        Scene("conversation-preview", at(work, "?show=preview"), shows="8123"),
    ]


class Day(NamedTuple):
    """A server with an ordinary day in it."""

    base_url: str
    key: str  #: of the person who looks
    scenes: list[Scene]


@contextlib.contextmanager
def day_server(folder: Path) -> Iterator[Day]:
    """A whole server with an ordinary day in it."""
    specs = folder / "specs.toml"
    specs.write_text(BUNDLED.read_text() + BROKEN)
    with (
        store_server(folder) as (url, _),
        supervised_server(folder, REDIS_URL=url, SANDBOX_SPECS=str(specs), SESSION_API_KEY=ADMIN) as (client, _),
    ):
        client.headers.update(shown(ADMIN))
        limits = limits_of(100, pause_idlest=False, host_seconds=60, start_seconds=120)
        keys = make_keys(client)
        yield Day(str(client.base_url).rstrip("/"), keys["ada"], furnish(client, store_of(url, limits), keys))
