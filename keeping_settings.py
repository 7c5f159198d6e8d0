"""The settings about conversations that are kept, and for how long. A part of `config.Config`."""

from dataclasses import dataclass

from settings import setting as _setting


@dataclass(frozen=True)  # without slots: Config has several parts, and Python joins the slots of one alone
class KeepingSettings:
    """What `config.Config` has of it. The name of a setting is its field's name in capitals."""

    max_import_bytes: int = _setting(
        2 * 1024 * 1024 * 1024, "Largest import of a conversation, in bytes; a longer one gets 413.", least=1024
    )
