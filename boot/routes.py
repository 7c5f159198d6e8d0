"""How a route is written in metrics and logs: as the OpenAPI document writes it.

Only the standard library stands here, as everywhere in `boot/` but in `boot/worker.py` and `boot/json_logger.py`.
"""

import re
from functools import cache

_PARAMETER = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")


@cache  # an app has about a hundred rules
def template(rule: str) -> str:
    """`/sandboxes/<sandbox_id>` → `/sandboxes/{sandbox_id}`."""
    return _PARAMETER.sub(r"{\1}", rule)
