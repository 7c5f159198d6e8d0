"""Data of the release in which a sandbox had one key, in plain: none is left in plain, and its sandboxes go on.

`tests/recorded/version_2/` is the folder of an embedded store as that release left it when it was killed: with a
conversation in a sandbox that ran, and a sandbox that was paused.
"""

import json
import shutil

import pytest

from store.sandboxes.sandbox_record import SandboxId
from tests.conftest import RECORDED, SECRET_KEY, event, store_of
from tests.planted import found_in
from tests.servers import redis_server, supervised_server, wait_until
from tests.supervisor.conftest import LIMITS
from tests.v1 import Api

OLD = RECORDED / "version_2"
FACTS = json.loads((OLD / "facts.json").read_text())


@pytest.fixture
def old(tmp_path):
    """The folder of the old store, and a store on it."""
    shutil.copytree(OLD / "appendonlydir", tmp_path / "appendonlydir")
    with redis_server(tmp_path) as (url, _):
        yield tmp_path, store_of(url, LIMITS, SECRET_KEY)


def test_no_key_is_left_in_plain_also_not_in_the_append_only_file(old):
    folder, store = old
    assert found_in(folder / "appendonlydir", FACTS["keys"])

    store.data_version.ensure()

    for name in ("running", "paused"):
        sandbox = store.sandboxes.get(SandboxId(FACTS[name]))
        assert sandbox.session_api_key in FACTS["keys"]
        assert len(sandbox.files_key) == 43
        assert sandbox.hook_hash == ""
    wait_until(lambda: not found_in(folder / "appendonlydir", FACTS["keys"]), "the rewriting of the append-only file")


def test_a_key_of_the_older_release_opens_no_webhook(old):
    _, store = old
    store.data_version.ensure()
    assert [store.sandboxes.of_hook_key(key) for key in FACTS["keys"]] == [None, None]


def test_the_sandboxes_of_the_older_release_start_again_with_keys_of_their_own(tmp_path):
    shutil.copytree(OLD / "appendonlydir", tmp_path / "appendonlydir")
    with supervised_server(tmp_path, HOST_ID="recorded") as (client, _):
        api = Api(client)
        for name in ("running", "paused"):
            api.wait_for(FACTS[name], "ERROR")  # the recorded folder has no files of sandboxes
            api.call("POST", f"/v1/sandboxes/{FACTS[name]}/resume", json={})
            assert api.wait_for(FACTS[name], "RUNNING")["session_api_key"] not in FACTS["keys"]
        path, batch = f"/v1/webhooks/events/{FACTS['conversation']}", [event()]
        for key in FACTS["keys"]:
            for headers in ({"X-Session-API-Key": key}, {"Authorization": f"Bearer {key}"}):
                api.call("POST", path, json=batch, headers=headers, status=401)
        api.clean()
