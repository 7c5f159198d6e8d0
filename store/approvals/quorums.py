"""Pending actions that several people must approve, and the approvals so far.

The rules, the votes and the voters' rights lie in other slots than the conversation. They are read before the script
that decides, which accepts an approval only if they are unchanged (`_quorum.lua`). Limitation: in a cluster the script
cannot compare the versions of rules and rights.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from core.access import is_revocable_id
from core.approvals import Action, Rule
from core.people import Person, voter
from core.quorums import Hold, hold_of
from core.wire import ConversationId
from store.approvals.audit import SERVER, DecisionActor
from store.approvals.inbox import InboxAction
from store.approvals.places import PLACE, read_place
from store.approvals.rules import Rules
from store.approvals.waiting import read_pending
from store.keys import ConversationKeys
from store.link.commands import Redis
from store.link.connection import LazyCluster
from store.scripts import Scripts


class Rights(NamedTuple):
    """Functions of `store/access/` that say whose approval counts."""

    scopes: Callable[[Person, ConversationId], frozenset[str]]  #: see `People.scopes`
    live: Callable[[Collection[str]], set[str]]  #: see `AccessKeys.live`


class Quorums:
    def __init__(self, redis: Redis, scripts: Scripts, rules: Rules, rights: Rights) -> None:
        self._redis = redis
        self._scripts = scripts
        self._rules = rules
        self._rights = rights

    def read(self, conversation_id: ConversationId, actor: DecisionActor, again: bool) -> str:
        """Return the data of `_quorum.lua` for an approval by an actor.

        No round trip without such rules, in a cluster one. again: the script that decides has found the earlier data
        outdated.
        """
        version, asking = self._asking(fresh=again or isinstance(self._redis, LazyCluster))
        read: dict[str, Any] = {"version": version}
        if not asking:
            return json.dumps(read)
        root = ConversationKeys(conversation_id)
        owner, asker, *place = self._redis.hmget(root.root, ["owner", "asker", *PLACE])
        owner, asker, here = owner or b"", asker or b"", read_place(conversation_id, *place)
        stored = self._redis.hgetall(root.pending)
        records = {name.decode("utf-8", "surrogatepass"): json.loads(one) for name, one in stored.items()}
        actions = {}
        for shown in read_pending(self._scripts, conversation_id):
            if (record := records.get(shown["id"])) is None:
                continue
            hold = hold_of(asking, Action(shown["tool_name"], shown["arguments"], record["risk"]), here)
            actions[shown["id"]] = {
                "since": record["since"],
                "needed": hold.needed,
                "own": _is_own(hold, actor.voter, owner.decode(), asker.decode()),
                "standing": [
                    vote["voter"]
                    for vote in self._standing(record, conversation_id)
                    if not _is_own(hold, vote["voter"], owner.decode(), asker.decode())
                ],
                "votes": [vote["voter"] for vote in record.get("votes", ())],
            }
        return json.dumps({**read, "owner": owner.decode(), "asker": asker.decode(), "actions": actions})

    def refresh_rules(self) -> None:
        """Cache the current rules. One round trip, two after a change."""
        self._rules.versioned()

    def shown(self, items: Sequence[InboxAction], actor: DecisionActor, *, fresh: bool = True) -> list[dict[str, Any]]:
        """Return pending actions for an actor: `can` has their possible decisions, `quorum` who must approve.

        For a key, `can` has what the agent understands. Two round trips without such rules, for a key one. fresh: False
        uses the cached rules, which saves one.
        """
        asking = self._asking(fresh=fresh)[1] if items else []
        if not items or (not asking and actor.kind != "person"):
            return [_members(item) for item in items]
        roots = [ConversationKeys(item.conversation_id) for item in items]
        with self._redis.pipeline(transaction=False) as pipe:
            for keys, item in zip(roots, items, strict=True):
                pipe.hmget(keys.root, ["owner", "asker", *PLACE])
                pipe.hget(keys.pending, item.action_id)
            replies = pipe.execute()
        scopes: dict[ConversationId, frozenset[str]] = {}
        found = []
        for item, (owner, asker, *place), stored in zip(items, replies[::2], replies[1::2], strict=True):
            hold = hold_of(
                asking,
                Action(item.tool_name, item.arguments, item.security_risk),
                read_place(item.conversation_id, *place),
            )
            votes = self._standing(json.loads(stored or b"{}"), item.conversation_id) if hold.rules else []
            by = (owner or b"").decode(), (asker or b"").decode()
            votes = [vote for vote in votes if not _is_own(hold, vote["voter"], *by)]
            own = _is_own(hold, actor.voter, *by)
            quorum = {
                "needed": hold.needed,
                "approved_by": [json.loads(vote["name"]) for vote in votes],
                "own": own,
                "voted": any(vote["voter"] == actor.voter for vote in votes),
            }
            can = item.can
            if actor.kind == "person":
                if item.conversation_id not in scopes:
                    person = Person(actor.name, actor.groups)
                    scopes[item.conversation_id] = self._rights.scopes(person, item.conversation_id)
                can = can if scopes[item.conversation_id] & {"approve", "admin"} else []
            if hold.needed > 1 or own:
                can = [verb for verb in can if verb != "edit"]
            if own or quorum["voted"]:
                can = [verb for verb in can if verb != "approve"]
            found.append({**_members(item), "can": can} | ({"quorum": quorum} if hold.rules else {}))
        return found

    def waiting(self, conversation_id: ConversationId, action_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the approved actions that others must approve too. One round trip without such rules."""
        if not action_ids or not self._asking()[1]:
            return []
        held = json.loads(self.read(conversation_id, SERVER, True)).get("actions", {})
        stored = self._redis.hmget(ConversationKeys(conversation_id).pending, list(action_ids))
        return [
            {
                "action_id": action_id,
                "needed": held[action_id]["needed"],
                "approved_by": [
                    json.loads(vote["name"])
                    for vote in json.loads(record)["votes"]
                    if vote["voter"] in held[action_id]["standing"]
                ],
            }
            for action_id, record in zip(action_ids, stored, strict=True)
            if record and action_id in held and json.loads(record).get("votes")
        ]

    def _asking(self, *, fresh: bool = True) -> tuple[str, list[Rule]]:
        """Return the version of the rules, and those in force that ask. One round trip, two if one of them expires.

        fresh: False if the script that decides compares the version, or the caller has refreshed the cache.
        """
        version, rules = self._rules.versioned() if fresh else self._rules.remembered()
        asking = [rule for rule in rules if rule.decision == "ask"]
        if any(rule.expires_at is not None for rule in asking):
            seconds, micros = self._redis.time()
            now = seconds * 1_000_000 + micros
            asking = [rule for rule in asking if rule.expires_at is None or rule.expires_at > now]
        return version, asking

    def _standing(self, record: Mapping[str, Any], conversation_id: ConversationId) -> list[dict[str, Any]]:
        """Return the votes of people who may still approve."""
        return [vote for vote in record.get("votes", ()) if self._stands(vote, conversation_id)]

    def _stands(self, vote: Mapping[str, Any], conversation_id: ConversationId) -> bool:
        if "person" in vote:
            person = Person(vote["person"], tuple(filter(None, vote["groups"].split(","))))
            found = self._rights.scopes(person, conversation_id)
            return bool(found & {"approve", "admin"})
        return not is_revocable_id(vote["key"]) or bool(self._rights.live([vote["key"]]))


def _members(item: InboxAction) -> dict[str, Any]:
    return {name: getattr(item, name) for name in (*(one.name for one in fields(item)), "complete")}


def _is_own(hold: Hold, who: str, owner: str, asker: str) -> bool:
    """Return whether somebody may not approve an action. Without any message, the owner counts as its sender."""
    owners = {voter(owner)} if hold.not_by_owner else set()
    askers = {asker or voter(owner)} if hold.not_by_asker else set()
    return who != "" and who in owners | askers
