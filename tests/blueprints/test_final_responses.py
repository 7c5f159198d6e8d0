"""The final response of an agent: the message that it finished with, or its last message."""

from tests.blueprints import API, NOT_FOUND, at, said
from tests.conftest import action, event, message


def finished(text, **members):
    return action(**{"action": {"kind": "FinishAction", "message": text}, "tool_name": "finish", **members})


PARTS = {"role": "assistant", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]}
IMAGE = {"role": "assistant", "content": [{"type": "image", "image_urls": ["data:"]}]}


#: what an agent has posted, and its final response
CASES = [
    ([], ""),
    ([message("user's words"), action(), event()], ""),
    ([said("first", **at(1)), said("last", **at(2)), message("thanks", **at(3))], "last"),
    ([finished("first", **at(1)), finished("last", **at(2)), action(**at(3))], "last"),
    ([finished("the action's", **at(1)), said("the message's", **at(2))], "the message's"),
    ([said("the message's", **at(1)), finished("the action's", **at(2))], "the action's"),
    ([said("the message's", **at(1)), finished("the action's", **at(1))], "the action's"),
    ([finished("the action's", **at(1)), said("the message's", **at(1))], "the message's"),
    ([said("before", **at(1)), finished("", **at(2))], ""),
    ([finished("", **at(1), action={"kind": "FinishAction"})], ""),
    ([event("MessageEvent", "agent", llm_message=PARTS)], "OneTwo"),
    ([said("before", **at(1)), event("MessageEvent", "agent", llm_message=IMAGE, **at(2))], ""),
    ([event("MessageEvent", "agent")], ""),
    ([said("ÄÖ 😀 \n\t\"'")], "ÄÖ 😀 \n\t\"'"),
]


def test_the_final_response_is_the_latest_finish_or_message(client):
    wrong = []
    for events, response in CASES:
        url = f"{API}/{client.post(API, json={}).get_json()['id']}"
        if events:
            client.post(f"/api/v1/webhooks/events/{url.rpartition('/')[2]}", json=events)
        reply = client.get(f"{url}/agent_final_response")
        if (reply.status_code, reply.get_json()) != (200, {"response": response}):
            wrong.append((events, reply.get_json(), response))

    assert wrong == []


def test_the_final_response_is_found_before_many_later_actions(client, url, post_events):
    post_events(finished("long ago", **at(1)), *(action(**at(2)) for _ in range(250)))

    assert client.get(f"{url}/agent_final_response").get_json() == {"response": "long ago"}


def test_an_unknown_conversation_has_no_final_response(client, conversation):
    reply = client.get(f"{API}/{conversation}/agent_final_response")

    assert (reply.status_code, reply.get_json()) == NOT_FOUND
