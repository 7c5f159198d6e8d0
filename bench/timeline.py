"""A conversation of 100,000 events in a real Chromium: the first row, and the frames of a scroll through its log."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from selenium import webdriver

from bench import corpus, servers
from bench.measure import Effort, Row

#: pixels of a step of the scroll, frames that are measured, milliseconds of a frame at 60 Hz
_STEP, _FRAMES, _FRAME = 120, 600, 1000 / 60

_PAINT = """
const [place, done] = arguments, start = performance.now();
new MutationObserver((_, observer) => {
  if (!document.querySelector("li.event")) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
}).observe(document.body, {childList: true, subtree: true});
location.hash = place;
"""

_SCROLL = """
const [step, frames, done] = arguments, box = document.querySelector(".timeline"), gaps = [];
let last = performance.now(), rows = 0;
requestAnimationFrame(function look(now) {
  gaps.push(now - last);
  last = now;
  rows = Math.max(rows, document.querySelectorAll("li.event").length);
  box.scrollTop -= step;
  if (gaps.length < frames) requestAnimationFrame(look);
  else done({gaps: gaps.sort((a, b) => a - b), rows});
});
"""


def rows(effort: Effort) -> list[Row]:
    """The time to the first row within the page, and the gaps between the frames of a scroll."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        print("timeline: chromium and chromedriver are not on the PATH", file=sys.stderr)
        return []
    random = Random(9)
    large, small = corpus.conversation(random), corpus.conversation(random)
    with servers.redis_server() as url, servers.gunicorn("app:create_app()", url, 2) as port, _browser() as driver:
        for conversation_id, number in ((large, effort.stored), (small, 1)):
            corpus.fill(url, conversation_id, corpus.agent_events(random, number))
        driver.get(f"http://127.0.0.1:{port}/console/#/conversations/{small}")
        paints = []
        for _ in range(effort.rounds):
            driver.execute_script("location.hash = '#/status'")
            driver.execute_async_script("const [done] = arguments; setTimeout(done, 500)")
            paints.append(driver.execute_async_script(_PAINT, f"#/conversations/{large}"))
        scroll = driver.execute_async_script(_SCROLL, _STEP, _FRAMES)
    return [_paint(effort, sorted(paints)), _frames(effort, scroll)]


@contextmanager
def _browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(option)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


def _paint(effort: Effort, paints: list[float]) -> Row:
    return Row(
        f"a conversation of {effort.stored:,} events: from its address to its first rows",
        paints[len(paints) // 2],
        " ms",
        f"least {paints[0]:.0f} ms, largest {paints[-1]:.0f} ms",
        most=300,
        raw={"paints": paints, "unit": "ms"},
    )


def _frames(effort: Effort, scroll: dict[str, Any]) -> Row:
    gaps = scroll["gaps"]
    late = sum(gap > 2 * _FRAME for gap in gaps)
    return Row(
        f"a scroll through {effort.stored:,} events: between two frames, p95",
        gaps[int(0.95 * len(gaps))],
        " ms",
        f"median {gaps[len(gaps) // 2]:.1f} ms, {late} of {len(gaps)} late by a frame, {scroll['rows']} rows at most",
        raw={"gaps": gaps, "rows": scroll["rows"], "unit": "ms"},
    )
