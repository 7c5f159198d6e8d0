"""What is generated of the client is that of its sources, and what is copied is equal."""

import re
import sys
import tomllib

import agent_server_client
import pytest
from agent_server_client import visible as of_client
from agent_server_client.visible import visible

from core import visible as of_server
from docs import make
from tests.servers import PROJECT


@pytest.mark.process("starts a program")
def test_the_types_are_those_of_the_openapi_document():
    assert make.MODELS.read_text() == make.models(), "run `make docs`"


@pytest.mark.process("starts a program")
def test_the_blocking_client_is_made_from_the_async_one():
    for module, blocking in make.SYNCS.items():
        assert blocking.read_text() == make.sync(module), "run `make docs`"


def test_the_page_names_every_attribute_of_the_objects_and_each_has_words():
    assert make.CLIENT.read_text() == make.client(), "run `make docs`"
    for name in make.OBJECTS:
        assert [one for one, (_, words) in make.members(getattr(agent_server_client, name)).items() if not words] == []


def test_a_terminal_escapes_what_the_pages_of_the_server_escape():
    for name in ("_UNSEEN", "_BLANK", "_IGNORABLE"):
        assert getattr(of_client, name) == getattr(of_server, name)
    for point in range(0, sys.maxunicode + 1, 101):
        assert visible(chr(point)) == of_server.visible(chr(point))


def test_prose_keeps_what_the_console_keeps():
    [kept] = re.findall(r"IN_PROSE = String.raw`(.*?)`", (PROJECT / "console/lib/visible.js").read_text())
    text = kept.encode().decode("unicode_escape")

    assert visible(text, prose=True) == text
    assert visible(text + "\u202e\x1b", prose=True) == text + "\\u{202e}\\u{1b}"


def test_its_requirements_are_installed_for_the_tests_and_its_types_are_shipped():
    project = tomllib.loads((PROJECT / "client/pyproject.toml").read_text())["project"]
    development = (PROJECT / "requirements/dev.txt").read_text() + (PROJECT / "requirements.txt").read_text()

    for requirement in project["dependencies"]:
        assert re.split(r"[><;]", requirement)[0] in re.findall(r"^[\w.-]+", development, re.MULTILINE)
    assert (make.PACKAGE / "py.typed").exists()
