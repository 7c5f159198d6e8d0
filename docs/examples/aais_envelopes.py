"""Prints the approvals of a conversation as AAIS 1.0 envelopes, one per line: the waiting actions and the decisions.

    python docs/examples/aais_envelopes.py CONVERSATION_ID [BASE_URL]

BASE_URL is that of the server; by default it is AGENT_SERVER_URL, else on this machine, at PORT (8000). The key, which
must have the scope admin because it reads the audit, comes from SESSION_API_KEY. `requested` and
`resolved` are for programs of your own: plain functions of the JSON that the server responds with.

AAIS has no place for:

* An edit. The request resolves as `stale`, and the new digest is in `extensions`.
* Our digest: `action_digest` binds `summary` too, so the two differ, and `extensions` has ours.
* `unapproved`, which is `invalid`, and a deletion, which is `cancelled` without a decision.
* A rule's `always`: its decision is one of a `policy`, `once` for each action.
* Actions that are decided together, which are single requests, and an unknown risk, which is `high`.
* Other characters in ids and tool names, which appear as SHA-256 with the original in `extensions`, and arguments that
  are no object, which appear as `{"value": …}`.
* The chain (`seq`, `previous`, `hash`), which is in `extensions`, and an actor's address, which is left out.
"""

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

import rfc8785

#: The member for what AAIS cannot express.
EXTENSION = "agent-server.example/approval"

