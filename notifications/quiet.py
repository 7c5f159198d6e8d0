"""Which events are notified of: the quiet rules of the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from approvals.rules import RISKS
from settings.approvals import ApprovalSettings, names


@dataclass(frozen=True, slots=True)
class QuietRules:
    """What passes is notified of. Events of actions pass by risk and tool, those of conversations also by tag."""

    events: frozenset[str]  #: types; empty: all
    risk: str  #: the least
    tools: frozenset[str]  #: empty: all
    tags: tuple[tuple[str, str | None], ...]  #: name, and value where it matters; empty: all

    @classmethod
    def of(cls, settings: ApprovalSettings) -> "QuietRules":
        pairs = [tag.partition("=") for tag in names(settings.notify_tags)]
        return cls(
            frozenset(names(settings.notify_events)),
            settings.notify_risk,
            frozenset(names(settings.notify_tools)),
            tuple((name, value if sign else None) for name, sign, value in pairs),
        )

    def pass_entry(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry of an outbox passes, as far as the entry alone tells; an unknown risk counts as HIGH."""
        if self.events and entry["type"] not in self.events:
            return False
        if not entry["type"].startswith("action."):
            return True
        risk = entry.get("risk")
        rank = RISKS.index(risk) if risk in RISKS else len(RISKS)
        return rank >= RISKS.index(self.risk) and (not self.tools or entry.get("tool") in self.tools)

    def pass_tags(self, tags: Mapping[str, str]) -> bool:
        """Whether the tags of a conversation pass; a conversation that is gone has none."""
        return not self.tags or any(name in tags and value in (None, tags[name]) for name, value in self.tags)
