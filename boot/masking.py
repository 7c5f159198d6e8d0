"""No key in gunicorn's logs: a socket or a stream may bear its key or its ticket in the query of its URL, and the path
of a one-time link has the token that opens it.

Only the standard library stands here, as everywhere in `boot/` but in `boot/worker.py`.
"""

import re
from logging import Filter, LogRecord
from urllib.parse import unquote_plus

#: parameters of a query that are as good as a key
_SECRETS = ("session_api_key", "ticket")

_PARAMETER = re.compile(r"""(?<![^?&\s"'])([^=&?\s"']+)=([^&\s"']*)""")


#: the token of a one-time link in its path
_TOKEN = re.compile(r"(?<=/approvals/)[^/?\s\"']+")


class KeysMasked(Filter):
    """Replaces keys and tickets in the URLs of what is logged, also where the name of the parameter is encoded."""

    def filter(self, record: LogRecord) -> bool:
        record.msg, record.args = masked(record.getMessage()), None
        return True


def masked(text: str) -> str:
    """A text whose URLs bear `***` instead of a key, a ticket or a token."""
    text = _TOKEN.sub("***", text)
    return _PARAMETER.sub(lambda found: f"{found[1]}=***" if unquote_plus(found[1]) in _SECRETS else found[0], text)
