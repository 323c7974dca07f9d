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
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from culm.machine import Event
from culm.measures import Measure, Tally
from culm_io.metrics import PrometheusExporter
from culm_io.programs.arguments import own_address
from culm_io.programs.ending import ImpossibleError, end_without, sentence_of
from culm_io.programs.visitors import Visits

__all__ = ["Metrics", "add_metrics", "metrics_words"]

E = TypeVar("E", bound=Event)

_PATH = b"/metrics"
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
            from prometheus_client import (
                CONTENT_TYPE_LATEST,
                CollectorRegistry,
                ProcessCollector,
                generate_latest,
            )
        except ModuleNotFoundError as error:
            end_without(error, "metrics")
        registry, exporter = CollectorRegistry(), PrometheusExporter()
        registry.register(exporter)
        ProcessCollector(registry=registry)

        async def answer(question: bytes) -> bytes:
            verb, path, *_ = *question.split(b"\r\n", 1)[0].split(b" "), b""
            if verb not in (b"GET", b"HEAD"):
                return _response("405 Method Not Allowed", b"")
            if path.partition(b"?")[0] != _PATH:
                return _response("404 Not Found", b"/metrics has the numbers\n")
            exporter.tell(name, [*_added_up(numbers()), *self._tally.measures()])
            body = generate_latest(registry)
            return _response("200 OK", body, CONTENT_TYPE_LATEST, shown=verb == b"GET")

        visits = Visits(
            answer,
            end=b"\r\n\r\n",
            size_max=_HEAD_SIZE_MAX,
            busy=_response("503 Service Unavailable", b""),
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


def _response(
    status: str, body: bytes, kind: str = "text/plain; charset=utf-8", *, shown: bool = True
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + (body if shown else b"")
