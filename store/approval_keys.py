"""The data of approvals in Redis beside the conversations: as `keys.py`, every key with its type, content and bound.

| key                         | type       | holds                                             | bound               |
|-----------------------------|------------|---------------------------------------------------|---------------------|
| conv:{ID}:audit             | list       | the audit of a conversation, JSON entries that    | one per decision;   |
|                             |            | are chained by hashes; see `audit.py`             | AUDIT_DAYS after    |
|                             |            |                                                   | the deletion        |
| {approvals}:waiting         | sorted set | "CONVERSATION ACTION" of every pending action,    | one per such        |
|                             |            | score when it was opened, µs                      |                     |
| {approvals}:items           | hash       | the same member → JSON: see `inbox.py`            | one per such        |
| {approvals}:of:ID           | set        | ids of the pending actions of a conversation      | MAX_PENDING_ACTIONS |
| {approvals}:noted           | hash       | conversation → "REVISION AUDITED": its approvals  | one per such, until |
|                             |            | as they were indexed last                         | its audit expires   |
| {approvals}:due             | sorted set | conversation, score when the first of its actions | one per such        |
|                             |            | expires, µs                                       |                     |
| {approvals}:checks          | sorted set | conversation, score when it was compared with the | one per such        |
|                             |            | index last, µs                                    |                     |
| {approvals}:sweep           | hash       | `at` (µs) of the last part of the sweep, and its  | 3 fields            |
|                             |            | cursor in the listing: `created` (µs), `id`       |                     |
| {approvals}:audit           | sorted set | "CONVERSATION SEQ" of every entry of an audit, the | AUDIT_DAYS          |
|                             |            | seq in ten digits, score its time, µs             |                     |
| {approvals}:stream          | stream     | what was opened, decided and expired: `inbox.py`  | MOST_CHANGES        |
| {approvals}:signal          | channel    | a change of the stream                            |                     |
| {approvals}:link:SHA-256    | hash       | the decision that a one-time link was used for,   | a minute longer     |
|                             |            | and when, µs; of its token without the signature  | than the link       |
| {approvals}:outbox          | list       | JSON: what is to be notified of, see `outbox.py`  | MOST_OUTBOX         |
| conversations:{all}:outbox  | list       | the same, of conversations that ended             | MOST_OUTBOX         |
| {sandboxes}:outbox          | list       | the same, of sandboxes that failed                | MOST_OUTBOX         |
| …:outbox:dropped            | string     | number of entries that a full outbox dropped      |                     |
| …:outbox:wanted             | string     | there while a supervisor has targets to notify    | a day               |
| {rules}:all                 | hash       | id → JSON: an approval rule, see `rules.py`       | MOST_RULES          |
| {rules}:uses                | hash       | id → JSON: how often it was used, and when        | MOST_RULES          |
| {rules}:version             | string     | a number that grows with every change of the rules |                    |
| {rules}:use:CLAIM           | string     | the rule that a claim used, for its repeat        | a day               |
| {rules}:revoked:ID          | string     | the request that revoked a rule: nothing makes it | a day               |
|                             |            | again                                             |                     |
| {notify}:targets            | hash       | id of a target → its name                         | one per target      |
| {notify}:queue:ID           | stream     | `id` and `body` of each message, the body sealed  | MOST_QUEUED         |
| {notify}:state:ID           | hash       | of a target: see `targets.py`                     | 11 fields           |
| {notify}:seen               | sorted set | ids of messages that were queued, score when, µs  | MOST_MARKS          |

Fields of `conv:{ID}` about approvals: `approvals` (grows with every change of what waits, also from one life of an id
to the next), `decision_id` (id prefix of the request that decided last), `confirmation_seconds` (the conversation's
own; absent: those of the setting), `decided_trace` (W3C traceparent that the last decision leaves for the agent's
next batch; absent or "": none), `told.capabilities` (JSON list: what its agent understands of decisions), and in a
sandbox `delivery_decisions` (JSON list: the decision of each action that its agent may not have received; "" alike) and
`delivery_trace` (W3C traceparent of the last one).
"""

from store.keys import ConversationKeys, ListingKeys, SandboxKeys
from wire import ConversationId


def audit_key(keys: ConversationKeys) -> str:
    """The audit of a conversation, in its slot; it outlives the conversation."""
    return f"{keys.root}:audit"


def audit_member(conversation_id: ConversationId, seq: int) -> str:
    """An entry in the index of all audits: of equal times those of one conversation are in the order of their seqs."""
    return f"{conversation_id} {seq:010d}"


class ApprovalKeys:
    """The names of the index of all approvals, in one slot."""

    root = "{approvals}"
    waiting = f"{root}:waiting"
    items = f"{root}:items"
    noted = f"{root}:noted"
    due = f"{root}:due"
    checks = f"{root}:checks"
    sweep = f"{root}:sweep"
    audit = f"{root}:audit"
    stream = f"{root}:stream"
    signal = f"{root}:signal"
    outbox = f"{root}:outbox"

    @classmethod
    def of(cls, conversation_id: str) -> str:
        """The ids of the pending actions of a conversation."""
        return f"{cls.root}:of:{conversation_id}"


class RuleKeys:
    """The names of the approval rules' keys, in one slot."""

    root = "{rules}"
    version = f"{root}:version"


class NotifyKeys:
    """The name that all keys of notifications are below, in one slot."""

    root = "{notify}"

    @classmethod
    def state(cls, target_id: str) -> str:
        return f"{cls.root}:state:{target_id}"


#: the outboxes by the names of what they tell of, each in the slot of its subject
OUTBOXES = {
    "approvals": ApprovalKeys.outbox,
    "conversations": f"{ListingKeys.root}:outbox",
    "sandboxes": f"{SandboxKeys.root}:outbox",
}


def outbox_dropped(outbox: str) -> str:
    """The number of entries that an outbox dropped."""
    return f"{outbox}:dropped"


def outbox_wanted(outbox: str) -> str:
    """There while a supervisor has targets to notify."""
    return f"{outbox}:wanted"
