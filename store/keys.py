"""The data in Redis: every key with its type, content and bound. Conversations, sandboxes and starts first;
then approvals and notifications, the changes of lists, warm sandboxes, and cold logs.

| key                             | type       | holds                                        | bound                 |
|---------------------------------|------------|----------------------------------------------|-----------------------|
| data_version                    | string     | the version of all data: `link/health.py`    |                       |
| seal_check                      | string     | a sealed word: `link/secrets.py`             |                       |
| conv:{ID}                       | hash       | the conversation's state; see below          | 64 fields             |
| conv:{ID}:log                   | list       | the events, see `frames.py`; index = seq - 1 | one per event         |
| conv:{ID}:seqs                  | hash       | ids → seqs, packed: `scripts/_ids.lua`       | one per 32 events     |
| conv:{ID}:ids                   | hash       | event id → seq, of ids that are not packed   | one per event         |
| conv:{ID}:at:KIND:SOURCE        | sorted set | member seq (ten digits), score time in µs    | one per event in all  |
| conv:{ID}:pairs                 | set        | the KIND:SOURCE pairs that occur, escaped    | MAX_EVENT_KINDS + 5   |
| conv:{ID}:peaks                 | sorted set | member N, score greatest time in µs of the   | one per 1,000 events  |
|                                 |            | first N * 1,000 + 1,000 events               |                       |
| conv:{ID}:pending               | hash       | id of an open action: `scripts/_actions.lua` | MAX_PENDING_ACTIONS   |
| conv:{ID}:text:N                | string     | case-folded text of messages: `log/text.py`  | 16 MiB or so each     |
| conv:{ID}:secrets               | hash       | name → secret, sealed                        | one per secret        |
| conv:{ID}:start                 | string     | sealed start of its agent: `start_tasks.py`  | MAX_BODY_BYTES        |
| conv:{ID}:echoes                | sorted set | what its agent is to echo: `effects.py`      | 1,000                 |
| conv:{ID}:deleted               | string     | of a repeated deletion: request, revision    | a minute              |
| conv:{ID}:ended:START           | string     | a start task that has ended makes it no more | a day                 |
| conv:{ID}:ended:FORK            | string     | a copy that a deletion has ended, likewise   | a day                 |
| conv:{ID}:copies                | hash       | fork → until when in µs, and a sandbox, of   | an hour each          |
|                                 |            | each copy into this id that is being made    |                       |
| conv:{ID}:signal                | channel    | after new events the seq of the last one;    |                       |
|                                 |            | `state` when a run ended without one; `0`    |                       |
|                                 |            | when all is deleted; an event not kept       |                       |
| follower:PROCESS                | channel    | signals of a process to its own subscriber   |                       |
| conv:{ID}:fork:FORK…            | as above   | a copy while it is made, then renamed        | an hour               |
| conversations:{all}:revisions   | hash       | id → revision, status, groups: `listing.py`  | one per conversation  |
| conversations:{all}:created     | sorted set | id, score time in µs                         | one per conversation  |
| conversations:{all}:updated     | sorted set | id, score time in µs                         | one per conversation  |
| conversations:{all}:created:…   | sorted set | the same of a STATUS or of a GROUP: `app`    | one per conversation  |
|                                 |            | has all app conversations, `top` those       | each                  |
|                                 |            | without a parent, `in-SANDBOX` those in it,  |                       |
|                                 |            | `of-ID` an id's children                     |                       |
| conversations:{all}:updated:…   | sorted set | likewise                                     | the same              |
| conversations:{all}:title       | sorted set | folded title NUL id, all of score 0: in the  | one per conversation  |
|                                 |            | order of the title's code points             |                       |
| conversations:{all}:title:GROUP | sorted set | the same of one group                        | one per conversation  |
|                                 |            |                                              | each                  |
| conversations:{all}:titles      | hash       | id → folded title, a conversation's          | one per conversation  |
|                                 |            | `folded_title`                               |                       |
| conversations:{all}:gone:ID     | string     | creation and last revision of one that left  | a minute              |
| {sandboxes}:box:ID              | hash       | a sandbox; see `sandboxes.py`                | 32 fields             |
| {sandboxes}:log:ID              | string     | last lines of a sandbox without processes    | 256 KiB               |
| {sandboxes}:created             | sorted set | id, score µs                                 | one per sandbox       |
| {sandboxes}:created:…           | sorted set | the same of STATUS, of *:SPEC, STATUS:SPEC   | one per sandbox each  |
| {sandboxes}:unclaimed           | sorted set | those that no host has taken yet             | one per such          |
| {sandboxes}:keys                | hash       | SHA-256 of a hook key, `session ` and that   | two per sandbox       |
|                                 |            | of a session key → id, until its processes   |                       |
|                                 |            | end                                          |                       |
| {sandboxes}:gone:ID             | sorted set | tombstones: ids of conversations that were   | MOST_TOMBSTONES; ends |
|                                 |            | deleted in it, score when in µs              | with the sandbox      |
| {sandboxes}:ended:ID            | string     | a start task that has ended, or a removed    | a day                 |
|                                 |            | sandbox that is not started again            |                       |
| {sandboxes}:places:ID           | sorted set | ids of the conversations in a sandbox, and   | MAX_CONVERSATIONS_    |
|                                 |            | of those that start there: score when, µs    | PER_SANDBOX           |
| {sandboxes}:host:HOST           | set        | the sandboxes of a host                      | one per sandbox       |
| {sandboxes}:owned:KEY           | set        | the sandboxes that a key has started         | one per sandbox       |
| {sandboxes}:removals:HOST       | set        | "RUNTIME ID FOLDER" of those deleted while   | one per such          |
|                                 |            | it was lost; no FOLDER: of none              |                       |
| {sandboxes}:hosts               | sorted set | host, score its last heartbeat in µs         | one per host          |
| {sandboxes}:supervisors         | hash       | host → identity of its living supervisor     | one per host          |
| {sandboxes}:silent              | hash       | host → its last heartbeat, silent since; µs  | one per host          |
| {sandboxes}:present             | string     | since when supervisors are there             |                       |
| {starts}:present                | string     | likewise                                     |                       |
| {sandboxes}:tried               | hash       | a delivery → its tries: `scripts/_tried.lua` | one per such          |
| {sandboxes}:isolation           | hash       | host → its isolation and version; JSON       | one per host          |
| {sandboxes}:deliveries          | sorted set | decisions that an agent may not have         | one per such          |
|                                 |            | received: "DELIVERY CONVERSATION SANDBOX",   |                       |
|                                 |            | score when due                               |                       |
| {sandboxes}:checks              | sorted set | "CONVERSATION SANDBOX", score when due:      | one per conversation  |
|                                 |            | checks.py                                    |                       |
| {sandboxes}:agent:ID            | string     | token of the claim that delivers to it now   | the lease             |
| {sandboxes}:claim:TOKEN         | string     | entry that a claim got, for its repeat       | the lease             |
| {sandboxes}:signal              | channel    | an id, "", a request: `link/signals.py`      |                       |
| {sandboxes}:reply:ID            | list       | a supervisor's reply: a log, a file          | ten seconds           |
| {sandboxes}:transfer:ID         | hash       | archive under way: `scripts/_transfer.lua`   | a minute              |
| {sandboxes}:chunks:ID           | list       | its chunks that were sent and not received   | 16 of 256 KiB         |
| {starts}:task:ID                | hash       | a start task; see `start_tasks.py`           | 22 fields             |
| {starts}:body:ID                | string     | sealed body of a start, while it is          | MAX_BODY_BYTES        |
|                                 |            | unfinished                                   |                       |
| {starts}:created                | sorted set | id, score time in µs                         | one per start         |
| {starts}:updated                | sorted set | id, score time of its last change in µs      | one per start         |
| {starts}:created:CONVERSATION   | sorted set | the same of one conversation                 | one per start         |
| {starts}:updated:CONVERSATION   | sorted set | the same of one conversation                 | one per start         |
| {starts}:of:CONVERSATION        | set        | unfinished ones of a conversation and its    | one per such          |
|                                 |            | children                                     |                       |
| {starts}:ended:ID               | string     | one that was removed is not made again       | a day                 |
| {starts}:due                    | sorted set | unfinished ones, score when their lease      | one per such          |
|                                 |            | ends, µs                                     |                       |
| {starts}:waiting                | sorted set | those that wait for the place of a sandbox,  | one per such          |
|                                 |            | score their creation, µs                     |                       |
| {starts}:failed                 | sorted set | those to clear away, score when a driver     | one per such          |
|                                 |            | may, µs                                      |                       |
| {starts}:signal                 | channel    | id of a start task, or of a conversation's   |                       |
|                                 |            | queue                                        |                       |
| {starts}:queue:ID               | list       | messages that wait: `scripts/_queue.lua`     | MOST_QUEUED           |
| {starts}:queued:ID              | hash       | the state of that queue                      | 5 fields              |
| {starts}:queues                 | sorted set | conversations with a queue, score when due,  | one per such          |
|                                 |            | µs                                           |                       |
| {starts}:message:ID             | string     | position of a queued message, for a repeat   | a minute              |
| {access}:key:ID                 | hash       | a key of access: id, digest, name, scopes,   | MOST_KEYS             |
|                                 |            | created_at, expires_at, used_at (µs)         |                       |
| {access}:digests                | hash       | SHA-256 of a key → id                        | one per key           |
| {access}:created                | sorted set | id, score time in µs                         | one per key           |
| {access}:revoked:ID             | string     | the request that revoked it: a repeat finds  | a minute              |
|                                 |            | it                                           |                       |
| {access}:ticket:SHA-256         | hash       | what a ticket stands for, and who has taken  | 30 seconds            |
|                                 |            | it                                           |                       |
| once:{CLIENT}:key:KEY           | hash       | the record of an Idempotency-Key; CLIENT and | a day; 8 KiB and 9    |
|                                 |            | KEY are digests; see `idempotency.py`        | fields                |
| client:{KEY}                    | hash       | `of:NAME` → what a key keeps, sealed, see    | MOST_ENTRIES of       |
|                                 |            | `client_settings.py`; `revision`, `request`  | MOST_BYTES, its key   |
| rate:{LIMIT}                    | string     | requests of a client in the window of a      | the window            |
|                                 |            | limit                                        |                       |
| chat:{SHA-256}                  | hash       | which conversation gave the last answer of a | a week                |
|                                 |            | chat (empty: several), and the digest of the |                       |
|                                 |            | words that followed it                       |                       |
| once:{CLIENT}:live              | sorted set | KEY, score when its record expires, µs       | MAX_IDEMPOTENCY_KEYS  |

The braces are literal, also around `all`: they make the id the hash tag, so that all keys of a conversation lie in one
slot and every write is one script there, also in a cluster. Example: `conv:{5f1c…}:log`.
Fields of `conv:{ID}`: `id`, `incarnation` (one per creation), `seq` (of the last event), `execution_status`,
`confirmation_policy`, `title`, `tags`, `stats`, `security_analyzer`, `info` (the rest of the start request; these six
as JSON), `held` (the risks that are held back, joined by commas), `created_at`, `updated_at`, `imported_at` (UTC, Z),
`revision` (grows with every change, also from one life of an id to the next), `last_user_message_id`, `snapshot_id`
(of the last full state that an agent posted), `text_chunk` (N of the chunk that grows), `latest_at` (the greatest time
of an event, µs), `final_seq` and `final_at` (seq and µs of the event that holds the final response).

In a sandbox also: `sandbox_id`, `groups` (joined by commas), `app.NAME` (JSON; one field per member that only app
conversations have: `start_id`, `started_by`, `started_from` (a digest of the client's address and program),
`parent_conversation_id`, `llm_model`, `selected_repository`, `public`, `selected_branch`, `git_provider`, `trigger`,
`pr_number`), `agent` and `told.NAME` (JSON, as its agent server reported
them last; `wire.REPORTED_MEMBERS`), `labels_due` (the request whose title or tags it may not have), and a decision that
it may not have received: `delivery_id` (id prefix of the request that decided), `delivery_verb` (`accept`, `reject`),
`delivery_reason` (JSON), `delivery_actions` (JSON, ids), `delivery_at` (µs). For the recovery after a restart:
`posted` (number of the log's events that the agent has too), `agent_log` (JSON: how far both logs were compared, see
`supervisor/agent_log.py`), `interrupted` (`true`: a run was under way when the agent server ended or froze),
`state_at` (µs of the agent's newest event that set a state). And `unapproved_resumes` (runs that nobody decided).

A score is a double: exact to the microsecond from 1684 to 2255, to 64 µs outside.

Approvals and notifications, beside the conversations:

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
| {approvals}:outbox          | list       | JSON: to be notified of, see `notifications.py`   | MOST_OUTBOX         |
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
| {notify}:state:ID           | hash       | of a target: see `notifications.py`               | 11 fields           |
| {notify}:seen               | sorted set | ids of messages that were queued, score when, µs  | MOST_MARKS          |

Fields of `conv:{ID}` about approvals: `approvals` (grows with every change of what waits, also from one life of an id
to the next), `decision_id` (id prefix of the request that decided last), `confirmation_seconds` (the conversation's
own; absent: those of the setting), `decided_trace` (W3C traceparent that the last decision leaves for the agent's
next batch; absent or "": none), `told.capabilities` (JSON list: what its agent understands of decisions), and in a
sandbox `delivery_decisions` (JSON list: the decision of each action that its agent may not have received; "" alike) and
`delivery_trace` (W3C traceparent of the last one).

Destinations, which sandboxes ask for and reach: `destinations.py`. The first five end with their sandbox:

| key                           | type       | holds                                         | bound                  |
|-------------------------------|------------|-----------------------------------------------|------------------------|
| {sandboxes}:asked:ID          | hash       | "NAME:PORT" → JSON: what was asked, and what  | MOST_REMEMBERED        |
|      and :asked:day.DAY       |            | was decided: `scripts/_destinations.lua`      | a budget per key; 48 h |
| {sandboxes}:asking            | sorted set | "ID NAME:PORT" of what waits, score since     | MOST_WAITING of each   |
|                               |            | when, µs; a budget's is "SETTING:0"           | sandbox; MOST_ASKING   |
| {sandboxes}:asking_due        | sorted set | the same members, score when it expires, µs   | the same               |
| {sandboxes}:reached:ID        | hash       | "NAME:PORT" → JSON: how often, when, and how  | MOST_REACHED and one   |
|                               |            | many bytes; `others`: of all names beyond     |                        |
| {sandboxes}:tally:ID:DAY      | hash       | `asked`: how often on that day; "NAME:PORT"   | a day                  |
|                               |            | whose refusal was audited                     |                        |
| {sandboxes}:asking_ended      | sorted set | what waited in sandboxes that have ended,     | until it is audited    |
|                               |            | score since when, µs                          |                        |
| {sandboxes}:destinations      | hash       | what all sandboxes did, in all; `audited`:    | 7 fields               |
|                               |            | time of the last entry of the audit; `ruled`: |                        |
|                               |            | a rule was made that may decide what waits    |                        |
| {sandboxes}:destination_rules | hash       | id → JSON: a rule for destinations            | MOST_DESTINATION_RULES |
| {sandboxes}:destination_named | hash       | "PATTERN:PORT" → decision and id of its rule  | one per rule           |
| {sandboxes}:destination_uses  | hash       | id → how often a rule decided                 | one per rule           |
| {sandboxes}:revoked:ID        | string     | the request that revoked a rule: nothing      | a day                  |
|                               |            | makes it again                                |                        |
| {sandboxes}:audit:DAY         | list       | the audit of destinations and joins of a day  | AUDIT_DAYS             |
| {sandboxes}:joined:ID         | string     | a start, or a request, whose join is audited  | a day                  |
| {sandboxes}:unnoted           | stream     | its entries that are not indexed yet          | MOST_UNNOTED           |
| {approvals}:destinations      | string     | the last id of that stream that is indexed    |                        |
| {sandboxes}:spent:ID          | hash       | what a sandbox has spent: `spending.py`; ends | 14 fields              |
|                               |            | with it                                       |                        |
| {sandboxes}:spent_on:DAY      | hash       | the same of a day, of all and " KEY" of each  | SPENT_DAYS; 14 fields  |
|                               |            | key; DAY counts from 1970                     | for each key           |
| {sandboxes}:models            | hash       | "MODEL FIELD" → what all sandboxes spent      | a model of the table   |

The changes of lists. LIST is `conversations:{all}` or `{sandboxes}`, so that the script that changes an entry of a list
notes the change too:

| key                | type       | holds                                                        | bound        |
|--------------------|------------|--------------------------------------------------------------|--------------|
| LIST:changes       | sorted set | id, score the number of its newest change, also of its       | MOST_CHANGES |
|                    |            | deletion; a number grows, and is about the time in µs        |              |
| LIST:changes:floor | string     | the number after which no change is missing in that set      |              |
| LIST:changed       | channel    | the number of a change                                       |              |

Warm sandboxes:

| key                       | type       | holds                                                    | bound            |
|---------------------------|------------|----------------------------------------------------------|------------------|
| {sandboxes}:pools         | set        | ids of the specs that keep warm sandboxes                | one per spec     |
| {sandboxes}:pool:SPEC     | hash       | `version` of the spec, `most` that are kept, `failures`, | 4 fields         |
|                           |            | and `after` (µs) which one may be started again          |                  |
| {sandboxes}:warm:SPEC     | sorted set | ids of the warm sandboxes of a spec, score when made, µs | `most`           |
| {sandboxes}:claimed:START | string     | the warm or workspace sandbox that a start task claimed  | an hour          |
| {sandboxes}:workspaces    | hash       | id of a key → its workspace sandbox: `Workspaces`        | one per key      |

A sandbox is warm as long as its field `warm` has the version of its spec; it is bound when that is empty.

Cold logs:

| key            | type       | holds                                                  | bound                        |
|----------------|------------|--------------------------------------------------------|------------------------------|
| {cold}:objects | sorted set | names of all objects, score when each is checked, µs | one per cold conversation,   |
|                |            |                                                        | and per thaw of an hour      |
| {cold}:pieces  | hash       | name of an object → number of its pieces               | one per log in pieces        |
| {cold}:turn:T  | string     | 1 while a supervisor has done the task T a moment ago  | 2, each ends by itself       |

Until a log is frozen, `conv:{ID}:freeze:OBJECT:text:N` has the frames of its text, for half an hour. Until a log in
pieces is thawed, `conv:{ID}:thaw:OBJECT` has the number of the pieces that are back and `conv:{ID}:thaw:OBJECT:…` their
keys, for ten minutes after the last piece.

Fields of `conv:{ID}`: `cold` (name of the object that has its log; absent: Redis has it) and `aside_until` (µs before
which it is not frozen again). `scripts/_freeze.lua` lists the keys that are moved; `scripts/__init__.py` guards every
script that names one. Of a cold conversation `text:N` stays, as a Zstandard frame: see `text.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar
from urllib.parse import quote

from core.wire import ConversationId


@dataclass(frozen=True, slots=True)
class ConversationKeys:
    """The names of one conversation's keys; with a fork's id, of a copy that is made for it."""

    id: ConversationId
    fork: str = ""

    #: pattern of the roots of all conversations
    roots: ClassVar[str] = f"conv:{{{'?' * 36}}}"

    @property
    def root(self) -> str:
        return f"conv:{{{self.id}}}" + (f":fork:{self.fork}" if self.fork else "")

    @property
    def log(self) -> str:
        return f"{self.root}:log"

    @property
    def pairs(self) -> str:
        return f"{self.root}:pairs"

    @property
    def peaks(self) -> str:
        return f"{self.root}:peaks"

    @property
    def pending(self) -> str:
        return f"{self.root}:pending"

    def at(self, pair: str) -> str:
        return f"{self.root}:at:{pair}"

    @property
    def echoes(self) -> str:
        return f"{self.root}:echoes"

    @property
    def secrets(self) -> str:
        return f"{self.root}:secrets"

    @property
    def start(self) -> str:
        return f"{self.root}:start"

    @property
    def signal(self) -> str:
        return f"{self.root}:signal"

    def text(self, chunk: int) -> str:
        return f"{self.root}:text:{chunk}"


#: the version of all data, and a word that a server has sealed
DATA_VERSION, SEAL_CHECK = "data_version", "seal_check"

#: of the data that this code reads and writes, see `link/health.py`
VERSION = 1

#: prefixes of fields of a conversation's hash: what only app conversations have, what an agent server has reported
APP_FIELD, REPORTED_FIELD = "app.", "told."


class ListingKeys:
    """The names of the listing's keys, which lie in one slot."""

    root = "conversations:{all}"

    @classmethod
    def index(cls, by: str, among: str | None = None) -> str:
        """The order by `created`, `updated` or `title`, of a status, of a group or of all."""
        return f"{cls.root}:{by}:{among}" if among else f"{cls.root}:{by}"


