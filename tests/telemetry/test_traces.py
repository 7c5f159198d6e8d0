"""When the variables of OpenTelemetry ask for traces, and what they may not ask for."""

import pytest

from telemetry.traces import hindrance, wants_traces

ENDPOINT = "http://127.0.0.1:4318"


ASKED = [
    ({}, False),
    ({"OTEL_SERVICE_NAME": "agents", "OTEL_TRACES_SAMPLER": "always_on"}, False),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}, True),
    ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{ENDPOINT}/v1/traces"}, True),
    ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "True"}, False),
]


def test_a_receiver_or_an_exporter_asks_for_traces_unless_they_are_switched_off():
    assert [(variables, wants_traces(variables)) for variables, _ in ASKED] == ASKED


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OTEL_TRACES_EXPORTER": "console"}, "Allowed are otlp and none"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "Allowed is http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "'grpc'"),
    ],
)
def test_what_the_exporter_cannot_do_is_named_with_what_is_allowed(variables, named):
    assert named in hindrance(variables)


def test_nothing_hinders_where_the_packages_are_installed():
    assert hindrance({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}) is None
