"""What every place of objects takes."""

import re

#: most bytes of an object
MOST_BYTES = 1024 * 1024 * 1024

#: a name is no path, and does not begin as a file that is being written
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,199}")


def is_name(text: str) -> bool:
    """Whether an object may have this name: 1 to 200 letters, digits and hyphens, the first no hyphen."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str) -> None:
    """Raises ValueError unless an object may have this name."""
    if not is_name(text):
        raise ValueError(f"The name of an object must be 1 to 200 letters, digits and hyphens, not {text!r}")
