"""Whether the variables of OpenTelemetry ask for traces, and what is in the way. Source: docs/monitoring.md."""

from collections.abc import Mapping
from importlib.util import find_spec

#: OpenTelemetry's variables that name a receiver of traces
_RECEIVERS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

#: the one protocol of the exporter that requirements-otel.txt has
_PROTOCOL = "http/protobuf"

#: what the exporter and the SDK are imported as
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def wants_traces(variables: Mapping[str, str]) -> bool:
    """Whether a receiver is named, or the exporter `otlp`, and neither the SDK nor the exporter is switched off."""
    exporter = variables.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter == "none" or variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return bool(exporter) or any(variables.get(name, "").strip() for name in _RECEIVERS)


def hindrance(variables: Mapping[str, str]) -> str | None:
    """Why there are no traces though they are wanted, as a sentence; None: there are."""
    exporter = variables.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter not in ("", "otlp"):
        return f"OTEL_TRACES_EXPORTER is {exporter!r}: nothing is traced. Allowed are otlp and none."
    of_all = variables.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
    protocol = variables.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "").strip() or of_all
    if protocol not in ("", _PROTOCOL):
        return f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}: nothing is traced. Allowed is {_PROTOCOL}."
    if not all(map(_is_there, _PACKAGES)):
        return (
            "OTEL_… asks for traces, and the packages of OpenTelemetry are not installed: nothing is traced. "
            "pip install -r requirements-otel.txt"
        )
    return None


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # of a package around it
        return False
