"""Reads a web page as text, through the sandbox's egress proxy, which decides about hosts."""

import re
import time
from collections.abc import Callable
from html import unescape

import httpx

from core.cuts import beginning
from reference_agent.tools import ToolRefused

#: Timeout of connecting and between two parts, in seconds; maximum number of redirects, and bytes of a page.
_SECONDS, _REDIRECTS, MOST_PAGE = 20.0, 5, 4 << 20
#: Seconds that a page waits for a person to allow its host, and between two tries; the proxy's sentence for that.
PERSON_SECONDS, _TRY_SECONDS, _ASKED = 120.0, 2.0, "a person was asked; try again"
MOST_TEXT = 28_000  #: maximum characters of one response's text
#: Elements whose text is skipped, and inline elements.
_UNREAD = ("script", "style", "noscript", "template", "svg", "head")
_INLINE = ("abbr", "b", "cite", "code", "em", "i", "img", "kbd", "mark", "q", "s", "small", "span", "strong", "sub")
_BLANK = "\ue000"  #: replaces a blank of preformatted text, which is kept


def fetch(url: str, start: int = 0, waits: Callable[[], bool] = lambda: False) -> str:
    """Return the text of a page from a character on. waits: for a person to allow the host. Raises ToolRefused."""
    if not re.match(r"https?://[^/\s]", url):
        raise ToolRefused("the URL should begin with http:// or https:// and a host")
    body = bytearray()
    try:
        with (
            httpx.Client(timeout=_SECONDS, follow_redirects=True, max_redirects=_REDIRECTS) as client,
            client.stream("GET", url) as response,
        ):
            for part in response.iter_bytes():
                body += part
                if len(body) > MOST_PAGE:
                    break
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
        if _ASKED in str(error) and waits():
            time.sleep(_TRY_SECONDS)
            return fetch(url, start, waits)
        raise ToolRefused(f"{url} cannot be reached: {beginning(str(error) or type(error).__name__, 500)}") from None
    kind = response.headers.get("content-type", "of an unknown type")
    if b"\0" in body[:8192]:
        raise ToolRefused(f"{response.url} is not text but {kind}, {len(body):,} bytes")
    text = (html_text if "html" in kind else str)(body[:MOST_PAGE].decode(errors="replace"))
    rest = max(len(text) - start - MOST_TEXT, 0)
    more = f"\n… {rest:,} characters more: call again with start={start + MOST_TEXT}" if rest else ""
    return f"{response.url}, status {response.status_code}:\n{text[start : start + MOST_TEXT]}{more}"


def html_text(html: str) -> str:
    """Return the text of a page, a line for each block, with the URLs of its links. Cost: linear in the page."""
    made, unread, is_code, address = list[str](), "", False, ""
    first, *later = html.split("<!--")
    html = "".join([first, *(part.partition("-->")[2] for part in later)])
    for token in re.split(r"(<[^<>]*>)", html):
        tag = re.match(r"<(/?)([a-zA-Z0-9]+)", token)
        is_end, name = bool(tag and tag[1]), tag[2].lower() if tag else ""
        if unread or (name in _UNREAD and not is_end and not token.endswith("/>")):
            unread = "" if is_end and name == unread else unread or name
        elif not tag:
            text = unescape(token) if token[:1] != "<" else ""
            made.append(text.expandtabs(4).replace(" ", _BLANK) if is_code else re.sub(r"\s+", " ", text))
        elif name == "a":
            made.append(f" ({address})" if is_end and address.startswith(("http", "/")) else "")
            found = re.search(r"href\s*=\s*[\"']?([^\"'\s>]+)", token)
            address = unescape(found[1]) if found else ""
        elif name not in _INLINE:
            is_code = (name == "pre" and not is_end) or (is_code and name != "pre")
            made.append({"li": "\n- ", "td": " | ", "/td": "", "h1": "\n# ", "h2": "\n## "}.get(tag[1] + name, "\n"))
    lines = (" ".join(line.split()) for line in "".join(made).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip().replace(_BLANK, " ")
