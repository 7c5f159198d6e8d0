"""The dashboard, the alerts and the page about them, against what a real server shows after some traffic."""

import json
import re
from uuid import uuid4

import pytest
import yaml

from tests.conftest import limits_of, store_of
from tests.scrapes import scrape
from tests.servers import PROJECT
from tests.shared import shared_server

PAGE = (PROJECT / "docs" / "monitoring.md").read_text()
DASHBOARD = json.loads((PROJECT / "docs" / "monitoring" / "grafana-dashboard.json").read_text())
ALERTS = yaml.safe_load((PROJECT / "docs" / "monitoring" / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]

ROWS = dict(re.findall(r"^\| `(agent_server_\w+)` \|.*\|\s*([^|]*?)\s*\|$", PAGE, re.MULTILINE))
METRIC = re.compile(r"\b(?:agent_server_\w+|up)\b(?=[{\[ )]|$)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
#: labels that Prometheus adds
OF_PROMETHEUS = {"instance", "job"}


def expressions() -> dict[str, str]:
    """Every expression of the dashboard and of the alerts, by its panel or alert."""
    found = {rule["alert"]: rule["expr"] for rule in RULES}
    for panel in DASHBOARD["panels"]:
        found |= {f"{panel['title']} {one['refId']}": one["expr"] for one in panel.get("targets", [])}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found[variable["name"]] = variable["query"]["query"].replace(",", " ,")
    return found


@pytest.fixture(scope="module")
def shown():
    """A scrape of a server that has served requests of several kinds, and whose host has a heartbeat."""
    server = shared_server()
    client = server.client
    store_of(server.url, limits_of(most=1, pause_idlest=False, host_seconds=60, start_seconds=60)).sandboxes.beat(
        "h", "it"
    )
    conversation = client.post("/api/conversations", json={}).json()["id"]
    for path in ("", "/events/search", "/events/count"):
        assert client.get(f"/api/conversations/{conversation}{path}").status_code == 200
    assert client.get(f"/api/conversations/{uuid4()}").status_code == 404
    assert client.get("/nowhere").status_code == 404
    return scrape(client)


@pytest.mark.process("asks a real server")
def test_every_metric_and_label_of_an_expression_is_shown_by_a_server(shown):
    labels = {}
    for sample in shown.samples:
        labels.setdefault(sample.name, set()).update(sample.labels)
    assert expressions()
    assert {name: faults for name, text in expressions().items() if (faults := faults_of(text, labels))} == {}


def faults_of(expression: str, labels: dict[str, set[str]]) -> list[str]:
    """What an expression names that no server shows. labels: those of each metric."""
    used = [(found[0].partition("{")[0], set(LABEL.findall(found[1] or ""))) for found in METRIC.finditer(expression)]
    faults = [] if used else ["no metric"]
    for metric, given in used:
        if metric != "up" and metric not in labels:
            faults.append(metric)
        faults += given - labels.get(metric, set()) - OF_PROMETHEUS
    by = {word for words in re.findall(r"\bby \(([^)]*)\)", expression) for word in words.replace(",", " ").split()}
    faults += by.difference(OF_PROMETHEUS, *(labels.get(metric, set()) for metric, _ in used))
    return faults + [pair for pair in ("()", "{}", "[]") if expression.count(pair[0]) != expression.count(pair[1])]


@pytest.mark.process("asks a real server")
def test_the_page_has_a_row_for_every_metric_and_for_no_other(shown):
    assert {name for name in shown.families if name.startswith("agent_server_")} == ROWS.keys()


def test_the_page_names_every_alert_at_a_metric_that_it_uses():
    named = {(alert, metric) for metric, alerts in ROWS.items() for alert in alerts.split(", ") if alert}
    used = {
        (rule["alert"], re.sub(r"_(bucket|count|sum)$", "", found[0].partition("{")[0]))
        for rule in RULES
        for found in METRIC.finditer(rule["expr"])
        if not found[0].startswith("up")
    }

    assert named == used


def test_every_alert_has_a_severity_a_summary_and_says_what_to_do():
    for rule in RULES:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}, rule
        assert re.fullmatch(r"AgentServer[A-Za-z]+", rule["alert"]), rule
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m")), rule
        assert rule["labels"]["severity"] in ("page", "ticket"), rule
        assert rule["annotations"].keys() == {"summary", "do"}, rule
        assert len(rule["annotations"]["do"]) > 60, rule


def test_every_setting_and_path_that_an_alert_names_exists():
    pages = "".join((PROJECT / "docs" / name).read_text() for name in ("settings.md", "limits.md"))
    settings = set(re.findall(r"`([A-Z][A-Z_]+)`", pages))
    access = (PROJECT / "docs" / "access.md").read_text()
    for rule in RULES:
        done = rule["annotations"]["do"]
        assert set(re.findall(r"\b[A-Z]+_[A-Z_]+\b", done)) <= settings, rule["alert"]
        for method, path in re.findall(r"\b(GET|POST) (/[\w/{}.-]*\w\}?)", done):
            assert f"\n{method} {re.sub('{id}', '{sandbox_id}', path)}\n" in access, path


def test_no_two_alerts_and_no_two_panels_have_one_name():
    alerts = [rule["alert"] for rule in RULES]
    panels = [panel["id"] for panel in DASHBOARD["panels"]]

    assert len(set(alerts)) == len(alerts)
    assert len(set(panels)) == len(panels)
