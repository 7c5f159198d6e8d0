"""Writes the pages that are made from the code:  python -m docs.make  (or `make docs`)

The OpenAPI document in `docs/openapi.json`, and the table in `docs/settings.md`. Tests compare both with the code.
"""

import json
import re
from dataclasses import fields
from pathlib import Path

from app import create_app
from config import Config

PROJECT = Path(__file__).parent.parent
OPENAPI, SETTINGS = PROJECT / "docs" / "openapi.json", PROJECT / "docs" / "settings.md"

_TABLE = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- /settings -->)", re.DOTALL)


def openapi() -> str:
    """The OpenAPI document that the app serves, as it is kept."""
    app = create_app(Config(redis_url="redis://127.0.0.1:1"))
    document = app.test_client().get("/openapi.json").get_json()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def settings() -> str:
    """The page of settings; its table is made from `config.Config`."""
    rows = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for setting in fields(Config):
        default = "unset" if setting.default in ("", ()) else f"`{setting.default}`"
        names = setting.metadata["names"] or f"`{setting.name.upper()}`"
        rows.append(f"| {names} | {default} | {setting.metadata['help']} |")
    table = "\n".join(rows) + "\n"
    return _TABLE.sub(lambda _: table, SETTINGS.read_text())


if __name__ == "__main__":
    OPENAPI.write_text(openapi())
    SETTINGS.write_text(settings())
