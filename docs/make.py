"""Writes the pages that are made from the code:  python -m docs.make  (or `make docs`)

The OpenAPI document in `docs/openapi.json`, the table of settings in `docs/settings.md`, the table of who may call what
in `docs/access.md`, the table of refusals in `docs/errors.md`, and the table of the peers' operations in
`docs/compatibility.md`; and the modules of the Python client that `docs/client.py` makes. Tests compare all of them
with the code.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from app import create_app
from blueprints.api import Needs
from core.refused import Kind, Refused
from docs import client
from docs.compatibility import rows as compared
from settings.config import Config

PROJECT = Path(__file__).parent.parent
OPENAPI, SETTINGS, ACCESS, ERRORS, COMPATIBILITY = (
    PROJECT / "docs" / name for name in ("openapi.json", "settings.md", "access.md", "errors.md", "compatibility.md")
)

#: what an operation needs that needs no scope of a key
_NEEDS = {"open": "no key", "hook": "a hook key", "link": "the token of a one-time link"}

_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- /table -->)", re.DOTALL)


def openapi() -> str:
    """The OpenAPI document that the app serves, as it is kept."""
    app = create_app(Config(redis_url="redis://127.0.0.1:1"))
    document = app.test_client().get("/openapi.json").get_json()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def settings() -> str:
    """The page of settings; its table is made from `settings.config.Config`."""
    rows = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for setting in fields(Config):
        default = "unset" if setting.default in ("", ()) else f"`{setting.default}`"
        names = setting.metadata["names"] or f"`{setting.name.upper()}`"
        rows.append(f"| {names} | {default} | {setting.metadata['help']} |")
    return _with_table(SETTINGS, rows)


def access() -> str:
    """The page about access; its table is made from what every rule declares."""
    rows = []
    app = create_app(Config(redis_url="redis://127.0.0.1:1"))
    for rule in app.url_map.iter_rules():
        needed = getattr(app.view_functions[rule.endpoint], "needs", Needs("open"))
        path = re.sub(r"<(?:[^:<>]+:)?([^<>]+)>", r"{\1}", rule.rule)
        [method] = ["SOCKET"] if rule.websocket else (rule.methods or set()) - {"HEAD", "OPTIONS"}
        words = _NEEDS.get(needed.scope, f"`{needed.scope}`")
        also = (
            (needed.hook and needed.scope != "hook", "or a hook key"),
            (needed.ticket, "or a ticket"),
            (needed.session, "or the session key of a sandbox"),
        )
        rows.append((path, f"| {method} | `{path}` | {' '.join([words, *(text for holds, text in also if holds)])} |"))
    return _with_table(ACCESS, ["| Method | Path | Needs |", "|---|---|---|", *(row for _, row in sorted(rows))])


def errors() -> str:
    """The page of errors; its table is made from the classes of refusals."""
    rows = []
    for one in refusals(Refused):
        if "kind" in vars(one):
            kind = one.kind
            status = f"{kind.status} with `Retry-After`" if kind.is_passing else str(kind.status)
            member = f", `{one.member or one.place}`" if kind is Kind.MEMBER else ""
            first_line = (one.__doc__ or "").splitlines()[0]
            rows.append((kind.status, one.__name__, f"| {status}{member} | `{one.__name__}` | {first_line} |"))
    return _with_table(ERRORS, ["| Status | Refusal | When |", "|---|---|---|", *(row for *_, row in sorted(rows))])


def refusals(of: type[Refused]) -> Iterator[type[Refused]]:
    """The classes of refusals of this project, from the general to the special."""
    for one in of.__subclasses__():
        if not one.__module__.startswith("tests"):
            yield one
        yield from refusals(one)


def compatibility() -> str:
    """The page about compatibility; its table is made from `docs/peers` and from every rule."""
    return _with_table(COMPATIBILITY, compared(create_app(Config(redis_url="redis://127.0.0.1:1"))))


def _with_table(page: Path, rows: list[str]) -> str:
    table = "\n".join(rows) + "\n"
    return _TABLE.sub(lambda _: table, page.read_text())


if __name__ == "__main__":
    OPENAPI.write_text(openapi())
    SETTINGS.write_text(settings())
    ACCESS.write_text(access())
    ERRORS.write_text(errors())
    COMPATIBILITY.write_text(compatibility())
    client.MODELS.write_text(client.models())
    client.SYNC.write_text(client.sync())
