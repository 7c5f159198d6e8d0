"""Values that schemas refuse, each by the place of its fault. The tests of a route show that it uses its schema.

Each test tries all wrong values of a schema, and lists those that were accepted or were refused at another place.
"""

from uuid import uuid4

import pytest

from core.wire import MOST_CALL_BYTES
from schemas.app_conversations import (
    AppConversationFilter,
    AppConversationSearch,
    AppConversationStartRequest,
    StartTaskFilter,
    StartTaskSearch,
    UpdateAppConversationRequest,
)
from schemas.approvals import (
    ChangeId,
    ConfirmationResponse,
    InboxStreamQuery,
    PendingActionSearch,
    SetConfirmationPolicy,
)
from schemas.audit import AuditSearch, ConversationAuditSearch
from schemas.conversations import ChangeNumber, ListStreamQuery, StartConversationRequest, UpdateConversationRequest
from schemas.events import PendingMessage, Stream
from schemas.fields import BaseSchema, EventPlace
from schemas.sandboxes import SandboxSearch
from tests.schemas import faults_of

YEAR = 31_536_000
HELLO = {"content": [{"type": "text", "text": "hello"}]}


def misplaced(schema: type[BaseSchema], *cases: tuple[object, list]) -> list[tuple]:
    """The values whose first fault is not at the place given, each with the places where it is refused, if any."""
    found = [(value, [fault["loc"][1:] for fault in faults_of(schema().load, value)]) for value, _ in cases]
    return [one for one, (_, place) in zip(found, cases, strict=True) if one[1][:1] != [place]]


def misplaced_in(schema: type[BaseSchema], *queries: dict[str, str]) -> list[tuple]:
    """The queries not refused by the name of their first parameter alone, each with the places of its faults."""
    found = [(query, [fault["loc"][1:] for fault in faults_of(schema().load, query)]) for query in queries]
    return [one for one in found if one[1] != [[next(iter(one[0]))]]]


def test_a_wrong_member_of_a_conversation_is_named():
    risky = {"kind": "ConfirmRisky"}
    policy = "confirmation_policy"
    assert (
        misplaced(
            StartConversationRequest,
            *(({"conversation_id": wrong}, ["conversation_id"]) for wrong in ("", "x", 5)),
            *(({"title": wrong}, ["title"]) for wrong in ("", "x" * 201, 5, "lone \ud800")),
            *(({"tags": wrong}, ["tags"]) for wrong in (None, [], {"": "x"}, {"ä": "x"}, {"Upper": "x"})),
            *(({"tags": {"a": wrong}}, ["tags", "a", "value"]) for wrong in (1, "x" * 257)),
            ({policy: None}, [policy]),
            ({policy: {**risky, "threshold": "UNKNOWN"}}, [policy, "threshold"]),
            ({policy: {**risky, "confirm_unknown": 1}}, [policy, "confirm_unknown"]),
            *(({policy: wrong}, [policy, "kind"]) for wrong in ({"kind": "Sometimes"}, {})),
            ({"agent": {"kind": "ACPAgent"}, policy: {"kind": "AlwaysConfirm"}}, [policy]),
            ({"agent_settings": {"agent_kind": "acp"}, policy: {"kind": "ConfirmRisky"}}, [policy]),
            ({"initial_message": {"role": "system"}}, ["initial_message", "role"]),
            ({"initial_message": {"content": "hi"}}, ["initial_message", "content"]),
            *(({"max_iterations": wrong}, ["max_iterations"]) for wrong in (-1, 0, 1.5, True, "5")),
            ({"stuck_detection": 1}, ["stuck_detection"]),
            ({"agent": "x"}, ["agent"]),
            ([], []),
        )
        == []
    )


@pytest.mark.parametrize(
    "schema",
    [
        StartConversationRequest,
        UpdateConversationRequest,
        AppConversationStartRequest,
        UpdateAppConversationRequest,
    ],
)
def test_confirmation_seconds_are_a_whole_number_up_to_a_year(schema):
    name = "confirmation_seconds"
    wrong = (-1, YEAR + 1, 1.5, "60", True, [], 10**30)

    assert misplaced(schema, *(({name: one}, [name]) for one in wrong)) == []
    assert [schema().load({name: right})[name] for right in (0, 1, YEAR, None)] == [0, 1, YEAR, None]


def test_an_unknown_policy_is_refused():
    risky = {"kind": "ConfirmRisky"}
    assert (
        misplaced(
            SetConfirmationPolicy,
            *(({"policy": wrong}, ["policy", "kind"]) for wrong in ({}, {"kind": "Sometimes"}, {"kind": []})),
            ({"policy": {"kind": None}}, ["policy", "kind"]),
            *(({"policy": wrong}, ["policy"]) for wrong in ("NeverConfirm", None, [])),
            *(
                ({"policy": {**risky, "threshold": wrong}}, ["policy", "threshold"])
                for wrong in ("UNKNOWN", "high", "", None, 3)
            ),
            *(({"policy": {**risky, "confirm_unknown": wrong}}, ["policy", "confirm_unknown"]) for wrong in ("yes", 1)),
            ({"policy": {**risky, "confirm_unknown": None}}, ["policy", "confirm_unknown"]),
        )
        == []
    )


