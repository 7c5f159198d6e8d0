"""How the bundled agent reads a web page."""

import time

import pytest

from reference_agent.web import html_text


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