class SandboxKeys:
    """The names of all sandboxes' keys: in one slot, so that one script decides what holds for all of them."""

    root = "{sandboxes}"
    created = f"{root}:created"
    by_key = f"{root}:keys"
    hosts = f"{root}:hosts"
    isolation = f"{root}:isolation"
    deliveries = f"{root}:deliveries"
    asking = f"{root}:asking"
    unnoted = f"{root}:unnoted"
    destinations = f"{root}:destinations"
    destination_rules = f"{root}:destination_rules"
    destination_uses = f"{root}:destination_uses"
    models = f"{root}:models"
    workspaces = f"{root}:workspaces"
    signal = f"{root}:signal"

    @classmethod
    def created_in(cls, index: str) -> str:
        """The order of creation among those of a status, of a spec (`*:SPEC`) or of both (`STATUS:SPEC`)."""
        return f"{cls.created}:{index}"

    @classmethod
    def box(cls, sandbox_id: str) -> str:
        return f"{cls.root}:box:{sandbox_id}"

    @classmethod
    def log(cls, sandbox_id: str) -> str:
        return f"{cls.root}:log:{sandbox_id}"

    @classmethod
    def places(cls, sandbox_id: str) -> str:
        return f"{cls.root}:places:{sandbox_id}"

    @classmethod
    def reached(cls, sandbox_id: str) -> str:
        return f"{cls.root}:reached:{sandbox_id}"

    @classmethod
    def spent(cls, sandbox_id: str) -> str:
        return f"{cls.root}:spent:{sandbox_id}"

    @classmethod
    def spent_on(cls, day: int) -> str:
        return f"{cls.root}:spent_on:{day}"

    @classmethod
    def gone(cls, sandbox_id: str) -> str:
        return f"{cls.root}:gone:{sandbox_id}"

    @classmethod
    def of_host(cls, host: str) -> str:
        return f"{cls.root}:host:{host}"

    @classmethod
    def removals(cls, host: str) -> str:
        return f"{cls.root}:removals:{host}"

    @classmethod
    def reply(cls, request_id: str) -> str:
        return f"{cls.root}:reply:{request_id}"


