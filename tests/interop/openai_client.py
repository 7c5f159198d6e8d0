"""The published `openai` package as a process of its own, which holds a conversation with an agent of this server.

    .venv-openhands/bin/python tests/interop/openai_client.py URL KEY MODEL

Prints one JSON object per line: `step` says what was done, the other members its result. Whoever reads decides what
waits for approval.
"""

import json
import sys
from typing import Any
from uuid import uuid4

import openai

URL, KEY, MODEL = sys.argv[1:]
CONVERSATION = "X-OpenHands-ServerConversation-ID"


def tell(step: str, **found: Any) -> None:
    print(json.dumps({"step": step, **found}), flush=True)


def say(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def main() -> None:
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, timeout=180)
    tell("models", ids=[one.id for one in client.models.list()], one=client.models.retrieve(MODEL).id)

    named = {CONVERSATION: str(uuid4())}
    tell("begins", conversation=named[CONVERSATION])
    chunks = client.chat.completions.create(
        model=MODEL, messages=say("run: echo $((40 + 2))"), stream=True, extra_headers=named
    )
    answer = ""
    for chunk in chunks:
        answer += chunk.choices[0].delta.content or ""
        if "Waits for approval" in answer and "Approved" not in answer:
            tell("waits", answer=answer)
    tell("streamed", answer=answer)

    again = client.chat.completions.create(model=MODEL, messages=say("hello"), extra_headers=named)
    tell("chat", answer=again.choices[0].message.content, reason=again.choices[0].finish_reason)

    first = client.responses.create(model=MODEL, input="hello", extra_headers=named)
    tell("response", answer=first.output_text, status=first.status)
    events = client.responses.create(model=MODEL, input="hello again", previous_response_id=first.id, stream=True)
    *_, last = events
    tell("response streamed", kind=last.type, answer=last.response.output_text)

    for refused in (
        lambda: client.chat.completions.create(model="gpt-5", messages=say("x")),
        lambda: client.chat.completions.create(model=MODEL, messages=[]),
        lambda: client.with_options(api_key="wrong").models.list(),
    ):
        try:
            refused()
        except openai.APIStatusError as error:
            tell("refused", kind=type(error).__name__, code=error.code)


main()
