"""Numbers of machines for Prometheus (`prometheus_client`) and OpenTelemetry.

An exporter is told the numbers where the machines are driven, and hands them on from whichever
thread it is asked in::

    exporter = PrometheusExporter()
    prometheus_client.REGISTRY.register(exporter)
    prometheus_client.start_http_server(9100)
    ...
    exporter.tell("raft", [*measures(node), *tally.measures()])  # every few seconds

Counts (``..._total``) only grow; all else are gauges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from culm.measures import Measure

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client import Metric

__all__ = ["OpenTelemetryExporter", "PrometheusExporter"]

_OF = "of_machine"  # the label that says which of the machines it is
_COUNT = "_total"


class _Told:
    """The last numbers of each machine.  Each is replaced as a whole, so any thread may read."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Measure, ...]] = {}

    def tell(self, machine: str, numbers: Iterable[Measure]) -> None:
        """Take the numbers that a machine has now; `machine` is a name for it."""
        self._told[machine] = tuple(numbers)

    def forget(self, machine: str) -> None:
        """Leave out a machine that has ended."""
        self._told.pop(machine, None)

    def _numbers(self) -> Iterator[tuple[Measure, dict[str, str]]]:
        for machine, numbers in tuple(self._told.items()):
            for each in numbers:
                yield each, {_OF: machine, **dict(each.labels)}


class PrometheusExporter(_Told):
    """A collector for a registry of prometheus_client; names begin with ``culm_``."""

    def collect(self) -> Iterable[Metric]:
        """The numbers of all machines, by name."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found: dict[tuple[str, tuple[str, ...]], Any] = {}
        for each, labels in self._numbers():
            key = f"culm_{each.name}", tuple(labels)
            if (family := found.get(key)) is None:
                kind = CounterMetricFamily if each.name.endswith(_COUNT) else GaugeMetricFamily
                about = each.name.replace("_", " ")
                family = found[key] = kind(key[0], about, labels=key[1])
            family.add_metric(list(labels.values()), each.value)
        return found.values()


class OpenTelemetryExporter(_Told):
    """Observable instruments of `meter`, made as their numbers turn up; names have ``culm.``."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter
        self._instruments: dict[str, object] = {}

    def tell(self, machine: str, numbers: Iterable[Measure]) -> None:
        super().tell(machine, numbers)
        for name in {each.name for each in self._told[machine]}.difference(self._instruments):
            meter, callbacks = self._meter, [self._observer(name)]
            counts = name.endswith(_COUNT)
            make = meter.create_observable_counter if counts else meter.create_observable_gauge
            self._instruments[name] = make(f"culm.{name}", callbacks=callbacks)

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(each.value, labels)
                for each, labels in self._numbers()
                if each.name == name
            ]

        return observe
