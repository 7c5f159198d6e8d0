"""Writes again what is made from the code:  python -m docs.make  (or `make docs`)

The OpenAPI document in `docs/openapi.json`, and the table of settings in the README. Tests compare both.
"""

import json
import re
from dataclasses import fields
from pathlib import Path

from app import create_app
from config import Config

PROJECT = Path(__file__).parent.parent
OPENAPI, README = PROJECT / "docs" / "openapi.json", PROJECT / "README.md"

_TABLE = re.compile(r"(?<=<!-- settings -->\n).*?(?=<!-- /settings -->)", re.DOTALL)


def openapi() -> str:
    """The OpenAPI document that the app serves, as it is kept."""
    app = create_app(Config(redis_url="redis://127.0.0.1:1"))
    document = app.test_client().get("/openapi.json").get_json()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def settings() -> str:
    """The table of settings, made from `config.Config`."""
    rows = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for setting in fields(Config):
        default = f"`{setting.default}`" if setting.default != "" else "unset"
        rows.append(f"| `{setting.name.upper()}` | {default} | {setting.metadata['help']} |")
    return "\n".join(rows) + "\n"


def readme() -> str:
    """The README with its table as it should be."""
    return _TABLE.sub(lambda _: settings(), README.read_text())


if __name__ == "__main__":
    OPENAPI.write_text(openapi())
    README.write_text(readme())
