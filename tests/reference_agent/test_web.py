"""How the bundled agent reads a web page."""

import http.server
import time

import pytest

from reference_agent import web
from reference_agent.tools import ToolRefused
from reference_agent.web import fetch, html_text
from store.destinations import _WORDS
from tests.quick import serve


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h1>News</h1><p>It <b>works</b>,\n really.", "# News\n\nIt works, really."),
        ("<head><title>x</title></head><script>if (a<b) {}</script><style>p>a{}</style>so", "so"),
        ("</script>still <svg/>here", "still\nhere"),
        ("<ul><li>one<li>two</ul>", "- one\n- two"),
        ("<table><tr><td>a</td><td>b</td></tr></table>", "| a | b"),
        ("<pre>def f():\n    return 1</pre>after", "def f():\n    return 1\nafter"),
        ('<a class=x href="https://a.test/?a=1&amp;b">it</a> <a href="#top">top</a>', "it (https://a.test/?a=1&b) top"),
        ("a &lt;b&gt; &amp; c &#128512;", "a <b> & c \U0001f600"),
        ("<!-- <p>gone</p> -->kept", "kept"),
    ],
)
def test_a_page_becomes_text_line_by_line(html, text):
    assert html_text(html) == text


@pytest.mark.process("takes long where it is wrong")
@pytest.mark.parametrize("part", ["<", "<script", "<a href=", "<pre>", "<!--", "&", "<p"])
def test_no_page_takes_longer_than_its_size_explains(part):
    begin = time.monotonic()
    html_text(part * 200_000)
    assert time.monotonic() - begin < 10


class WayOut(http.server.BaseHTTPRequestHandler):
    """Refuses a name until a person has allowed it, and then does not find it."""

    tries: list[str] = []

    def do_CONNECT(self):
        self.tries.append(self.path)
        is_asked = len(self.tries) < 3
        words = f"{self.path} {_WORDS['waiting']}" if is_asked else "no address"
        self.send_error(403 if is_asked else 502, words)

    def log_message(self, *_args):
        pass


@pytest.fixture
def way_out(monkeypatch):
    monkeypatch.setattr(web, "_TRY_SECONDS", 0.01, raising=False)
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), WayOut)
    serve(proxy)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.server_address[1]}")
    WayOut.tries.clear()
    yield WayOut
    proxy.shutdown()
    proxy.server_close()


def test_a_page_of_a_host_that_a_person_is_asked_for_waits_for_the_answer(way_out):
    with pytest.raises(ToolRefused, match="502 no address"):
        fetch("https://example.org/", waits=lambda: True)
    assert way_out.tries == ["example.org:443"] * 3


def test_a_page_waits_for_no_answer_where_nobody_wants_it_any_more(way_out):
    with pytest.raises(ToolRefused, match="a person was asked"):
        fetch("https://example.org/", waits=lambda: len(way_out.tries) < 2)
    assert len(way_out.tries) == 2