class StartKeys:
    """The names of all start tasks' keys, in one slot."""

    root = "{starts}"
    due = f"{root}:due"
    waiting = f"{root}:waiting"
    failed = f"{root}:failed"
    signal = f"{root}:signal"

    @classmethod
    def task(cls, start_id: str) -> str:
        return f"{cls.root}:task:{start_id}"

    @classmethod
    def body(cls, start_id: str) -> str:
        return f"{cls.root}:body:{start_id}"

    @classmethod
    def created(cls, conversation_id: ConversationId | None = None) -> str:
        """The order of creation, of all or of one conversation's."""
        return f"{cls.root}:created:{conversation_id}" if conversation_id else f"{cls.root}:created"

    @classmethod
    def updated(cls, conversation_id: ConversationId) -> str:
        """The order of the last change of one conversation's."""
        return f"{cls.root}:updated:{conversation_id}"


class AccessRoot:
    """The name that all keys of access and all tickets are below, in one slot."""

    root = "{access}"


class IdempotencyKeys:
    """The names of one client's records of Idempotency-Keys, in one slot."""

    @staticmethod
    def root(client: str) -> str:
        return f"once:{{{client}}}"


def audit_key(keys: ConversationKeys) -> str:
    """The audit of a conversation, in its slot; it outlives the conversation."""
    return f"{keys.root}:audit"


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


