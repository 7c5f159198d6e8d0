"""Which of many values a function takes although it should refuse each of them: one test lists them all."""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def taken(values: Iterable[T], load: Callable[[T], Any], error: type[Exception], words: str = "") -> list[T]:
    """The values that `load` takes, or refuses with a sentence that does not match the pattern `words`."""
    return [value for value in values if not is_refused(load, value, error=error, words=words)]


def is_refused(load: Callable[..., Any], *args: Any, error: type[Exception], words: str = "") -> bool:
    try:
        load(*args)
    except error as refusal:
        return bool(re.search(words, str(refusal)))
    return False
