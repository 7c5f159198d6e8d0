"""Every refusal of the server says what to do next: read from the classes, so that a new one is covered."""

import ast
import inspect
import re
import textwrap

import pytest

from core.refused import Refused
from tests.test_error_shape import RULES  # noqa: F401  (importing it imports every blueprint)

#: what a client can do, as sentences say it
NEXT = re.compile(
    r"\b(?:GET|POST|PATCH|DELETE) /|(?i:\b(?:try|repeat|send|show|set|append|ask|decide|choose|use|change|delete|"
    r"remove|revoke|raise|restore|start|fork|copy|connect|follow|look|read|write|make|give|save|narrow|check|close|"
    r"install|should|must|needs?|resume|begin|wait|continues|load|pack|end|update|add|pause|operator|go|free)\b)"
)

_DOCUMENTED = (ast.ClassDef, ast.FunctionDef)

#: refusals after which there is no next step, and why
FINAL = {
    "ActsUnasked": "an agent of another kind is the client's own choice, and the words name the policy that it takes",
}


def refusals(of: type[Refused] = Refused) -> list[type[Refused]]:
    return [one for child in of.__subclasses__() for one in (child, *refusals(child))]


def sentences(refusal: type[Refused]) -> str:
    """The words of a refusal, with what is filled in left out."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(refusal)))
    [body] = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    docstrings = {ast.get_docstring(one, clean=False) for one in ast.walk(body) if isinstance(one, _DOCUMENTED)}
    texts = [one.value for one in ast.walk(body) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return refusal.words + " " + " ".join(text for text in texts if text not in docstrings)


#: those whose sentence stands in the class; the others are raised with one
SAID = {
    one: said
    for one in refusals()
    if one.__module__.split(".")[0] != "tests" and " " in (said := sentences(one).strip()) and one.__name__ not in FINAL
}


@pytest.mark.parametrize("refusal", SAID, ids=lambda one: one.__name__)
def test_a_refusal_names_the_next_step(refusal):
    assert NEXT.search(SAID[refusal]), SAID[refusal]
