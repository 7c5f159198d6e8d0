"""A small agent server: the bundled spec runs it in a sandbox, and it is a template for others."""

import argparse
import json
import os
import signal
import threading
from pathlib import Path

from werkzeug.serving import make_server

from agents.reference.api import create_app
from agents.reference.server import Server
from agents.reference.webhooks import Webhooks

#: variables of the environment that are kept from the commands of the agent
PRIVATE = ("OH_SESSION_API_KEYS_0", "OH_WEBHOOKS_0_HEADERS", "SESSION_API_KEY", "OH_SECRET_KEY", "PYTHONPATH")

VARIABLES = """\
variables of the environment, each of which may be unset:
  OH_SESSION_API_KEYS_0    the key that a request must bear
  OH_WEBHOOKS_0_BASE_URL   where events and changes are posted, in order, each until the webhook takes it
  OH_WEBHOOKS_0_HEADERS    the headers of those posts, as a JSON object
  OH_CONVERSATIONS_PATH    the folder that keeps the conversations, from which a restarted agent server goes on;
                           default: .agent-server/conversations below the working directory
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m agents.reference",
        description="An agent server with an agent that runs commands.",
        epilog=VARIABLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    key, headers, *_ = [os.environ.pop(name, "") for name in PRIVATE]
    folder = Path(os.environ.get("OH_CONVERSATIONS_PATH") or ".agent-server/conversations").absolute()
    webhooks = Webhooks(os.environ.get("OH_WEBHOOKS_0_BASE_URL", ""), json.loads(headers or "{}"))
    app = create_app(Server(key, folder, webhooks))
    http = make_server(arguments.host, arguments.port, app, threaded=True)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=http.shutdown).start())
    print(f"serving on {arguments.host}:{arguments.port}", flush=True)
    http.serve_forever()
    webhooks.flush(3.0)


if __name__ == "__main__":
    main()
