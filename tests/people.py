"""An app behind a proxy that names people, and requests as that proxy sends them on."""

from app import create_app
from blueprints.people import SECRET_HEADER
from settings.config import Config
from tests.shared import ADMIN

SECRET = "the-proxy-shows-this-secret"
PROXY, ELSEWHERE = "10.1.2.3", "10.9.9.9"

SETTINGS = {
    "auth": "keys",
    "api_keys": (ADMIN,),
    "person_header": "X-Forwarded-User",
    "person_groups_header": "X-Forwarded-Groups",
    "person_proxies": ("10.1.2.0/24",),
    "person_proxy_secret": SECRET,
}


def proxied_app(redis_url):
    """An app that trusts the same proxy in what it says of people and of clients' addresses."""
    return create_app(
        Config.of(
            redis_url=redis_url,
            redis_timeout=10,
            secret_key="a key for tests only",
            rate_limit_failures="none",
            rate_limit_writes="none",
            trusted_proxies=("10.1.2.0/24",),
            **SETTINGS,
        )
    )


def through(name="ada@example.org", groups=None, *, secret=SECRET, **more):
    """What a request has that the proxy sends for a person."""
    headers = {} if name is None else {"X-Forwarded-User": name}
    headers |= {} if groups is None else {"X-Forwarded-Groups": groups}
    headers |= {} if secret is None else {SECRET_HEADER: secret}
    return {"headers": {**headers, **more}, "environ_base": {"REMOTE_ADDR": PROXY}}


def by(key=ADMIN, **more):
    """What a request has that shows a key."""
    return {"headers": {"Authorization": f"Bearer {key}", **more}}


class Team:
    """What people with rights do at an app; their grants and rules end with it."""

    def __init__(self, app):
        self.client = app.test_client()
        self._made = []

    def grants(self, role, **wanted):
        return self._make("/api/v1/grants", {"role": role, **wanted})

    def asks(self, **rule):
        """Make a rule that asks about each command of the terminal, unless it says otherwise."""
        return self._make("/api/v1/approval-rules", {"decision": "ask", "tool_name": "terminal", **rule})

    def rules(self, **rule):
        return self._make("/api/v1/approval-rules", {"tool_name": "terminal", **rule})

    def _make(self, path, body):
        response = self.client.post(path, json=body, **by())
        assert response.status_code == 201, response.json
        self._made.append(f"{path}/{response.json['id']}")
        return response.json["id"]

    def revokes(self, identity):
        [path] = [one for one in self._made if one.endswith(identity)]
        assert self.client.delete(path, **by()).status_code == 200

    def ends(self):
        for path in self._made:
            self.client.delete(path, **by())

    def starts(self, conversation, who=None, **body):
        body = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}, **body}
        response = self.client.post("/api/conversations", json=body, **(who or by()))
        assert response.status_code == 201, response.json

    def posts(self, conversation, *events):
        response = self.client.post(f"/api/v1/webhooks/events/{conversation}", json=list(events), **by())
        assert response.status_code == 200, response.json

    def decides(self, conversation, action_id, who, verb="approve", **more):
        decisions = [{"action_id": action_id, "decision": verb, **more}]
        path = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
        return self.client.post(path, json={"decisions": decisions}, **who)

    def waiting(self, conversation, who=None):
        path = f"/api/v1/pending-actions?conversation_id={conversation}"
        return self.client.get(path, **(who or by())).json["items"]

    def audit(self, conversation):
        return self.client.get(f"/api/v1/conversation/{conversation}/audit", **by()).json["items"]

    def decided(self, conversation):
        """The audit in short: decision and name of who took it."""
        return [(one["decision"], one["actor"]["name"]) for one in self.audit(conversation)]
