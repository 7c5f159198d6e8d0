"""Starts that wait because the server already runs its maximum number of sandboxes."""

from datetime import UTC, datetime

from agent_server_client.models import AppConversationStartTask

_WAITS = "WAITING_FOR_SANDBOX"


def waits_for_place(task: AppConversationStartTask) -> bool:
    """Return whether a start waits for a place. Only then does this status have a detail."""
    return task["status"] == _WAITS and bool(task["detail"])


def no_place(detail: str) -> AppConversationStartTask:
    """Return a start task for a request that the server has refused for now. detail: the server's reason."""
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