def test_a_decision_is_a_boolean_and_its_reason_is_text():
    assert (
        misplaced(
            ConfirmationResponse,
            ({}, ["accept"]),
            *(({"accept": wrong}, ["accept"]) for wrong in (None, "yes", "true", "", 1, 0, 1.0, [], {})),
            *((wrong, []) for wrong in ([], "x", 1, None)),
            *(({"accept": True, "reason": wrong}, ["reason"]) for wrong in (None, 1, "\ud800")),
        )
        == []
    )


def test_a_search_of_the_audit_that_cannot_be_is_refused_by_the_name_of_its_parameter():
    one = uuid4()
    assert (
        misplaced_in(
            AuditSearch,
            *({"limit": wrong} for wrong in ("0", "101")),
            {"format": "csv"},
            {"limit": "3", "format": "jsonl"},
            *({"page_id": wrong} for wrong in ("x", f"desc.5-{one}-1", f"asc.5-{one}-0")),
            {"page_id": f"asc.5-{one}-1", "conversation_id": str(uuid4())},
            {"time__gte": "soon"},
            {"time__lt": "soon"},
            *({"actor": wrong} for wrong in ("", "x" * 257)),
            {"actor_kind": "model"},
            {"decision": "allow"},
            {"conversation_id": "x"},
            {"sort_order": "SEQ"},
        )
        == []
    )
    wrong_pages = ({"page_id": "x"}, {"page_id": "-1"}, {"limit": "a"}, {"format": "JSONL"})
    assert misplaced_in(ConversationAuditSearch, *wrong_pages) == []


#: wrong values of the filters that the inbox and its stream share
_FILTERS = (
    {"conversation_id": "x"},
    *({"security_risk": wrong} for wrong in ("low", "SOME")),
    *({"tag": wrong} for wrong in ("", "=x")),
    {"tool_name": "x" * (MOST_CALL_BYTES + 1)},
    {"tag": "x" * 770},
)


def test_a_search_of_the_inbox_that_cannot_be_is_refused_by_the_name_of_its_parameter():
    assert (
        misplaced_in(
            PendingActionSearch,
            *_FILTERS,
            {"since__gte": "yesterday"},
            {"since__lt": "1"},
            {"text": "x" * 257},
            {"sort_order": "newest"},
            *({"limit": wrong} for wrong in ("0", "101")),
            *({"page_id": wrong} for wrong in ("x", f"since.asc.1-{'0' * 32}-1-ff", f"since.desc.1-{'0' * 32}-1-61")),
        )
        == []
    )


def test_a_place_or_filter_of_a_stream_that_cannot_be_is_refused_by_its_name():
    assert misplaced_in(Stream, {"after_seq": "-1"}, {"after_seq": "x"}, {"timestamp__gte": "soon"}) == []
    assert misplaced_in(InboxStreamQuery, *_FILTERS, {"last_event_id": "1"}, {"last_event_id": "x"}) == []
    assert misplaced_in(ListStreamQuery, *({"last_event_id": wrong} for wrong in ("x", "1-1", "9" * 17))) == []


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [(EventPlace, ("x", "-1", "1-1")), (ChangeId, ("x", "1")), (ChangeNumber, ("x", "1-1", "9" * 17))],
)
def test_the_place_that_a_browser_sends_again_is_of_its_stream(kind, wrong):
    assert [one for one in wrong if not faults_of(kind().deserialize, one)] == []


def test_a_search_of_the_apps_lists_that_cannot_be_is_refused_by_the_name_of_its_parameter():
    limits = ({"limit": "0"}, {"limit": "101"}, {"limit": "x"}, {"page_id": "x"})
    times = ("created_at__gte", "created_at__lt", "updated_at__gte", "updated_at__lt")

    assert misplaced_in(SandboxSearch, *limits, {"status__eq": "SLEEPING"}) == []
    assert misplaced_in(AppConversationFilter, *({name: "yesterday"} for name in times)) == []
    assert misplaced_in(AppConversationSearch, *limits, {"sort_order": "SIZE"}) == []
    of_starts = ({"created_at__gte": "x"}, {"conversation_id__eq": "x"})
    assert misplaced_in(StartTaskFilter, *of_starts) == []
    assert misplaced_in(StartTaskSearch, *of_starts, *limits, {"sort_order": "TITLE"}) == []


def test_a_wrong_member_of_an_app_conversation_is_named():
    assert (
        misplaced(
            AppConversationStartRequest,
            *(({"sandbox_id": wrong}, ["sandbox_id"]) for wrong in (7, "../x")),
            ({"initial_message": {"content": "text"}}, ["initial_message", "content"]),
            *(
                ({name: wrong}, [name])
                for name, wrong in (
                    ("conversation_id", "x"),
                    ("title", ""),
                    ("git_provider", "svn"),
                    ("trigger", "nobody"),
                    ("agent_type", "other"),
                    ("parent_conversation_id", "x"),
                    ("public", "yes"),
                )
            ),
        )
        == []
    )


def test_a_pending_message_has_content_that_is_a_users():
    assert (
        misplaced(
            PendingMessage,
            *((wrong, ["content"]) for wrong in ({}, {"content": []}, {"content": "x"})),
            ({**HELLO, "role": "system"}, ["role"]),
            ({"content": [{"type": "text", "text": "x" * (1 << 20)}]}, ["content"]),
        )
        == []
    )
