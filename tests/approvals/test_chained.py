"""ADR 0030: the entries of the audit are chained. docs/approvals.md names these tests."""

import json

import pytest

from admin.audit import ExportFault, verify
from core.approvals import ApprovalLinks
from tests.approvals import DecidedConversation, decision, digest_of
from tests.conftest import action, observation


def test_every_decision_extends_a_chain_that_verifies(house, conversation):
    held = DecidedConversation(house.one, conversation)
    acts = [action(f"step {number}") for number in range(5)]
    held.appends(acts[0])
    held.decides(decision(acts[0]))
    held.appends(observation(acts[0]), acts[1])
    held.decides(decision(acts[1], "reject", reason='No \u2028 "thanks" \\ ü 😀\x7f\x1f'), server=house.two)
    held.appends(acts[2])
    held.server.post(f"/api/conversations/{held.id}/run")
    held.appends(observation(acts[2]), acts[3])
    held.server.post(f"/api/conversations/{held.id}/events/respond_to_confirmation", json={"accept": False})
    held.appends(acts[4])
    assert held.server.delete(f"/api/conversations/{held.id}").status_code == 200

    assert [(one["decision"], one["actor"]["kind"]) for one in held.entries] == [
        ("approve", "key"),
        ("reject", "key"),
        ("approve", "run"),
        ("reject", "key"),
        ("deleted", "deletion"),
    ]
    assert [one["seq"] for one in held.entries] == [1, 2, 3, 4, 5]


def test_an_entry_that_is_changed_in_the_store_does_not_verify(house, held):
    held.decides(*(decision(one) for one in held.actions))
    redis, key = house.store.conversations._redis, f"conv:{{{held.id}}}:audit"
    redis.lset(key, 0, redis.lindex(key, 0).replace(b'"approve"', b'"approvE"'))

    with pytest.raises(ExportFault, match="its hash is"):
        verify(held.lines)


def test_the_audit_of_all_has_the_entries_of_one_moment_in_their_order(house, conversation):
    held = DecidedConversation(house.one, conversation)
    acts = [action(f"step {number}") for number in range(12)]
    held.appends(*acts)
    held.decides(*(decision(one, reason=str(number)) for number, one in enumerate(acts)))  # a reason each: 12 entries

    since = held.entries[0]["time"]
    export = house.two.get("/api/v1/audit", params={"format": "jsonl", "time__gte": since})
    lines = [line for line in export.content.splitlines(keepends=True) if conversation.encode() in line]

    assert lines == held.lines
    assert len(lines) == 12


def test_one_export_of_decisions_of_every_kind_verifies_and_none_with_a_changed_byte_does(house, conversation):
    told = {"id": f"told {conversation}", "timestamp": "2026-01-01T00:00:00", "source": "environment"}
    told |= {"key": "capabilities", "value": ["edit"], "kind": "ConversationStateUpdateEvent"}
    held = DecidedConversation(house.one, conversation)
    held.appends(told)
    rule = {"decision": "approve", "tool_name": f"tool of {conversation}"}
    assert house.one.post("/api/v1/approval-rules", json=rule).status_code == 201
    text = {"content": [{"type": "text", "text": "stop"}]}

    def waits(**members):
        found = action("make", **members)
        held.appends(found)
        return found

    def done(*acts):
        held.appends(*map(observation, acts))

    edited = waits()
    held.decides(decision(edited, "edit", arguments={"command": "true"}))
    done(edited, waits(tool_name=rule["tool_name"]))
    linked = waits()
    links = ApprovalLinks(("a key for tests only",), public_url=str(house.two.base_url).rstrip("/"), seconds=600)
    page = links.make(held.id, linked["id"], digest_of(linked), "a mailbox")
    assert house.two.post(page, data={"decision": "approve"}).status_code == 200
    done(linked)
    held.server.patch(f"/api/conversations/{held.id}", json={"confirmation_seconds": 1})
    house.lapse(held, waits())
    held.server.post(f"/api/conversations/{held.id}/events/respond_to_confirmation", json={"accept": True})
    held.server.patch(f"/api/conversations/{held.id}", json={"confirmation_seconds": None})
    waits()
    held.server.post(f"/api/conversations/{held.id}/events", json=text)
    run = waits()
    held.server.post(f"/api/conversations/{held.id}/run")
    done(run)
    done(waits())
    waits()
    held.server.delete(f"/api/conversations/{held.id}")

    export = house.two.get("/api/v1/audit", params={"format": "jsonl", "conversation_id": held.id}).content
    lines = export.splitlines(keepends=True)
    verify(lines)
    kinds = [one["actor"]["kind"] for one in map(json.loads, lines)]
    assert kinds == ["key", "rule", "link", "expiry", "message", "run", "agent", "deletion"]
    for place in range(len(export)):
        changed = export[:place] + bytes([export[place] ^ 1]) + export[place + 1 :]
        with pytest.raises(ExportFault):
            verify(changed.splitlines(keepends=True))
