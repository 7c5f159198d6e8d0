"""A write is acknowledged when DURABILITY holds: on real servers with a replica, and on servers that sync or do not."""

from uuid import uuid4

import pytest
from redis import Redis

from app import create_app
from core.bounds import Durability
from settings.config import Config
from store.keys import SandboxKeys
from store.link.connection import NotKept, connect, proving
from store.scripts import Scripts, sources
from tests.backends import EVERY_PROGRAM, PROGRAMS, RedisNode, replicated, replicated_cluster, two_primaries
from tests.conftest import action, message
from tests.round_trips import asks_by_request_alone, counted
from tests.servers import store_server, wait_until

pytestmark = pytest.mark.process("starts a pair, and a store that syncs each write")

SYNCS = ("--appendfsync", "always")

#: seconds in which replicas confirm a write here: a refusal takes as long
CONFIRMED = 0.2


def client_of(url: str, durability: str):
    return create_app(Config.of(redis_url=url, durability=durability)).test_client()


def append(client, conversation: str, *events: dict):
    return client.post(f"/api/v1/webhooks/events/{conversation}", json=list(events))


def number_of(client, conversation: str) -> int:
    return client.get(f"/api/conversations/{conversation}/events/count").get_json()


def assert_not_kept(response, *words: str) -> None:
    assert response.status_code == 503, response.get_data(as_text=True)
    assert response.headers["Retry-After"] == "1"
    for word in (*words, "It may have happened, and may be lost yet; a repeat finds it"):
        assert word in response.get_json()["detail"]


def acknowledged(call):
    """The response of a write that holds in the end: a replica may take longer on a busy machine."""
    responses = []

    def is_acknowledged() -> bool:
        responses.append(call())
        return responses[-1].status_code != 503

    wait_until(is_acknowledged, "an acknowledgment")
    return responses[-1]


