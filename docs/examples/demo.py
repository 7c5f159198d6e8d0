"""Loads a recorded conversation into a running server, counts its events, and rejects its pending action.

    python docs/examples/demo.py [BASE_URL]

BASE_URL is the address of the server. Its default is AGENT_SERVER_URL, or this machine at PORT (8000). The key is
SESSION_API_KEY, or the line of the file `key` in DATA_DIR. A server on loopback needs no key. The program only uses
the standard library, so that it shows the requests themselves.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

HERE = os.environ.get("AGENT_SERVER_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"
BASE_URL = sys.argv[1] if len(sys.argv) > 1 else HERE
KEY_FILE = Path(os.environ.get("DATA_DIR") or "data", "key")
KEY = os.environ.get("SESSION_API_KEY") or (KEY_FILE.read_text().strip() if KEY_FILE.exists() else "")
# Use no proxy for a server on loopback: a proxy of the environment could not reach it.
PROXIES: dict[str, str] | None = {} if urlsplit(BASE_URL).hostname in ("localhost", "127.0.0.1", "::1") else None
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler(PROXIES))
RECORDING = Path(__file__).parent / "pending.events.jsonl"


def call(method: str, path: str, body: Any = None) -> Any:
    """Send one request with a JSON body, and return the JSON of the response."""
    request = urllib.request.Request(BASE_URL + path, method=method)
    if KEY:
        request.add_header("X-Session-API-Key", KEY)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with OPENER.open(request, timeout=30) as response:
        return json.load(response)


def print_counts(events: str, recording: list[dict[str, Any]]) -> None:
    """Print a table of counts, a row per kind and a column per source. One request per figure."""
    kinds = sorted({event["kind"] for event in recording})
    sources = sorted({event["source"] for event in recording})
    print(f"{'events by kind and source':32}" + "".join(f"{source:>13}" for source in [*sources, "all"]))
    for kind in [*kinds, None]:
        figures = []
        for source in [*sources, None]:
            filters = {name: value for name, value in (("kind", kind), ("source", source)) if value}
            figures.append(call("GET", f"{events}/count?{urlencode(filters)}"))
        print(f"{kind or 'all':32}" + "".join(f"{figure:>13}" for figure in figures))


def main() -> None:
    conversation = f"/api/conversations/{uuid4()}"
    events = f"{conversation}/events"
    recording = [json.loads(line) for line in RECORDING.read_text().splitlines()]

    call("POST", f"/api/v1/webhooks/events/{conversation.rpartition('/')[2]}", recording)
    print(f"Loaded {len(recording)} recorded events into {BASE_URL}{conversation}\n")
    print_counts(events, recording)

    for action in call("GET", f"{conversation}/pending_actions"):
        arguments = json.dumps(action["arguments"])
        print(f"\nWaiting for a decision: {action['tool_name']} {arguments} (risk {action['risk']})")
    decision = {"accept": False, "reason": "Not on this machine."}
    for attempt in ("Rejecting it", "Rejecting it again"):
        result = call("POST", f"{events}/respond_to_confirmation", decision)
        print(f"{attempt}: success is {str(result['success']).lower()}")

    print("\nThe events that followed:")
    for event in call("GET", f"{events}/search")["items"][len(recording) :]:
        print(f"  {event['timestamp']}  {event['kind']:29}", event.get("value") or event.get("rejection_reason"))


if __name__ == "__main__":
    try:
        main()
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            sys.exit(f"{BASE_URL} refuses the key: put a valid one into SESSION_API_KEY.")
        sys.exit(f"{error.url} answered {error.code}: {error.read().decode()}")
    except urllib.error.URLError as error:
        sys.exit(f"No server answers at {BASE_URL} ({error.reason}): start one with `make run`.")
