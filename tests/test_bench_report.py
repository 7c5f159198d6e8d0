"""What the bench makes of its figures: a page with a table and plots, and a file with every one of them."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from bench import plot, report
from bench.measure import Curve, Row, along
from tests.servers import PROJECT, redis_program

MACHINE = {"date": "2026-11-22T10:00+00:00", "cores": 2}
ROW = Row("count: against a bare view", 0.97, " ×", "3/s against 4/s", least=0.95, raw={"ours": [1.0, 3.0, 2.0]})
FLAT = Curve(
    "log-size",
    "Latency <by> length",
    "events",
    "ms",
    {"count": {1_000: [1.0, 3.0, 2.0], 1_000_000: [2.0]}, "page": {1_000: [5.0], 1_000_000: [6.0]}},
)
SVG = "{http://www.w3.org/2000/svg}"


def texts(curve: Curve) -> list[str]:
    return [one.text for one in ElementTree.fromstring(plot.svg(curve)).iter(f"{SVG}text")]


def test_a_plot_has_a_line_for_each_series_and_a_mark_for_each_median():
    picture = ElementTree.fromstring(plot.svg(FLAT))

    lines = [one.attrib["points"].split(" ") for one in picture.iter(f"{SVG}polyline")]
    marks = [f"{one.attrib['cx']},{one.attrib['cy']}" for one in picture.iter(f"{SVG}circle")]
    assert [len(line) for line in lines] == [2, 2]
    assert {point for line in lines for point in line} <= set(marks)
    # The median of the first place is that of the second: the line is level
    assert len({point.partition(",")[2] for point in lines[0]}) == 1


def test_a_plot_names_its_axes_and_series_and_ticks():
    assert {"Latency <by> length", "events", "ms", "count", "page"} <= set(texts(FLAT))
    assert {"1,000", "10,000", "100,000", "1,000,000"} <= set(texts(FLAT))
    assert {"0", "1", "2", "6"} <= set(texts(FLAT))


def test_equal_figures_make_equal_bytes():
    turned = {name: dict(reversed(points.items())) for name, points in FLAT.series.items()}

    assert plot.svg(FLAT) == plot.svg(Curve(FLAT.name, FLAT.title, FLAT.x, FLAT.y, turned))


@pytest.mark.parametrize("values", [[0.0], [0.5, 0.5], [1e-3, 1e6], [0.0, 1e6], [99_999.0]])
def test_any_figures_have_a_plot_within_its_frame(values):
    curve = Curve("any", "any", "x", "y", {"one": {10.0: values, 20.0: values}})

    for mark in ElementTree.fromstring(plot.svg(curve)).iter(f"{SVG}circle"):
        assert 0 <= float(mark.attrib["cx"]) <= 760
        assert 0 <= float(mark.attrib["cy"]) <= 400


def test_the_page_has_the_rows_and_the_curves_and_keeps_what_follows_them(tmp_path):
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    page.write_text("what a run before wrote\n<!-- end of what make bench writes -->\n\n## Archives\n\nkept\n")

    report.write([ROW], [FLAT], MACHINE, tmp_path)

    text = page.read_text()
    assert "| count: against a bare view | 0.97 × | ≥ 0.95 × | ok |  | 3/s against 4/s |" in text
    assert "| count | 2.00 | 2.00 |" in text
    assert "![Latency <by> length](plots/log-size.svg)" in text
    assert text.endswith("\n<!-- end of what make bench writes -->\n\n## Archives\n\nkept\n")
    assert "what a run before wrote" not in text
    assert (page.parent / "plots" / "log-size.svg").read_text() == plot.svg(FLAT)
    [raw] = (tmp_path / "bench" / "results").iterdir()
    assert raw.name == "2026-11-22T1000.json"

    report.write([ROW], [FLAT], MACHINE, tmp_path)
    assert page.read_text() == text


def test_the_page_of_the_project_has_its_costs_behind_what_a_run_writes():
    _, end, kept = (PROJECT / "docs" / "performance.md").read_text().partition("<!-- end of what make bench writes -->")

    assert end
    assert kept.count("<!-- costs -->") == 1


def test_figures_are_told_with_their_median_and_their_spread():
    assert report.spread([1.0, 3.0, 2.0]) == {
        "median": 2.0,
        "least": 1.0,
        "greatest": 3.0,
        "quartiles": [1.5, 2.5],
        "figures": [1.0, 3.0, 2.0],
    }
    assert report.spread("ms") == "ms"


def test_places_are_measured_forth_and_back():
    order: list[int] = []

    def at(place: int) -> float:
        order.append(place)
        return float(len(order))

    found = along(2, {1: lambda: at(1), 2: lambda: at(2)})

    assert order == [1, 2, 1, 2, 2, 1]
    assert found == {1: [3.0, 6.0], 2: [4.0, 5.0]}


def test_a_quick_run_writes_every_figure_with_its_unit_and_its_machine(tmp_path):
    redis_program()
    file = tmp_path / "figures.json"
    words = [sys.executable, "-m", "bench", "--quick", "--json", str(file), "memory", "memory-layout", "batch-size"]
    subprocess.run(words, cwd=PROJECT, check=True, capture_output=True)

    found = json.loads(file.read_text())
    assert {"cores", "memory", "load before", "load after", "python", "redis", "gunicorn"} <= found[
        "measured_on"
    ].keys()
    assert {(row["unit"], row["figures"]["unit"]) for row in found["rows"]} == {("×", "bytes an event")}
    layout, batches = found["curves"]
    assert {"in all", "its own bytes", "key log", "key seqs"} <= layout["series"].keys()
    assert [one["x"] for one in batches["series"]["by webhook"]] == [1, 10]
    assert all(one["least"] > 0 and len(one["figures"]) == 2 for one in batches["series"]["by webhook"])


def test_a_subject_that_there_is_not_is_refused_with_those_that_there_are():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "counts", "--quick"], cwd=PROJECT, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert "unknown subject: counts" in done.stderr
