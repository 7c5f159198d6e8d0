"""All settings, read from the environment and checked once.

Every field has its help text: `make docs` makes docs/settings.md and docs/limits.md from them.
"""

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from core.origins import is_loopback
from settings import ConfigError, from_variables
from settings.access import AccessSettings, read_keys
from settings.data_dir import kept_key
from settings.host import HostSettings
from settings.http import HttpSettings
from settings.keeping import KeepingSettings
from settings.limits import ConversationLimits, SandboxLimits
from settings.models import ModelSettings
from settings.notify import NotifySettings
from settings.redis import DATA_DIR, RedisSettings


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in groups. The name of a setting is its field's name in capitals."""

    http: HttpSettings = field(default_factory=HttpSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    conversations: ConversationLimits = field(default_factory=ConversationLimits)
    sandboxes: SandboxLimits = field(default_factory=SandboxLimits)
    host: HostSettings = field(default_factory=HostSettings)
    models: ModelSettings = field(default_factory=ModelSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    keeping: KeepingSettings = field(default_factory=KeepingSettings)

    @classmethod
    def of(cls, **values: Any) -> "Config":
        """Make settings from their names, without groups. Raises ConfigError, and TypeError for an unknown name."""
        found = {
            name: group(**{one.name: values.pop(one.name) for one in fields(group) if one.name in values})
            for name, group in groups().items()
        }
        if values:
            raise TypeError(f"There is no setting {min(values)}")
        return cls(**found)

    @classmethod
    def from_env(cls) -> "Config":
        """Read the settings from the environment.

        Raises ConfigError. An empty variable is equivalent to an unset one.
        """
        values = {name: value for group in groups().values() for name, value in from_variables(group).items()}
        values["api_keys"] = read_keys(os.environ.get, cls.of(**values).key_file)
        if "secret_key" not in values:
            try:
                values["secret_key"] = kept_key(values.get("data_dir") or DATA_DIR)
            except (OSError, ValueError) as error:
                raise ConfigError(f"The file secret_key in DATA_DIR cannot be read: {error}") from None
        return cls.of(**values)

    @property
    def is_open(self) -> bool:
        """Return whether no key is needed. gunicorn's master replaces AUTH=auto by its outcome (`boot/posture.py`)."""
        auto = self.access.auth == "auto" and not self.access.api_keys and is_loopback(self.http.host)
        return self.access.auth == "open" or auto

    @property
    def key_file(self) -> Path:
        """Return the file of a key that the server made."""
        return Path(self.redis.data_dir) / "key"

    @property
    def sandbox_folder(self) -> Path:
        """Return the folder of the sandboxes of all hosts that share it."""
        return Path(self.host.sandbox_dir or f"{self.redis.data_dir}/sandboxes")


def groups() -> dict[str, Any]:
    """Return group name → class."""
    return get_type_hints(Config)