HERE = os.environ.get("AGENT_SERVER_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or 8000}"

#: AAIS has no unknown risk; it counts as high.
_LEVELS = {"LOW": "low", "MEDIUM": "medium", "HIGH": "high"}

#: Kinds of actors that are people. A rule is a policy; the others make no decisions in the sense of AAIS.
_PEOPLE = ("key", "link", "message", "run", "person", "terminal")

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")


def requested(item: dict[str, Any], sequence: int) -> dict[str, Any]:
    """Return the `approval.requested` envelope of an item of `GET /api/v1/pending-actions`."""
    arguments, words = item["arguments"], [item["summary"], item["thought"], item["tool_name"]]
    summary = next((text for text in words if isinstance(text, str) and text), "An action without a summary")
    action = {
        "kind": "tool.call",
        "name": identity(item["tool_name"] or "unnamed"),
        "summary": summary[:1000],
        "arguments": arguments if isinstance(arguments, dict) else {"value": arguments},
    }
    own, seen = item["security_risk"], item.get("seen", {}).get("risk")
    # The server's rating can only raise the agent's. An unknown rating stays high.
    level = _LEVELS.get(item.get("risk", own)) if own in _LEVELS else None
    reasons = [f"The agent rates the risk {own}."] + ([f"The server sees a risk of {seen}."] if seen else [])
    request = {
        "id": identity(item["action_id"]),
        "created_at": item["since"],
        "status": "pending",
        "origin": {"harness": "agent-server", "session_id": item["conversation_id"]},
        "action": action,
        "action_digest": "sha256:" + sha256(rfc8785.dumps(action)).hexdigest(),
        "risk": {"level": level or "high", "reasons": reasons},
        "choices": [
            {"decision": "approve", "scope": "once", "label": "Approve"},
            {"decision": "deny", "scope": "once", "label": "Reject"},
        ],
        "extensions": {EXTENSION: {name: item[name] for name in ("action_id", "tool_name", "digest", "can")}},
    }
    if item["expires_at"]:
        request["expires_at"] = item["expires_at"]
    envelope = _envelope("approval.requested", f"req_{request['id']}", item["since"], sequence)
    return {**envelope, "stream": item["conversation_id"], "request": request}


def resolved(request: dict[str, Any], entry: dict[str, Any], sequence: int) -> list[dict[str, Any]]:
    """Return the envelopes of an audit entry's decision about a requested action: a decision, and its outcome.

    There is no decision after a deadline, a deletion, or an agent that acted unasked, because nobody decided. There is
    none for an edit, which approves another action than the requested one.
    """
    asked, actor = request["request"], entry["actor"]
    number = entry["action_ids"].index(asked["extensions"][EXTENSION]["action_id"])
    identifier = f"{entry['hash']}_{number}"
    decision, outcome, message = _outcome(entry["decision"], actor["kind"])
    about = {"request_id": asked["id"], "action_digest": asked["action_digest"]}
    audit = {name: entry[name] for name in ("decision", "reason", "seq", "hash")} | {"digest": entry["digests"][number]}
    if "edited" in entry:
        audit["edited"] = entry["edited"][number]
    common = {"stream": entry["conversation_id"], "extensions": {EXTENSION: audit}}
    resolution = {"id": f"res_{identifier}", **about, "resolved_at": entry["time"], "outcome": outcome}
    resolution["message"] = message
    envelopes = []
    if decision:
        who = {"id": identity(actor["name"] or actor["kind"])}
        who["type"] = "human" if actor["kind"] in _PEOPLE else "policy"
        who |= {"display_name": (actor["name"] or actor["kind"])[:200], "authenticated_by": actor["kind"]}
        made = {"id": f"dec_{identifier}", **about, "decided_at": entry["time"], "decision": decision}
        made |= {"scope": "once", "actor": who}
        envelope = _envelope("approval.decided", f"decided_{identifier}", entry["time"], sequence)
        envelopes.append({**envelope, **common, "decision": made})
        resolution["decision_id"] = made["id"]
        if decision != "cancel":
            resolution["effective_scope"] = "once"
    envelope = _envelope("approval.resolved", f"resolved_{identifier}", entry["time"], sequence + len(envelopes))
    return [*envelopes, {**envelope, **common, "resolution": resolution}]


def identity(text: str) -> str:
    """Return a text as an id of AAIS: itself, or its SHA-256 if it has other characters."""
    return text if _ID.fullmatch(text) else "sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _outcome(decision: str, kind: str) -> tuple[str, str, str]:
    """Return the decision of AAIS, "" if nobody decided; the outcome, and a sentence about it."""
    match decision, kind:
        case "approve", _:
            return "approve", "approved", "The action was approved as it was shown."
        case "reject", "expiry":
            return "", "expired", "Nobody decided before the deadline."
        case "reject", "message":
            return "cancel", "cancelled", "A new message of the user took the place of the action."
        case "reject", _:
            return "deny", "denied", "The action was rejected."
        case "edit", _:
            return "", "stale", "A new message from the user replaced the action."
        case "deleted", _:
            return "", "cancelled", "The conversation was deleted while the action waited."
        case "withdrawn", _:
            return "", "cancelled", "The agent in a terminal no longer asks."
        case _:
            return "", "invalid", "The agent went on without a decision of the server."


def _envelope(kind: str, identifier: str, at: str, sequence: int) -> dict[str, Any]:
    return {"aais": "1.0", "type": kind, "id": identity(identifier), "occurred_at": at, "sequence": sequence}


def main(conversation_id: str, base_url: str = "") -> None:
    """Print the decisions, and then the waiting actions."""
    base_url, sequence = base_url or HERE, 1
    for entry in _pages(base_url, f"/api/v1/conversation/{conversation_id}/audit?"):
        for item in _items(base_url, conversation_id, entry):
            request = requested(item, sequence)
            for envelope in (request, *resolved(request, entry, sequence + 1)):
                print(json.dumps(envelope))
                sequence += 1
    for item in _pages(base_url, f"/api/v1/pending-actions?conversation_id={conversation_id}&"):
        print(json.dumps(requested(item, sequence)))
        sequence += 1


def _items(base_url: str, conversation_id: str, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the actions of an entry as in the inbox, from the conversation's log."""
    for action_id, digest in zip(entry["action_ids"], entry["digests"], strict=True):
        event = _get(base_url, f"/api/conversations/{conversation_id}/events/{quote(action_id, safe='')}")
        action = event["action"]
        if isinstance(action, dict):
            action = {name: value for name, value in action.items() if name != "kind"}
        yield {
            "conversation_id": conversation_id,
            "action_id": action_id,
            "tool_name": event.get("tool_name"),
            "summary": event.get("summary"),
            "thought": None,
            "security_risk": event.get("security_risk", "UNKNOWN"),
            "arguments": action,
            "since": entry["time"],  # the log does not have the start of the wait
            "expires_at": None,
            "digest": digest,
            "can": [],
        }


def _pages(base_url: str, path: str) -> Iterator[dict[str, Any]]:
    following: str | None = ""
    while following is not None:
        page = _get(base_url, path + (f"page_id={quote(following)}" if following else ""))
        yield from page["items"]
        following = page["next_page_id"]


def _get(base_url: str, path: str) -> Any:
    request = urllib.request.Request(base_url + path)
    if key := os.environ.get("SESSION_API_KEY"):
        request.add_header("X-Session-API-Key", key)
    # A proxy from the environment does not reach a server on loopback.
    proxies: dict[str, str] | None = {} if urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1") else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    with opener.open(request, timeout=30) as response:
        return json.load(response)


if __name__ == "__main__":
    main(*sys.argv[1:3])
