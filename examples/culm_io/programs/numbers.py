"""The option ``--metrics`` of the programs that go on: their numbers, for Prometheus.

    metrics = Metrics.of(options)
    node = Node(..., on_event=metrics.counted(handler))
    async with metrics.served("oxen", lambda: measures(node)):
        ...

Without the option nothing is counted, and no port is open.  They are read on each request,
in the loop that drives the machines.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from io import BytesIO
from types import SimpleNamespace
from typing import TypeVar

from culm.machine import Event
from culm.measures import Measure, Tally
from culm_io.metrics import PrometheusExporter
from culm_io.programs.arguments import own_address
from culm_io.programs.ending import ImpossibleError, end_without, sentence_of
from culm_io.programs.visitors import Visits

__all__ = ["Metrics", "add_metrics", "metrics_words"]

E = TypeVar("E", bound=Event)

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CLIENTS_MAX = 16
_HEAD_SIZE_MAX = 1 << 14
_PORT_MAX = 2**16 - 1


def add_metrics(parser: ArgumentParser, more: str = "") -> None:
    """Add the option; `more` is for its help."""
    parser.add_argument(
        "--metrics",
        type=own_address,
        metavar="[HOST:]PORT",
        help=f"answer Prometheus there, at /metrics; without HOST, this machine only{more}",
    )


def metrics_words(options: Namespace, further: int) -> list[str]:
    """The words that give another process the same option, at a port that many `further` on."""
    if options.metrics is None:
        return []
    host, port = options.metrics
    if port + further > _PORT_MAX:
        raise ImpossibleError(f"--metrics: there is no port {port + further}")
    return ["--metrics", f"[{host}]:{port + further}"]


class Metrics:
    """The numbers of a program, served at `address`; ``None``: nowhere."""

    def __init__(self, address: tuple[str, int] | None = None) -> None:
        self._address = address
        self._tally = Tally()

    @classmethod
    def of(cls, options: Namespace) -> Metrics:
        """What the command line asks for."""
        return cls(options.metrics)

    def counted(self, handler: Callable[[E], object]) -> Callable[[E], object]:
        """A handler that counts events, and does what `handler` does."""
        return handler if self._address is None else self._tally.before(handler)

    @asynccontextmanager
    async def served(
        self, name: str, numbers: Callable[[], Iterable[Measure]]
    ) -> AsyncIterator[None]:
        """Answer meanwhile with what `numbers` gives; those of one name and label are added up.

        Raises `ImpossibleError`.
        """
        if self._address is None:
            yield
            return
        try:
            from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector
        except ModuleNotFoundError as error:
            end_without(error, "metrics")
        registry, exporter = CollectorRegistry(), PrometheusExporter()
        registry.register(exporter)
        ProcessCollector(registry=registry)

        respond = MetricsHandler.factory(registry)

        async def answer(question: bytes) -> bytes:
            exporter.tell(name, [*_added_up(numbers()), *self._tally.measures()])
            answered = BytesIO()
            # What a socket is to the standard library's HTTP.
            socket = SimpleNamespace(makefile=lambda *_: BytesIO(question), sendall=answered.write)
            with suppress(TypeError, ValueError):  # of an address or an Accept that means nothing
                respond(socket, self._address, None)
            return answered.getvalue()

        visits = Visits(
            answer,
            end=b"\r\n\r\n",
            size_max=_HEAD_SIZE_MAX,
            busy=_BUSY,
            clients_max=_CLIENTS_MAX,
            once=True,
        )
        host, port = self._address
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(visits.at(host, port))
            except OSError as error:
                raise ImpossibleError(f"metrics at {host}:{port}: {sentence_of(error)}") from error
            yield


def _added_up(numbers: Iterable[Measure]) -> list[Measure]:
    sums: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
    for each in numbers:
        sums[each.name, each.labels] += each.value
    return [Measure(name, value, labels) for (name, labels), value in sums.items()]
