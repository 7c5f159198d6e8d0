"""The program of a small agent server. The bundled spec runs it in a sandbox, and it is a template for other agents."""

import argparse
import ctypes
import json
import logging
import os
import signal
import threading
from pathlib import Path

from werkzeug.serving import make_server

from core.prices import Prices, read_prices
from reference_agent.acp.agents import chosen
from reference_agent.api import ReferenceServer, create_app
from reference_agent.log import AgentWebhooks
from reference_agent.mind import ModelEndpoint
from reference_agent.services import services
from reference_agent.tunnels import ports, terminals

C = ctypes.CDLL(None)
C.getenv.restype = ctypes.c_void_p

#: Environment variables that are hidden from the agent's commands.
PRIVATE = (
    *("OH_SESSION_API_KEYS_0", "OH_WEBHOOKS_0_HEADERS", "OH_SECRET_KEY", "LLM_MODEL", "LLM_BASE_URL", "LLM_API_KEY"),
    *("SESSION_API_KEY", "PYTHONPATH"),
)

#: Variables whose values are also overwritten in memory. Otherwise /proc/PID/environ would show them.
COVERED = ("LLM_API_KEY", "OH_SECRET_KEY")

VARIABLES = """\
environment variables, all optional:
  OH_SESSION_API_KEYS_0    the key that every request must have
  OH_WEBHOOKS_0_BASE_URL   the URL that events and changes are posted to, in order, with retries
  OH_WEBHOOKS_0_HEADERS    the headers of these posts, as a JSON object
  OH_CONVERSATIONS_PATH    the folder of the conversations; default: .agent-server/conversations
  OH_SECRET_KEY            seals the model keys of start requests, so that they survive a restart
  LLM_MODEL                the model of the agent; unset: the agent only runs lines `run: CMD`
  LLM_API_KEY              the model's key
  LLM_BASE_URL             the model's OpenAI-compatible endpoint; default: OpenAI's
  MODEL_PRICES             prices of models, which override core/prices.py: MODEL=INPUT/OUTPUT or
                           MODEL=INPUT/OUTPUT/CACHED, with commas, in US dollars per million tokens
  ACP_AGENT                the agent that replaces the bundled one: a name of reference_agent/acp/agents.toml
  ACP_COMMAND              the command line of a program that speaks ACP over stdio; overrides agents.toml
  ACP_MODE                 the mode in which the program asks for permission; overrides agents.toml
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m reference_agent",
        description="An agent server with an agent that runs commands.",
        epilog=VARIABLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    key, headers, secret, model, url, model_key, *_ = map(taken, PRIVATE)
    try:
        prices = Prices(read_prices(os.environ.get("MODEL_PRICES", "")))
    except ValueError as error:
        parser.error(f"MODEL_PRICES {error}")
    try:
        acp = chosen(os.environ)
    except ValueError as error:
        parser.error(str(error))
    if not acp and Path(os.environ.get("HOME", "/")).resolve() == Path.cwd():
        home = Path.cwd() / ".agent-server/home"  # apart from the repository that the working folder is
        home.mkdir(parents=True, exist_ok=True)
        (home.parent / ".gitignore").write_text("*\n")
        os.environ["HOME"] = str(home)
    llm = ModelEndpoint(model, url, model_key, prices=prices)
    folder = Path(os.environ.get("OH_CONVERSATIONS_PATH") or ".agent-server/conversations").absolute()
    webhooks = AgentWebhooks(os.environ.get("OH_WEBHOOKS_0_BASE_URL", ""), json.loads(headers or "{}"))
    server = ReferenceServer(key, folder, webhooks, llm, secret, acp)
    app = create_app(server)
    for blueprint in (services, terminals):
        app.register_blueprint(blueprint, url_prefix="/api")
        name = f"{blueprint.name}_of_conversation"
        app.register_blueprint(blueprint, url_prefix="/api/conversations/<identity>", name=name)
    app.register_blueprint(ports, url_prefix="/api")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # log the agent's work, not every request
    http = make_server(arguments.host, arguments.port, app, threaded=True)
    for one in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(one) is signal.SIG_IGN:  # set by a shell for `&`; terminals would inherit it
            signal.signal(one, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=http.shutdown).start())
    print(f"serving on {arguments.host}:{arguments.port}", flush=True)
    http.serve_forever()
    server.end()
    webhooks.flush(3.0)


def taken(name: str) -> str:
    """Remove a variable from the environment, and return its value."""
    value = os.environ.get(name, "")
    if name in COVERED and (address := C.getenv(name.encode())):
        ctypes.memset(address, ord("*"), len(os.fsencode(value)))
    os.environ.pop(name, None)
    return value


if __name__ == "__main__":
    main()
