"""What the server sends, as dicts. Made by docs/make.py from docs/openapi.json."""

from typing import Any, Literal, NotRequired, TypedDict

#: one entry of a log, whole: every kind has members of its own
Event = dict[str, Any]


class AppConversationStartTask(TypedDict):
    id: str
    created_by_user_id: NotRequired[Any]
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
    app_conversation_id: str | None
    sandbox_id: str | None
    agent_server_url: str | None
    request: dict[str, Any]
    created_at: str
    updated_at: str


class AskedBudgetInfo(TypedDict):
    setting: Literal["MODEL_BUDGET_CONVERSATION", "MODEL_BUDGET_KEY", "MODEL_BUDGET_DAY"]
    key_id: str | None
    day: str | None
    dollars: float | None
    tokens: int | None


class AskedDestinationInfo(TypedDict):
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


class ConversationInfo(TypedDict):
    id: str
    title: NotRequired[str | None]
    execution_status: str
    confirmation_policy: dict[str, Any]
    created_at: str
    updated_at: str
    tags: dict[str, Any]
    stats: dict[str, Any]
    agent: NotRequired[Any]
    workspace: NotRequired[Any]
    persistence_dir: NotRequired[str]
    max_iterations: NotRequired[int]
    stuck_detection: NotRequired[bool]
    security_analyzer: NotRequired[Any]
    activated_knowledge_skills: NotRequired[list[Any]]
    invoked_skills: NotRequired[list[Any]]
    blocked_actions: NotRequired[dict[str, Any]]
    blocked_messages: NotRequired[dict[str, Any]]
    last_user_message_id: NotRequired[str | None]
    leaf_event_id: NotRequired[str | None]
    secret_registry: Any
    agent_state: NotRequired[dict[str, Any]]
    hook_config: NotRequired[Any]
    metrics: NotRequired[Any]
    forked_from_conversation_id: NotRequired[str | None]
    forked_from_event_id: NotRequired[str | None]
    parent_conversation_id: NotRequired[str | None]
    sub_conversation_ids: NotRequired[list[str]]
    current_model_id: NotRequired[str | None]
    available_models: NotRequired[list[Any]]
    supports_runtime_model_switch: NotRequired[bool]
    launched_agent_profile: NotRequired[Any]
    client_tools: NotRequired[list[Any]]
    tool_module_qualnames: NotRequired[Any]
    runtime_info: NotRequired[Any]
    confirmation_seconds: NotRequired[int | None]
    capabilities: NotRequired[list[str]]
    unapproved_resumes: NotRequired[int]


class DecisionsResult(TypedDict):
    success: bool
    rules: list["RuleOfDecision"]


class DestinationDecided(TypedDict):
    success: bool
    rule_id: str | None


class ExposedUrl(TypedDict):
    name: str
    url: str
    port: int


class GitChange(TypedDict):
    status: str
    path: str


class GitDiff(TypedDict):
    modified: str | None
    original: str | None


class Host(TypedDict):
    id: str
    seen_at: str
    sandboxes: int
    version: str | None


class HostIsolation(TypedDict):
    kind: Literal["bubblewrap", "landlock", "container", "none"]
    network: Literal["internet", "named", "none", "host"]
    reaches: list[str]
    lacks: list[str]
    host: str
    specs: list["SpecIsolation"]


class Isolation(TypedDict):
    kind: Literal["bubblewrap", "landlock", "container", "none"]
    network: Literal["internet", "named", "none", "host"]
    reaches: list[str]
    lacks: list[str]


class KeyInfo(TypedDict):
    id: str
    name: str
    scopes: list[Literal["read", "write", "approve", "admin"]]
    created_at: str
    expires_at: str | None
    used_at: str | None


class ListedConversation(TypedDict):
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
    created_at: str
    updated_at: str


class NewKey(TypedDict):
    id: str
    name: str
    scopes: list[Literal["read", "write", "approve", "admin"]]
    created_at: str
    expires_at: str | None
    used_at: str | None
    key: str
    notice: str | None


class PreviewAddress(TypedDict):
    url: str
    expires_at: str


class RuleOfDecision(TypedDict):
    action_id: str
    rule_id: str | None
    detail: str | None


class SandboxInfo(TypedDict):
    id: str
    created_by_user_id: NotRequired[Any]
    sandbox_spec_id: str
    status: Literal["STARTING", "RUNNING", "PAUSED", "ERROR", "MISSING"]
    session_api_key: NotRequired[str | None]
    exposed_urls: NotRequired[list["ExposedUrl"] | None]
    created_at: str
    status_detail: str | None
    status_since: str
    host: str | None
    disk_bytes: NotRequired[int | None]
    memory_bytes: NotRequired[int | None]
    cpu_cores: NotRequired[float | None]
    isolation: "Isolation | None"
    stray_conversations: "StrayConversations | None"


class SandboxPlaces(TypedDict):
    running: int
    most: int


class ServerInfo(TypedDict):
    title: str
    version: str
    api_version: str
    sdk_version: str
    tools_version: str
    workspace_version: str
    python_version: str
    uptime: float
    idle_time: float
    build_git_sha: NotRequired[Any]
    build_git_ref: NotRequired[Any]
    conversation_runtime: NotRequired[Any]
    available_conversation_runtimes: NotRequired[list[str]]
    runtime_idle_timeout_seconds: NotRequired[Any]
    max_foreground_terminal_timeout_seconds: NotRequired[Any]
    app_backend_ingress_url: NotRequired[Any]
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


class SpecIsolation(TypedDict):
    kind: Literal["bubblewrap", "landlock", "container", "none"]
    network: Literal["internet", "named", "none", "host"]
    reaches: list[str]
    lacks: list[str]
    spec: str


class StoreDetails(TypedDict):
    kind: Literal["redis", "valkey", "fakeredis"]
    durable: bool
    durability: str
    version: str | None
    used_memory_bytes: int | None
    max_memory_bytes: int | None
    policy: str | None
    fsync: str | None


class StrayConversation(TypedDict):
    id: str
    title: str | None
    execution_status: Literal[
        "idle", "running", "paused", "waiting_for_confirmation", "finished", "error", "stuck", "deleting", None
    ]


class StrayConversations(TypedDict):
    count: int
    newest: list["StrayConversation"]


class User(TypedDict):
    id: str
    name: str
    scopes: list[Literal["read", "write", "approve", "admin"]]
    llm_model: NotRequired[str | None]
    llm_base_url: NotRequired[str | None]
    llm_api_key: NotRequired[str | None]
    llm_profiles: NotRequired[Any]
    mcp_config: NotRequired[Any]


class WaitingAction(TypedDict):
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
