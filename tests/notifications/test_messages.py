"""The quiet rules: which entries of an outbox are notified of."""

import json

import pytest

from core.scopes import Origin
from notifications.messages import QuietRules, Subject, body_of, text_of
from notifications.sending import targets_of
from settings import ConfigError
from settings.config import Config
from settings.notify import EVENT_TYPES
from tests.notifications import SECRET


def passes(kind="action.pending", *, tool="terminal", risk="HIGH", **settings):
    rules = QuietRules.of(Config.of(**settings).notify)
    entry = {"type": kind, "tool": tool, "risk": risk}
    return rules.pass_entry(entry) and rules.pass_risk(entry)


def test_without_settings_every_event_is_notified_of():
    assert [kind for kind in EVENT_TYPES if not passes(kind)] == []


def test_only_the_types_of_the_setting_are_notified_of():
    wanted = {"notify_events": "action.pending, sandbox.error"}

    assert [kind for kind in EVENT_TYPES if passes(kind, **wanted)] == ["action.pending", "sandbox.error"]


@pytest.mark.parametrize(
    ("least", "passing"),
    [
        ("LOW", ["LOW", "MEDIUM", "HIGH", "UNKNOWN", "", None, "nonsense"]),
        ("MEDIUM", ["MEDIUM", "HIGH", "UNKNOWN", "", None, "nonsense"]),
        ("HIGH", ["HIGH", "UNKNOWN", "", None, "nonsense"]),
    ],
)
def test_an_action_passes_by_its_risk_and_an_unknown_risk_counts_as_high(least, passing):
    risks = ("LOW", "MEDIUM", "HIGH", "UNKNOWN", "", None, "nonsense")

    assert [risk for risk in risks if passes(risk=risk, notify_risk=least)] == passing


def test_an_action_passes_by_its_tool():
    wanted, tools = {"notify_tools": "terminal,browser"}, ("terminal", "browser", "other", None)

    assert [tool for tool in tools if passes(tool=tool, **wanted)] == ["terminal", "browser"]


@pytest.mark.parametrize("kind", ["conversation.finished", "conversation.error", "sandbox.error"])
def test_an_event_that_is_about_no_action_passes_whatever_the_tools_and_risks(kind):
    assert passes(kind, tool=None, risk=None, notify_tools="terminal", notify_risk="HIGH")


WRONG = [
    ("notify_events", "action.pending,action.opened", "action.expired.*not 'action.opened'"),
    ("notify_risk", "SOME", "LOW, MEDIUM or HIGH"),
    ("notify_tags", "Team", "NAME or NAME=VALUE"),
    ("notify_private", 2, "from 0 to 1"),
    ("notify_urls", "hush-no-url", "SCHEME://"),
    ("notify_urls", " ".join(f"json://host/{n}" for n in range(33)), "at most 32 together, not 33"),
    ("notify_webhooks", "https://example.org/hush", "URL|whsec_SECRET"),
    ("notify_webhooks", f"https://hush:hush@example.org/|{SECRET}", "without a user"),
    ("notify_webhooks", f"ftp://example.org/hush|{SECRET}", "http://"),
    ("notify_webhooks", f"https://example.org:hush/|{SECRET}", "http://"),
    ("notify_webhooks", f"https://[hush/|{SECRET}", "http://"),
    ("notify_webhooks", f"https:///hush|{SECRET}", "http://"),
    ("notify_webhooks", "https://example.org/|whsec_hush", "Base64"),
    ("notify_webhooks", "https://example.org/|whsec_hushhushhushhush!", "Base64"),
    ("notify_webhooks", "https://example.org/|whsec_hushhushhushhushh", "Base64"),
    ("public_url", "example.org", "http://"),
]


def test_a_wrong_setting_is_refused_by_name_and_shows_no_url():
    for setting, value, words in WRONG:
        with pytest.raises(ConfigError, match=f"^{setting.upper()}.*{words}") as refusal:
            Config.of(**{setting: value})

        assert "hush" not in repr(refusal.value)


def test_the_targets_of_the_settings_have_stable_ids_and_names_without_secrets():
    urls = "slack://hushA/hushB/hushC mailto://me:hush@example.org json://user:hush@10.0.0.1:8080/hush?hush=hush"
    hooks = f"https://example.org:8443/hush?hush=1|{SECRET} http://[::1]/hush|{SECRET}"
    targets = targets_of(Config.of(notify_urls=f"{urls} tgram://hush:hush/1", notify_webhooks=hooks).notify)

    assert [target.name for target in targets] == [
        "https://example.org:8443",
        "http://[::1]",
        "slack://…",
        "mailto://example.org",
        "json://10.0.0.1",
        "tgram://…",
    ]
    assert [target.kind for target in targets] == ["webhook"] * 2 + ["apprise"] * 4
    assert "hush" not in repr(targets)
    assert "whsec" not in repr(targets)
    again = targets_of(Config.of(notify_webhooks=hooks.replace(SECRET, "whsec_" + "A" * 32)).notify)
    assert [target.id for target in again] == [target.id for target in targets[:2]]  # another secret, the same queue
    assert len({target.id for target in targets}) == 6


def test_a_url_that_is_named_twice_is_one_target():
    assert len(targets_of(Config.of(notify_urls="json://host json://host").notify)) == 1


def test_a_text_for_people_has_what_would_run_before_the_summary_of_the_agent():
    entry = {"type": "action.pending", "time": "2026-11-28T00:00:00Z", "tool": "terminal"}
    subject = Subject(summary="List the files", arguments={"command": "rm -rf build"})
    body = body_of(entry, subject, public_url="", approval_link=None)

    assert text_of(body)[1] == 'Arguments: {"command":"rm -rf build"}\nSummary: List the files'
    assert json.loads(body)["data"]["summary"] == "List the files"


def test_a_notification_says_whose_agent_asks_and_on_which_machine():
    entry = {"type": "action.pending", "time": "2026-11-28T00:00:00Z", "tool": "Bash"}
    origin = Origin("key-1", "", "/home/ada/shop", "laptop", "ada", "claude-code")
    body = body_of(entry, Subject(origin=origin), public_url="", approval_link=None)

    data = json.loads(body)["data"]
    assert (data["agent"], data["person"], data["machine"]) == ("claude-code", "ada", "laptop")
    assert "key-1" not in body
    assert text_of(body)[1] == "From: claude-code · ada@laptop · /home/ada/shop"
    here = body_of(entry, Subject(origin=Origin("key-1", "", "/home/ada/shop")), public_url="", approval_link=None)
    assert json.loads(here)["data"] == {"tool": "Bash"}
