"""What the server sends. Made by docs/make.py from docs/openapi.json."""

from typing import TYPE_CHECKING, Any, Literal

#: one entry of a log, whole: every kind has members of its own
Event = dict[str, Any]


class Record(dict[str, Any]):
    """An object of JSON, whose members are attributes too: `sandbox.status` is `sandbox["status"]`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(f"There is no {name!r} here, but {', '.join(self) or 'nothing'}") from None


class ActionDecision(Record):
    action_ids: list[str]
    actor: "Decider"
    decision: Literal["approve", "reject", "edit", "unapproved", "deleted", "mode_changed", "withdrawn"]
    edited_shown: list["ShownAction"]
    reason: str
    seq: int
    time: str


class Actor(Record):
    kind: Literal[
        "key",
        "link",
        "message",
        "run",
        "rule",
        "expiry",
        "agent",
        "sandbox",
        "deletion",
        "server",
        "person",
        "terminal",
        "lease",
    ]
    name: str
    address: str


class AppConversationStartTask(Record):
    id: str
    created_by_user_id: Any
    status: Literal[
        "WORKING",
        "WAITING_FOR_SANDBOX",
        "PREPARING_REPOSITORY",
        "RUNNING_SETUP_SCRIPT",
        "SETTING_UP_GIT_HOOKS",
        "SETTING_UP_SKILLS",
        "STARTING_CONVERSATION",
        "READY",
        "ERROR",
    ]
    detail: str | None
    failure_status: int | None
    failed_in: Literal[
        "WORKING",
        "WAITING_FOR_SANDBOX",
        "PREPARING_REPOSITORY",
        "RUNNING_SETUP_SCRIPT",
        "SETTING_UP_GIT_HOOKS",
        "SETTING_UP_SKILLS",
        "STARTING_CONVERSATION",
        None,
    ]
    app_conversation_id: str | None
    sandbox_id: str | None
    agent_server_url: str | None
    request: dict[str, Any]
    created_at: str
    updated_at: str


class ApprovalMode(Record):
    name: Literal["everything", "risky", "outside", "nothing"]
    words: str
    detail: str
    policy: dict[str, Any]
    needs_sandbox: bool
    approves_inside: bool


class ApprovalRule(Record):
    id: str
    decision: Literal["approve", "reject", "ask"]
    tool_name: str
    arguments: dict[str, Any] | None
    max_risk: str | None
    conversation_ids: list[str] | None
    key_id: str | None
    repository: str | None
    folder: str | None
    machine: str | None
    person: str | None
    agent: str | None
    tags: dict[str, Any] | None
    expires_at: str | None
    max_uses: int | None
    reason: str
    effects: (
        list[
            Literal[
                "privileges",
                "credentials",
                "deletes",
                "history",
                "writes_outside",
                "unreadable",
                "network",
                "scripts",
                "unknown",
                "writes_temporary",
                "writes_inside",
                "reads_outside",
                "reads",
            ]
        ]
        | None
    )
    created_at: str
    created_by: str
    quorum: int
    not_by_owner: bool
    not_by_asker: bool
    uses: int
    last_used_at: str | None
    ended_at: str | None
    ended_by: str


class ApprovalRuleRequest(Record):
    arguments: dict[str, Any] | None
    max_risk: Literal["LOW", "MEDIUM", "HIGH"]
    conversation_ids: list[str] | None
    key_id: str | None
    repository: str | None
    folder: str | None
    machine: str | None
    person: str | None
    agent: str | None
    tags: dict[str, Any] | None
    expires_at: str | None
    max_uses: int | None
    reason: str
    effects: (
        list[
            Literal[
                "privileges",
                "credentials",
                "deletes",
                "history",
                "writes_outside",
                "unreadable",
                "network",
                "scripts",
                "unknown",
                "writes_temporary",
                "writes_inside",
                "reads_outside",
                "reads",
            ]
        ]
        | None
    )
    decision: Literal["approve", "reject", "ask"]
    tool_name: str
    quorum: int
    not_by_owner: bool
    not_by_asker: bool


class AskedBudgetInfo(Record):
    setting: Literal["MODEL_BUDGET_CONVERSATION", "MODEL_BUDGET_KEY", "MODEL_BUDGET_DAY"]
    key_id: str | None
    day: str | None
    dollars: float | None
    tokens: int | None


class AskedDestinationInfo(Record):
    subject: Literal["destination", "budget"]
    sandbox_id: str
    conversation_id: str | None
    name: str | None
    port: int | None
    program: str | None
    tries: int
    since: str
    tried_at: str
    expires_at: str | None
    digest: str
    budget: "AskedBudgetInfo | None"


class AskedFrom(Record):
    agent: str
    machine: str
    person: str
    folder: str
    kind: Literal["permission", "gate"]
    order: Literal["races", "first"]
    answerable_until: str
    in_terminal: bool


class AuditEntry(Record):
    conversation_id: str | None
    chain: str
    seq: int
    time: str
    actor: "Actor"
    decision: Literal[
        "approve",
        "reject",
        "edit",
        "deleted",
        "unapproved",
        "asked",
        "refused",
        "rule_made",
        "rule_revoked",
        "terminal_opened",
        "terminal_closed",
        "preview_opened",
        "push_begun",
        "joined",
        "agree",
        "owner_changed",
        "mode_changed",
        "withdrawn",
    ]
    action_ids: list[str]
    digests: list[str]
    conversation_title: str
    shown: list["ShownAction | None"]
    edited: list[str]
    edited_shown: list["ShownAction"]
    agreed: list[str]
    needed: int
    destination: "AuditedDestination"
    budget: "AuditedBudget"
    sandbox_id: str
    rule_id: str
    scope: Literal["once", "conversation", "always"]
    reason: str
    previous: str
    hash: str


class AuditedBudget(Record):
    setting: str
    key_id: str
    sandbox_id: str


class AuditedDestination(Record):
    name: str
    port: int
    program: str
    sandbox_id: str


class ConversationInfo(Record):
    id: str
    title: str | None
    execution_status: str
    confirmation_policy: dict[str, Any]
    created_at: str
    updated_at: str
    tags: dict[str, Any]
    stats: dict[str, Any]
    agent: Any
    workspace: Any
    persistence_dir: str
    max_iterations: int
    stuck_detection: bool
    security_analyzer: Any
    activated_knowledge_skills: list[Any]
    invoked_skills: list[Any]
    blocked_actions: dict[str, Any]
    blocked_messages: dict[str, Any]
    last_user_message_id: str | None
    leaf_event_id: str | None
    secret_registry: Any
    agent_state: dict[str, Any]
    hook_config: Any
    metrics: Any
    forked_from_conversation_id: str | None
    forked_from_event_id: str | None
    parent_conversation_id: str | None
    sub_conversation_ids: list[str]
    current_model_id: str | None
    available_models: list[Any]
    supports_runtime_model_switch: bool
    launched_agent_profile: Any
    client_tools: list[Any]
    tool_module_qualnames: Any
    runtime_info: Any
    confirmation_seconds: int | None
    approval_mode: Literal["everything", "risky", "outside", "nothing", None]
    capabilities: list[str]
    unapproved_resumes: int
    external: "ExternalSession | None"


class DecidedExample(Record):
    conversation_id: str
    conversation_title: str | None
    action_id: str
    tool_name: str
    text: str
    decision: Literal["approve", "reject", "edit"]
    actor: "Decider"
    time: str


class Decider(Record):
    kind: Literal[
        "key",
        "link",
        "message",
        "run",
        "rule",
        "expiry",
        "agent",
        "sandbox",
        "deletion",
        "server",
        "person",
        "terminal",
        "lease",
    ]
    name: str


class DecisionsResult(Record):
    success: bool
    rules: list["RuleOfDecision"]
    waiting: list["StillWaiting"]


class DestinationDecided(Record):
    success: bool
    rule_id: str | None


class DeviceInfo(Record):
    id: str
    name: str
    host: str
    shows: Literal["everything", "nothing"]
    renewed_at: str
    expires_at: str
    queued: int
    last_success_at: str | None
    last_failure_at: str | None
    last_failure: str | None


class ExposedUrl(Record):
    name: str
    url: str
    port: int


class ExternalSession(Record):
    kind: Any
    agent: str
    version: str
    machine: str
    person: str
    folder: str
    mode: str
    session: str


class FolderRecord(Record):
    seq: int
    event_ids: list[str]


class FolderRecords(Record):
    forks_have_files: bool
    can_return: bool
    records: list["FolderRecord"]


class GitChange(Record):
    status: str
    path: str


class GitDiff(Record):
    modified: str | None
    original: str | None


class GrantInfo(Record):
    id: str
    person: str | None
    group: str | None
    role: Literal["ask", "steer", "approve", "admin"]
    tags: dict[str, Any] | None
    created_by: str
    created_at: str


class Host(Record):
    id: str
    seen_at: str
    sandboxes: int
    version: str | None


class HostIsolation(Record):
    kind: Literal["bubblewrap", "landlock", "container", "none"]
    network: Literal["internet", "named", "none", "host"]
    reaches: list[str]
    lacks: list[str]
    host: str
    specs: list["SpecIsolation"]


class Isolation(Record):
    kind: Literal["bubblewrap", "landlock", "container", "none"]
    network: Literal["internet", "named", "none", "host"]
    reaches: list[str]
    lacks: list[str]


class KeyInfo(Record):
    id: str
    name: str
    scopes: list[Literal["read", "write", "approve", "admin", "ask"]]
    created_at: str
    expires_at: str | None
    used_at: str | None
    person: str


class ListedConversation(Record):
    id: str
    title: str | None
    execution_status: Literal[
        "idle", "running", "paused", "waiting_for_confirmation", "finished", "error", "stuck", "deleting"
    ]
    pending: int
    events: int
    tags: dict[str, Any]
    sandbox_id: str | None
    parent_conversation_id: str | None
    llm_model: str | None
    external: "ExternalSession | None"
    owner: str | None
    created_at: str
    updated_at: str


class MissingInfo(Record):
    what: Literal["model", "key"]
    words: str
    command: str


class NewKey(Record):
    id: str
    name: str
    scopes: list[Literal["read", "write", "approve", "admin", "ask"]]
    created_at: str
    expires_at: str | None
    used_at: str | None
    person: str
    key: str
    notice: str | None


class NotificationOutcome(Record):
    id: str
    name: str
    delivered: bool
    detail: str


class OwnGrant(Record):
    id: str
    person: str | None
    group: str | None
    role: Literal["ask", "steer", "approve", "admin"]
    tags: dict[str, Any] | None


class PreviewAddress(Record):
    url: str
    expires_at: str


class Push(Record):
    branch: str
    commit: str
    url: str
    pull_request: str | None
    offered_url: str | None


class ReadyAnswer(Record):
    scope: Literal["conversation", "folder", "repository", "machine", "person", "agent", "key", "everywhere"]
    sentence: str
    rule: "ApprovalRuleRequest"
    answered: int
    kind: Literal["exactly", "like", "reads", "tool"]
    of: int
    proposed: str
    scopes: list["ScopedAnswer"]


class RehearsalResult(Record):
    answered: int
    rejected: int
    unread: int
    examples: list["DecidedExample"]
    decided: int
    next_page_id: str | None


class Remote(Record):
    path: str
    url: str
    branch: str
    base: str
    proposed_branch: str
    proposed_title: str
    lacks: str | None


class Return(Record):
    id: str
    event_id: str
    left_event_id: str


class RuleOfDecision(Record):
    action_id: str
    rule_id: str | None
    detail: str | None


class SandboxInfo(Record):
    id: str
    created_by_user_id: Any
    sandbox_spec_id: str
    status: Literal["STARTING", "RUNNING", "PAUSED", "ERROR", "MISSING"]
    session_api_key: str | None
    exposed_urls: list["ExposedUrl"] | None
    created_at: str
    status_detail: str | None
    status_since: str
    host: str | None
    disk_bytes: int | None
    memory_bytes: int | None
    cpu_cores: float | None
    isolation: "Isolation | None"
    stray_conversations: "StrayConversations | None"


class SandboxPlaces(Record):
    running: int
    most: int


class SandboxSpecInfo(Record):
    id: str
    command: list[str]
    created_at: str
    initial_env: dict[str, Any]
    working_dir: str
    agent: "SpecAgent | None"
    approval_mode: Literal["everything", "risky", "outside", "nothing", None]
    missing: "MissingInfo | None"


class ScopedAnswer(Record):
    scope: Literal["conversation", "folder", "repository", "machine", "person", "agent", "key", "everywhere"]
    sentence: str
    rule: "ApprovalRuleRequest"
    answered: int


class SeenAction(Record):
    risk: Literal["LOW", "MEDIUM", "HIGH"]
    effects: list["SeenEffect"]


class SeenEffect(Record):
    effect: Literal[
        "privileges",
        "credentials",
        "deletes",
        "history",
        "writes_outside",
        "unreadable",
        "network",
        "scripts",
        "unknown",
        "writes_temporary",
        "writes_inside",
        "reads_outside",
        "reads",
    ]
    risk: Literal["LOW", "MEDIUM", "HIGH"]
    words: str
    because: str


class ServerInfo(Record):
    title: str
    version: str
    api_version: str
    sdk_version: str
    tools_version: str
    workspace_version: str
    python_version: str
    uptime: float
    idle_time: float
    build_git_sha: Any
    build_git_ref: Any
    conversation_runtime: Any
    available_conversation_runtimes: list[str]
    runtime_idle_timeout_seconds: Any
    max_foreground_terminal_timeout_seconds: Any
    app_backend_ingress_url: Any
    capabilities: list[str]
    usable_tools: list[str]
    store: "StoreDetails | None"
    workers: int
    hosts: list["Host"] | None
    sandboxes: "SandboxPlaces | None"
    notice: str | None
    isolation: list["HostIsolation"] | None
    auth: Literal["keys", "open", "open_until_key"]
    docs: str
    redoc: str


class ShownAction(Record):
    tool_name: str
    text: str
    summary: str | None


class ShownQuorum(Record):
    needed: int
    approved_by: list[str]
    own: bool
    voted: bool


class SpecAgent(Record):
    name: str
    title: str
    version: str
    asks: bool
    key: str
    holds: str
    passes: str


class SpecIsolation(Record):
    kind: Literal["bubblewrap", "landlock", "container", "none"]
    network: Literal["internet", "named", "none", "host"]
    reaches: list[str]
    lacks: list[str]
    spec: str


class StillWaiting(Record):
    action_id: str
    needed: int
    approved_by: list[str]


class StoreDetails(Record):
    kind: Literal["redis", "valkey", "fakeredis"]
    durable: bool
    durability: str
    version: str | None
    used_memory_bytes: int | None
    max_memory_bytes: int | None
    policy: str | None
    fsync: str | None


class StrayConversation(Record):
    id: str
    title: str | None
    execution_status: Literal[
        "idle", "running", "paused", "waiting_for_confirmation", "finished", "error", "stuck", "deleting", None
    ]


class StrayConversations(Record):
    count: int
    newest: list["StrayConversation"]


class User(Record):
    id: str
    name: str
    scopes: list[Literal["read", "write", "approve", "admin", "ask"]]
    person: str | None
    groups: list[str]
    grants: list["OwnGrant"]
    llm_model: str | None
    llm_base_url: str | None
    llm_api_key: str | None
    llm_profiles: Any
    mcp_config: Any


class WaitingAction(Record):
    conversation_id: str
    conversation_title: str | None
    tags: dict[str, Any]
    action_id: str
    tool_name: str
    summary: str | None
    thought: str
    security_risk: Literal["UNKNOWN", "LOW", "MEDIUM", "HIGH"]
    arguments: Any
    since: str
    expires_at: str | None
    digest: str
    sandbox_id: str | None
    can: list[Literal["approve", "reject", "edit"]]
    decided_together: bool
    complete: bool
    risk: Literal["LOW", "MEDIUM", "HIGH"]
    seen: "SeenAction"
    like: dict[str, Any] | None
    folder: str | None
    repository: str | None
    asked_from: "AskedFrom | None"
    quorum: "ShownQuorum"
