"""Which model a conversation thinks with. The model's key is sealed on the disk, and shown nowhere."""

import base64
import hashlib
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

#: tokens of one conversation after which the agent stops, unless LLM_TOKEN_BUDGET says otherwise
TOKEN_BUDGET = 1_000_000


@dataclass(frozen=True)
class Llm:
    """A model of an OpenAI-compatible endpoint; without a name there is none."""

    model: str = ""
    base_url: str = ""  #: "" is OpenAI's
    api_key: str = field(default="", repr=False)
    context_window: int = 0  #: tokens, as clients are told; 0: unknown
    budget: int = TOKEN_BUDGET  #: most tokens of a conversation; 0: no limit

    def with_given(self, given: dict[str, Any]) -> "Llm":
        """This model, with what a start request says of it. A key goes only to the endpoint that it was given for."""
        model, url, key = (str(given.get(name) or "") for name in ("model", "base_url", "api_key"))
        if not (model or url or key):
            return self
        return replace(
            self,
            model=model or self.model,
            base_url=url or self.base_url,
            api_key=key or ("" if url and url != self.base_url else self.api_key),
            context_window=window if isinstance(window := given.get("max_input_tokens"), int) else self.context_window,
        )


NO_LLM = Llm()


class Seal:
    """Seals keys with the secret that outlives the agent server's process; without one they end with it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def close(self, text: str) -> str:
        return str(self._fernet().encrypt(text.encode()).decode()) if self._secret and text else ""

    def open(self, sealed: str) -> str:
        """The text; "" for one that was sealed with another secret."""
        if not (self._secret and sealed):
            return ""
        try:
            return str(self._fernet().decrypt(sealed.encode()).decode())
        except import_module("cryptography.fernet").InvalidToken:
            return ""

    def _fernet(self) -> Any:
        """Loaded when it is needed: it would take a fifth of the agent server's start."""
        key = base64.urlsafe_b64encode(hashlib.sha256(self._secret.encode()).digest())
        return import_module("cryptography.fernet").Fernet(key)
