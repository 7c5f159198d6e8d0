"""gunicorn's logger for LOG_FORMAT=json: its own lines and those of its access log are JSON, on the standard error."""

import sys
from datetime import timedelta
from logging import StreamHandler
from typing import Any

from gunicorn.glogging import Logger

from telemetry.logs import ABOUT, JsonLines


class JsonLogger(Logger):
    """Writes no part of a path, a query or a header that a client chose: a line names the route."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in (*self.error_log.handlers, *self.access_log.handlers):
            handler.setFormatter(JsonLines())
            if isinstance(handler, StreamHandler) and handler.stream is sys.stdout:
                handler.setStream(sys.stderr)  # the lines about who did what have the standard output for themselves

    def access(self, resp: Any, req: Any, environ: dict[str, Any], request_time: timedelta) -> None:  # noqa: ARG002
        if not self.access_log_enabled:
            return
        fields = {
            **environ.get(ABOUT, {}),
            "status": int(str(resp.status).split()[0]),
            "duration_ms": round(request_time.total_seconds() * 1000, 1),
        }
        words = "{method} {route} {status}" if fields.get("route") else "no route: {status}"
        self.access_log.info(words.format(**fields), extra={"fields": fields})