#: changes that a list (`store/scripts/_changes.lua`) and the inbox hold; beyond it the oldest is dropped
MOST_CHANGES = 100_000


def changed_channel(root: str) -> str:
    """The channel of the changes of a list."""
    return f"{root}:changed"


def claimed_key(start_id: str) -> str:
    """The key of the warm sandbox that a start task has claimed."""
    return f"{{sandboxes}}:claimed:{start_id}"


class ColdKeys:
    """The names of the register of objects, and what follows a conversation's root in the keys that are moved."""

    root = "{cold}"
    objects = f"{root}:objects"

    #: what follows a conversation's root in the keys that have the ids of its events
    ids = (":seqs", ":ids")

    @staticmethod
    def moved(last_chunk: int, pairs: Iterable[str]) -> set[str]:
        """What follows the root in the keys that a log may have.

        last_chunk: number of its last chunk of text. pairs: of kind and source, that occur.
        """
        texts = (f":text:{number}" for number in range(last_chunk + 1))
        return {":log", ":peaks", *ColdKeys.ids, *(f":at:{pair}" for pair in pairs), *texts}

    @staticmethod
    def frame(root: str, name: str, text: str) -> str:
        """The frame of a text chunk, until its log is frozen. root: of the conversation. text: what follows it."""
        return f"{root}:freeze:{name}{text}"

    @staticmethod
    def back(root: str, name: str) -> str:
        """The number of the pieces that a thaw has brought back."""
        return f"{root}:thaw:{name}"

    @staticmethod
    def turn(task: str) -> str:
        """The claim of a task that one supervisor of all does at a time."""
        return f"{ColdKeys.root}:turn:{task}"


class ClientKeys:
    """The name of what a key keeps for its clients."""

    @staticmethod
    def root(owner: str) -> str:
        return f"client:{{{quote(owner, safe='')}}}"


def rate_key(name: str) -> str:
    """The counter of a window, by its client and its limit."""
    return f"rate:{{{name}}}"


def chat_root(digest: str) -> str:
    """The conversation that gave the last answer of a chat, by the digest of the chat."""
    return f"chat:{{{digest}}}"


def followers_channel(process: str) -> str:
    """The channel from a process to its own subscriber."""
    return f"follower:{process}"


#: seqs of one member of `conv:{ID}:peaks`; `store/scripts/_log.lua` counts them
PEAK_SEQS = 1000

#: stands for any kind or source in the scripts; no escaped name can be it
ANY = "*"


@lru_cache(maxsize=4096)
def escaped(name: str) -> str:
    """A kind or source as a part of a key: without `:`, braces, `*` or bytes outside ASCII."""
    return quote(name, safe="")


def pair(kind: str, source: str) -> str:
    """The name of an event's sorted set, after the prefix `conv:{ID}:at:`."""
    return f"{escaped(kind)}:{escaped(source)}"
