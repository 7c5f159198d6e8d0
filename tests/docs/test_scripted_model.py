"""The scripted model of the examples: the same script behind every wire of a provider."""

import json

import pytest

from docs.examples.scripted_model import anthropic, chat, gemini, responses

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}, "why": {"type": "string"}}}
SCHEMA["required"] = ["command", "why"]


def ask_anthropic(*said):
    messages = [{"role": "user", "content": [{"type": "text", "text": one} for one in said]}]
    reply, events = anthropic({"messages": messages, "tools": [{"name": "Bash", "input_schema": SCHEMA}]})
    assert events[-1] == {"type": "message_stop"}
    [part] = reply["content"]
    return part.get("text") or (part["name"], part["input"])


def ask_chat(*said):
    messages = [{"role": "user", "content": one} for one in said]
    reply, _ = chat({"messages": messages, "tools": [{"function": {"name": "Bash", "parameters": SCHEMA}}]})
    message = reply["choices"][0]["message"]
    if message["content"]:
        return message["content"]
    called = message["tool_calls"][0]["function"]
    return called["name"], json.loads(called["arguments"])


def ask_responses(*said):
    items = [{"role": "user", "content": [{"type": "input_text", "text": one}]} for one in said]
    reply, events = responses({"input": items, "tools": [{"name": "Bash", "parameters": SCHEMA}]})
    assert events[-1]["response"] == reply
    [item] = reply["output"]
    return item["content"][0]["text"] if "content" in item else (item["name"], json.loads(item["arguments"]))


def ask_gemini(*said):
    declared = {"functionDeclarations": [{"name": "Bash", "parameters": SCHEMA}]}
    contents = [{"role": "user", "parts": [{"text": one} for one in said]}]
    reply, _ = gemini({"contents": contents, "tools": [declared]})
    [part] = reply["candidates"][0]["content"]["parts"]
    return part.get("text") or (part["functionCall"]["name"], part["functionCall"]["args"])


@pytest.mark.parametrize("ask", [ask_anthropic, ask_chat, ask_responses, ask_gemini])
def test_a_line_is_a_call_of_the_shell_tool_and_any_other_text_is_repeated(ask):
    assert ask("Do this.\nrun: touch a b") == ("Bash", {"command": "touch a b", "why": "scripted"})
    assert ask("hello") == "ok: hello"


def test_the_result_of_a_tool_is_told_and_not_called_again():
    said, called = {"role": "user", "content": "run: ls"}, {"role": "assistant", "content": None, "tool_calls": []}
    result = {"role": "tool", "content": "a.txt"}
    tools = [{"function": {"name": "bash", "parameters": {}}}]

    reply, _ = chat({"messages": [said, called, result], "tools": tools})

    assert reply["choices"][0]["message"]["content"] == "done: a.txt"


def test_the_images_of_a_message_are_counted():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, image]}]

    reply, _ = anthropic({"messages": messages, "tools": [{"name": "Bash", "input_schema": {}}]})

    assert reply["content"][0]["text"] == "ok: look (1 images)"
