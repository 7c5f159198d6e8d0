"""The official client, connected with the cluster that kubectl would find, and the API server's errors as sentences.

The cluster is that of KUBECONFIG, else of ~/.kube/config; a process in a pod without either uses the pod's service
account. The namespace is that of the kubeconfig's context, or the pod's own.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from runtimes import RuntimeFailure

#: requests at once, each on a connection of its own
_CONNECTIONS = 32

#: what to do where a ResourceQuota is used up
MORE_ROOM = ". Delete or pause sandboxes, or raise the namespace's ResourceQuota"

#: the folder that the cluster mounts in a pod that has a service account
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Refused(RuntimeFailure):
    """The API server refused a call. status: of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def naming(what: str) -> Iterator[None]:
    """A failure of the cluster within the block begins with `what`; other failures stay as they are."""
    try:
        yield
    except RuntimeFailure as error:
        if type(error) not in (RuntimeFailure, Refused):
            raise
        raise RuntimeFailure(f"{what}: {error}") from error


@dataclass(frozen=True)
class Connection:
    """The client's objects, which any number of threads may use."""

    core: Any
    networking: Any
    custom: Any
    namespace: str
    host: str  #: URL of the API server

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the client's errors into Refused, and into RuntimeFailure where nothing answers."""
        client, urllib3 = import_module("kubernetes.client"), import_module("urllib3")
        try:
            yield
        except client.ApiException as error:
            raise _refusal(error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise RuntimeFailure(f"no API server answers at {self.host}: {error}") from error


def connect() -> Connection:
    """Load the client and its settings; nothing is sent. Raises RuntimeFailure where either is missing."""
    try:
        # It takes 36 MB and a third of a second, which only a supervisor with such a spec shall spend.
        client, config = import_module("kubernetes.client"), import_module("kubernetes.config")
    except ModuleNotFoundError as error:
        raise RuntimeFailure(
            f"its spec wants kubernetes, and there is no package {error.name}: "
            "pip install -r requirements-kubernetes.txt"
        ) from None
    settings = client.Configuration()
    file = os.environ.get("KUBECONFIG", "")
    try:
        if file or not _ACCOUNT.exists():
            config.load_kube_config(file or None, client_configuration=settings)
            context = config.list_kube_config_contexts(file or None)[1]["context"]
            namespace = context.get("namespace") or "default"
        else:
            config.load_incluster_config(client_configuration=settings)
            namespace = (_ACCOUNT / "namespace").read_text().strip()
    except Exception as error:  # a malformed file ends the client's reader in many ways
        raise RuntimeFailure(
            f"no cluster is configured: set KUBECONFIG to a kubeconfig, or run the supervisor in a pod with a "
            f"service account: {error}"
        ) from error
    settings.retries = False  # the supervisor retries, and says so
    settings.connection_pool_maxsize = _CONNECTIONS
    api = client.ApiClient(settings)
    return Connection(
        client.CoreV1Api(api), client.NetworkingV1Api(api), client.CustomObjectsApi(api), namespace, settings.host
    )


def _refusal(error: Any) -> Refused:
    """What the API server says, and what to do about it. error: an ApiException."""
    try:
        message = str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the API server responds with status {error.status}: {error.reason}"
    if error.status == 401:
        message += ". The API server does not accept the supervisor's credentials: renew those of KUBECONFIG"
    elif error.status == 403 and "exceeded quota" in message:
        message += MORE_ROOM
    elif error.status == 403 and "cannot" in message:
        message += ". Give the supervisor's account the Role of deploy/kubernetes/rbac.yaml"
    return Refused(message, error.status)
