"""Reads a web page as text, by the way out of the sandbox: its proxy decides which hosts are reached."""

import re
from html.parser import HTMLParser

import httpx

from core.cuts import beginning
from reference_agent.tools import Refused

#: seconds until a connection stands and between two parts; maximum number of redirects, and of bytes of a page
_SECONDS, _REDIRECTS, MOST_PAGE = 20.0, 5, 4 << 20

#: maximum length of the text of one answer, in characters
MOST_TEXT = 28_000

#: elements whose text nobody reads, and elements that begin a line
_UNREAD = ("script", "style", "noscript", "template", "svg", "head")
_BLOCKS = (
    *("p", "div", "br", "li", "ul", "ol", "tr", "table", "pre", "section", "article", "header", "footer", "nav", "main"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "dt", "dd", "hr", "title"),
)


def fetch(url: str, start: int = 0) -> str:
    """The text of a page from a character on. Raises Refused with a sentence."""
    if not re.match(r"https?://[^/\s]", url):
        raise Refused("the URL should begin with http:// or https:// and a host")
    try:
        with (
            httpx.Client(timeout=_SECONDS, follow_redirects=True, max_redirects=_REDIRECTS) as client,
            client.stream("GET", url, headers={"Accept": "text/html, text/*, application/json, */*;q=0.1"}) as response,
        ):
            body, kind = _body(response), response.headers.get("content-type", "")
            status, last = response.status_code, str(response.url)
            encoding = response.charset_encoding or "utf-8"
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, httpx.CookieConflict) as error:
        raise Refused(f"{url} is not reached: {beginning(str(error) or type(error).__name__, 500)}") from None
    text = _text(body, kind, encoding)
    if text is None:
        raise Refused(f"{last} is no text but {kind or 'of an unknown type'}, {len(body):,} bytes")
    shown, rest = text[start : start + MOST_TEXT], max(len(text) - start - MOST_TEXT, 0)
    more = f"\n… {rest:,} characters more: call again with start={start + MOST_TEXT}" if rest else ""
    return f"{last}, status {status}:\n{shown}{more}"


def _body(response: httpx.Response) -> bytes:
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > MOST_PAGE:
            break
    return bytes(body[:MOST_PAGE])


def _text(body: bytes, kind: str, encoding: str) -> str | None:
    """The text of a body; None of one that is no text."""
    try:
        text = body.decode(encoding, errors="replace")
    except LookupError:
        text = body.decode(errors="replace")
    if "html" in kind or text[:200].lstrip().lower().startswith(("<!doctype html", "<html")):
        return html_text(text)
    return None if "\0" in text[:8192] else text


def html_text(html: str) -> str:
    """The text of a page, a line for each block, with the addresses of its links."""
    page = _Page()
    page.feed(html)
    page.close()
    lines = (" ".join(line.split()) for line in "".join(page.parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unread = 0
        self._address = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unread += tag in _UNREAD
        if tag in _BLOCKS:
            self.parts.append("\n" + ("- " if tag == "li" else "# " if tag in ("h1", "h2", "h3") else ""))
        if tag == "a":
            self._address = dict(attrs).get("href") or ""

    def handle_endtag(self, tag: str) -> None:
        self._unread -= tag in _UNREAD and self._unread > 0
        if tag in _BLOCKS:
            self.parts.append("\n")
        if tag == "a" and self._address.startswith(("http", "/")):
            self.parts.append(f" ({self._address})")
            self._address = ""

    def handle_data(self, data: str) -> None:
        if not self._unread:
            self.parts.append(data if not self.parts or data.strip() else " ")
