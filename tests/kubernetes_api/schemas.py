"""The published schemas of Kubernetes, in the strict form that refuses a field that a kind does not have.

They come from the package kubernetes-validate, which has those of many versions.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry, Resource

#: the oldest Kubernetes that `docs/kubernetes.md` promises, and the newest one that the package knows
OLDEST, NEWEST = "1.30", "1.37"

_ALL = files("kubernetes_validate") / "kubernetes-json-schema"
_SHARED = "https://kubernetes.io/api/_definitions.json#/$defs"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"

_WORDS = {"type": "object", "additionalProperties": {"type": "string"}}
_TEMPLATE_META = {
    "type": "object",
    "additionalProperties": False,
    "properties": dict(labels=_WORDS, annotations=_WORDS),
}

#: A Sandbox of agent-sandbox 0.5, as its `api/v1beta1/sandbox_types.go` has it. Its custom resource definition is no
#: part of Kubernetes; the pod and the claims in it are.
_SANDBOX: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"enum": ["agents.x-k8s.io/v1beta1"]},
        "kind": {"enum": ["Sandbox"]},
        "metadata": {"$ref": f"{_SHARED}/{_META}.ObjectMeta"},
        "status": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["podTemplate"],
            "properties": {
                "podTemplate": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["spec"],
                    "properties": {
                        "metadata": _TEMPLATE_META,
                        "spec": {"$ref": f"{_SHARED}/io.k8s.api.core.v1.PodSpec"},
                    },
                },
                "operatingMode": {"enum": ["Running", "Suspended"]},
                "service": {"type": "boolean"},
                "shutdownTime": {"type": "string", "format": "date-time"},
                "shutdownPolicy": {"enum": ["Delete", "Retain"]},
            },
        },
    },
}


def fault(body: dict[str, Any], version: str = OLDEST) -> str:
    """The worst fault of an object, with its path; empty where that version of Kubernetes knows every field of it.

    Raises FileNotFoundError for a kind that this version does not have.
    """
    validator = _validator(str(body.get("apiVersion")), str(body.get("kind")), version)
    found = best_match(validator.iter_errors(body))
    return f'"{found.json_path.removeprefix("$.")}": {found.message}' if found else ""


@cache
def _validator(api: str, kind: str, version: str) -> Draft202012Validator:
    folder = _ALL / f"v{version}.0-local-strict"
    if kind == "Sandbox":
        schema = _SANDBOX
    else:
        group, _, number = api.rpartition("/")
        name = "-".join(filter(None, [kind.lower(), group.partition(".")[0], number]))
        schema = json.loads((folder / f"{name}.json").read_text())
    return Draft202012Validator(schema, registry=_shared(version))


@cache
def _shared(version: str) -> Registry[Any]:
    """What the schemas of a version have in common."""
    text = (_ALL / f"v{version}.0-local-strict" / "_definitions.json").read_text()
    return Resource.from_contents(json.loads(text)) @ Registry()
