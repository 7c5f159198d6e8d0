"""Starts that wait for a place: the server runs as many sandboxes as it may."""

from datetime import UTC, datetime

from agent_server_client.models import AppConversationStartTask

_WAITS = "WAITING_FOR_SANDBOX"


def waits_for_place(task: AppConversationStartTask) -> bool:
    """Whether a start waits for a place; its detail says so."""
    return task["status"] == _WAITS and bool(task["detail"])


def no_place(detail: str) -> AppConversationStartTask:
    """The state of a start that the server does not take yet."""
    now = datetime.now(UTC).isoformat()
    return AppConversationStartTask(
        id="",
        status="WAITING_FOR_SANDBOX",
        detail=detail,
        app_conversation_id=None,
        sandbox_id=None,
        agent_server_url=None,
        failure_status=None,
        request={},
        created_at=now,
        updated_at=now,
    )
