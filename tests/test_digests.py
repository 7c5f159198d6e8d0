"""Canonical JSON, by which decisions and audits are bound to what was shown."""

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from approvals.digests import canonical, digest

_NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.text() | _NUMBERS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


@given(_VALUES)
def test_the_canonical_form_is_that_of_rfc_8785_wherever_that_has_one(value: Any):
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        expected = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    assert canonical(value) == expected


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"b": [1, -0, True, None], "a": "\u20ac\x7f\x1f\n"}, '{"a":"\u20ac\x7f\\u001f\\n","b":[1,0,true,null]}'),
        ({"\ufb01": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb01":1}'),  # by UTF-16, not by code point
        ({"a": 1.0, "b": 1e21}, '{"a":1,"b":1e+21}'),
        (2**53 - 1, "9007199254740991"),
    ],
)
def test_names_numbers_and_escapes_have_one_form(value: Any, form: str):
    assert canonical(value) == form.encode()


@pytest.mark.parametrize("value", [2**53, -(2**64), ["\ud800"], {"\udfff": 1}])
def test_a_value_without_a_form_in_rfc_8785_has_one_that_json_reads_back(value: Any):
    assert json.loads(canonical(value)) == value
    assert len(digest(value)) == 64