@pytest.fixture(scope="module", autouse=True)
def hasty():
    """Replicas have little time to confirm a write; all other commands have as long as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("store.link.connection.proving", lambda kind, of, _: proving(kind, of, CONFIRMED))
        yield


@pytest.fixture(scope="module", params=EVERY_PROGRAM)
def program(request):
    return PROGRAMS[request.param]()


@pytest.fixture(scope="module")
def pair(tmp_path_factory, program):
    """A primary and its replica, which sync each write."""
    with replicated(tmp_path_factory.mktemp("pair"), program, "--appendonly", "yes", *SYNCS) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def synced(tmp_path_factory, program):
    """A server that syncs each write: its URL, and a connection to it."""
    with store_server(tmp_path_factory.mktemp("synced"), program, *SYNCS) as (url, _), Redis.from_url(url) as redis:
        yield url, redis


@pytest.fixture(scope="module")
def syncing(synced):
    """A client of the app with DURABILITY=fsync."""
    return client_of(synced[0], "fsync")


@pytest.fixture
def frozen(pair, client, conversation) -> RedisNode:
    """The replica, which has the conversation, and takes nothing more until the test lets it go on."""
    assert acknowledged(lambda: append(client, conversation, message("first"))).status_code == 200
    _, replica = pair
    replica.freeze()
    yield replica
    replica.thaw()


@pytest.fixture(scope="module")
def client(pair):
    """A client of the app with DURABILITY=replicas:1."""
    primary, _ = pair
    app = client_of(f"redis://127.0.0.1:{primary.port}", "replicas:1")
    assert app.get("/ready").get_json()["store"]["durability"] == "replicas:1"
    return app


@pytest.fixture
def waiting(client, conversation):
    """The id of an action that waits for a decision."""
    policy = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    assert acknowledged(lambda: client.post("/api/conversations", json=policy)).status_code in (200, 201)
    proposed = action()
    assert acknowledged(lambda: append(client, conversation, proposed)).status_code == 200
    return proposed["id"]


class TestReplicas:
    """DURABILITY=replicas:1"""

    def test_an_append_is_refused_until_the_replica_has_it_and_a_repeat_finds_it(self, client, conversation, frozen):
        event = message("once")

        # When the replica takes nothing, every attempt is refused, also those that have nothing left to write
        for _ in range(2):
            assert_not_kept(append(client, conversation, event), "Fewer than 1 replicas", "DURABILITY=replicas:1")
        assert number_of(client, conversation) == 2  # reads go on

        # When it goes on, the repeat is acknowledged, and the event is there once
        frozen.thaw()
        assert acknowledged(lambda: append(client, conversation, event)).status_code == 200
        assert number_of(client, conversation) == 2

    @pytest.mark.usefixtures("frozen")
    def test_a_repeat_by_another_process_proves_the_write_of_the_first(self, pair, client, conversation):
        primary, _ = pair
        event = message("once")
        assert_not_kept(append(client, conversation, event))

        another = client_of(f"redis://127.0.0.1:{primary.port}", "replicas:1")
        assert_not_kept(append(another, conversation, event))

    @pytest.mark.usefixtures("frozen")
    def test_a_script_that_finds_nothing_left_to_write_proves_what_was_written_before(self, pair):
        primary, _ = pair
        primary.redis.set("written by an attempt", "that died before its proof")
        durability = Durability(replicas=1)
        url = f"redis://127.0.0.1:{primary.port}"
        clients = connect(url, timeout=5, max_connections=2, durability=durability)

        with pytest.raises(NotKept):
            Scripts(clients.commands, durability).leave_place(
                SandboxKeys.root, sandbox="nobody", conversation="nothing", made=False
            )

    def test_a_creation_is_refused_until_the_replica_has_it(self, client, frozen):
        def create():
            return client.post("/api/conversations", json={"conversation_id": identity, "title": "once"})

        identity = str(uuid4())

        assert_not_kept(create())
        assert_not_kept(create())

        frozen.thaw()
        assert acknowledged(create).status_code in (200, 201)
        found = client.get("/api/conversations/search", query_string={"limit": 100}).get_json()["items"]
        assert [one["id"] for one in found].count(identity) == 1

    def test_a_creation_with_an_idempotency_key_is_repeated_at_once(self, client, frozen):
        def create():
            return client.post("/api/conversations", json={"title": "keyed"}, headers={"Idempotency-Key": key})

        key = str(uuid4())
        assert_not_kept(create())
        assert_not_kept(create())

        frozen.thaw()
        first, second = acknowledged(create), acknowledged(create)
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.get_json()["id"] == second.get_json()["id"]

    def test_a_decision_is_refused_until_the_replica_has_it(self, client, conversation, waiting, frozen):
        def decide():
            decision = {"decisions": [{"action_id": waiting, "decision": "reject"}]}
            return client.post(f"/api/v1/conversation/{conversation}/pending-actions/decisions", json=decision)

        assert_not_kept(decide())

        frozen.thaw()
        acknowledged(decide)
        rejections = client.get(f"/api/conversations/{conversation}/events/search?kind=UserRejectObservation")
        assert [one["action_id"] for one in rejections.get_json()["items"]] == [waiting]

    def test_a_deletion_is_refused_until_the_replica_has_it(self, client, conversation, frozen):
        assert_not_kept(client.delete(f"/api/conversations/{conversation}"))

        frozen.thaw()
        acknowledged(lambda: client.delete(f"/api/conversations/{conversation}"))
        assert client.get(f"/api/conversations/{conversation}").status_code == 404

    def test_readiness_names_the_replicas_that_are_missing(self, pair, client):
        primary, replica = pair
        replica.redis.replicaof("NO", "ONE")
        wait_until(lambda: primary.redis.info("replication")["connected_slaves"] == 0, "the replica to leave")

        refused = client.get("/ready")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "DURABILITY=replicas:1 does not hold: 0 replicas are connected" in refused.get_json()["detail"]
        assert refused.get_json()["detail"] in client.get("/server_info").get_json()["notice"]

        replica.follow(primary)
        wait_until(lambda: client.get("/ready").status_code == 200, "readiness")

    def test_more_replicas_than_there_are_confirm_nothing(self, pair, conversation):
        primary, _ = pair
        two = client_of(f"redis://127.0.0.1:{primary.port}", "replicas:2")

        assert_not_kept(append(two, conversation, message("one has it")), "Fewer than 2 replicas")
        assert two.get("/ready").status_code == 503

    def test_scripts_that_the_primary_has_forgotten_are_loaded_again(self, pair, client, conversation):
        primary, _ = pair
        for text in ("one", "two"):
            primary.redis.script_flush()
            event = message(text)
            assert acknowledged(lambda event=event: append(client, conversation, event)).status_code == 200
        assert number_of(client, conversation) == 2

    def test_a_refusal_of_redis_leaves_no_reply_behind(self, pair, client, conversation):
        primary, _ = pair
        one, two = message("one"), message("two")
        assert acknowledged(lambda: append(client, conversation, one)).status_code == 200
        primary.redis.config_set("min-replicas-to-write", 2)
        try:
            for _ in range(3):
                assert append(client, conversation, message("refused")).status_code == 503
        finally:
            primary.redis.config_set("min-replicas-to-write", 0)

        assert acknowledged(lambda: append(client, conversation, two)).get_json()["seq"] == 2
        assert number_of(client, conversation) == 2

    def test_a_write_leaves_no_key_behind_that_was_written_for_its_proof(self, pair, client, conversation):
        primary, _ = pair
        one = message("one")
        assert acknowledged(lambda: append(client, conversation, one)).status_code == 200

        assert not [key for key in primary.redis.scan_iter() if key.endswith(b":mark")]


@pytest.mark.cluster("starts a cluster of its own, and freezes its replica")
def test_a_cluster_proves_a_write_on_the_node_of_its_slot(tmp_path, program, conversation):
    with replicated_cluster(tmp_path, program) as (primary, replica):
        client = client_of(f"redis+cluster://127.0.0.1:{primary.port}", "replicas:1")
        event = message("once")
        kept = message("kept")
        assert acknowledged(lambda: append(client, conversation, kept)).status_code == 200
        assert client.get("/ready").status_code == 200

        replica.freeze()
        for _ in range(2):
            assert_not_kept(append(client, conversation, event), "Fewer than 1 replicas")
        replica.thaw()
        assert acknowledged(lambda: append(client, conversation, event)).status_code == 200
        assert number_of(client, conversation) == 2


@pytest.mark.cluster("starts a cluster of its own")
def test_a_cluster_is_ready_when_every_primary_is(tmp_path, program):
    with two_primaries(tmp_path, program, "--appendonly", "yes", *SYNCS) as (first, second):
        client = client_of(f"redis+cluster://127.0.0.1:{first.port}", "fsync")
        assert client.get("/ready").get_json()["store"]["durable"] is True

        for node in (second, first):
            node.redis.config_set("appendfsync", "everysec")
            assert "appendfsync is everysec" in client.get("/ready").get_json()["detail"]
            node.redis.config_set("appendfsync", "always")
        assert client.get("/ready").status_code == 200


class TestFsync:
    """DURABILITY=fsync"""

    def test_a_server_that_syncs_each_write_is_ready_and_acknowledges(self, syncing, conversation):
        assert syncing.get("/ready").get_json()["store"]["durability"] == "fsync"
        assert append(syncing, conversation, message("kept")).status_code == 200

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("appendfsync", "everysec"),
            ("appendfsync", "no"),
            ("appendonly", "no"),
            ("no-appendfsync-on-rewrite", "yes"),
        ],
    )
    def test_a_setting_that_syncs_less_refuses_writes_until_it_is_changed(
        self, synced, syncing, conversation, setting, value
    ):
        (_, redis), client, event = synced, syncing, message("once")
        before = redis.config_get(setting)[setting]
        assert append(client, conversation, message("kept")).status_code == 200

        redis.config_set(setting, value)  # while the server runs
        assert_not_kept(append(client, conversation, event), f"{setting} is {value}", "DURABILITY=fsync")
        assert f"{setting} is {value}" in client.get("/ready").get_json()["detail"]
        assert number_of(client, conversation) == 2

        redis.config_set(setting, before)
        wait_until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"], "the first file")
        assert append(client, conversation, event).status_code == 200
        assert client.get("/ready").status_code == 200
        assert number_of(client, conversation) == 2

    def test_a_server_that_does_not_show_its_settings_is_not_believed(self, synced, conversation):
        url, redis = synced
        rights = {"keys": ["*"], "channels": ["*"], "categories": ["+@all"], "commands": ["-config"]}
        redis.acl_setuser("app", enabled=True, nopass=True, **rights)
        client = client_of(url.replace("unix://", "unix://app:any@"), "fsync")

        assert_not_kept(append(client, conversation, message("unknown")), "Redis does not say", "config")
        assert "appendonly is not shown" in client.get("/ready").get_json()["detail"]

    @pytest.mark.process("starts fakeredis")
    @pytest.mark.parametrize("durability", ["fsync", "replicas:1"])
    def test_fakeredis_keeps_nothing_and_says_so(self, backend_url, conversation, durability):
        client = client_of(backend_url("fakeredis"), durability)

        assert append(client, conversation, message("lost")).status_code == 503
        assert "fakeredis does not show its state" in client.get("/ready").get_json()["detail"]


@pytest.mark.parametrize("durability", ["fsync", "none"])
def test_a_server_that_deletes_data_when_it_is_full_is_not_ready(synced, durability):
    url, redis = synced
    client = client_of(url, durability)
    for policy in ("allkeys-lru", "volatile-ttl"):
        redis.config_set("maxmemory-policy", policy)
        assert client.get("/ready").status_code == 200  # without a limit it is never full

        redis.config_set("maxmemory", 100_000_000)
        refused = client.get("/ready")
        assert refused.status_code == 503
        assert f"maxmemory is 100000000, maxmemory-policy is {policy}" in refused.get_json()["detail"]

        redis.config_set("maxmemory-policy", "noeviction")
        assert client.get("/ready").status_code == 200
        redis.config_set("maxmemory", 0)


def test_a_proof_takes_no_round_trip(pair, client, conversation):
    def trips(client) -> int:
        first, second = message("loads the scripts"), message("counted")
        asks_by_request_alone(client.application.extensions["server"].store)
        acknowledged(lambda: append(client, conversation, first))
        with counted() as found:
            append(client, conversation, second)
        return found.number

    url = f"redis://127.0.0.1:{pair[0].port}"
    assert trips(client) == trips(client_of(url, "fsync")) == trips(client_of(url, "none"))


SCRIPTS = sources()


#: scripts whose writes responses acknowledge
ACKNOWLEDGED = {
    *("append_events", "send_message", "decide_pending", "create_conversation", "delete_conversation"),
    *("set_fields", "change_status", "start_sandbox", "create_start_task", "queue_message", "make_access_key"),
}


def test_what_a_response_acknowledges_is_proven_and_what_reads_only_waits_for_no_proof():
    reading = {name for name, script in SCRIPTS.items() if not script.writes}
    proven = {name for name, script in SCRIPTS.items() if script.is_acknowledged}

    assert proven >= ACKNOWLEDGED
    assert reading
    assert not proven & reading
