"""Numbers of machines reach Prometheus and OpenTelemetry."""

from __future__ import annotations

import random

import pytest

from culm.bymux import Connection, Role
from culm.measures import Measure, Tally, measures
from culm.oxen import Node
from culm_io.metrics import OpenTelemetryExporter, PrometheusExporter


@pytest.fixture
def tally() -> Tally:
    """Of two connections: one that ended well, one that received nonsense."""
    made = Tally()
    for data in (b"", b"\xff"):
        machine = Connection(role=Role.REACTIVE)
        machine.receive_data(data)
        machine.receive_eof()
        while (event := machine.next_event()) is not None:
            made.count(event)
    return made


def test_prometheus_is_told_sizes_and_counts(tally: Tally) -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    exporter = PrometheusExporter()
    registry.register(exporter)
    node = Node(me=b"one", rng=random.Random(1), epoch=0.0)
    exporter.tell("oxen", measures(node))
    exporter.tell("bymux", tally.measures())
    text = client.generate_latest(registry).decode()
    assert 'culm_state{of_machine="oxen",state="IDLE"} 1.0' in text.splitlines()
    assert "# TYPE culm_state gauge" in text
    ended = 'culm_events_total{code="UNKNOWN_PACKET_TYPE",event="Closed",of_machine="bymux"} 1.0'
    assert ended in text.splitlines()
    assert "# TYPE culm_events_total counter" in text
    exporter.forget("bymux")
    assert "events" not in client.generate_latest(registry).decode()


def test_open_telemetry_is_told_sizes_and_counts(tally: Tally) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider([reader], shutdown_on_exit=False)
    exporter = OpenTelemetryExporter(provider.get_meter("culm"))
    exporter.tell("bymux", [Measure("unsent_size", 7)])
    exporter.tell("bymux", [Measure("unsent_size", 8), *tally.measures()])
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    found = {
        metric.name: {tuple(sorted(p.attributes.items())): p.value for p in metric.data.data_points}
        for metric in scope.metrics
    }
    assert found["culm.unsent_size"] == {(("of_machine", "bymux"),): 8}
    assert sum(found["culm.events_total"].values()) == 2
