"""What the server says of itself."""


def test_alive_and_health(client):
    for path in ("/alive", "/health"):
        assert client.get(path).get_json() == {"status": "ok"}


def test_ready_tells_of_the_store(client, redis_url):
    state = client.get("/ready").get_json()

    assert state["status"] == "ready"
    # of the backends, only the real single server keeps an append-only file
    assert state["store"]["durable"] is redis_url.startswith("unix:")
    assert state["store"]["kind"] in ("redis", "fakeredis")


def test_server_info_has_what_clients_check(client):
    info = client.get("/server_info").get_json()

    assert tuple(int(part) for part in info["version"].split(".")) >= (1, 28, 0)
    assert info["title"] == "Agent Server"
    assert info["uptime"] >= 0
    assert "events" in info["capabilities"]
    assert (info["notice"] is None) is info["store"]["durable"]
