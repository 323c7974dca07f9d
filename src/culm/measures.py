"""Numbers of machines, for those who watch them: sizes, positions, and counts of events.

`measures` reads any machine; `Tally` counts its events.  Both give `Measure`, from which an
exporter (`culm_io.metrics`) makes whatever a system for metrics wants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TypeVar

from culm.machine import Event, ProtocolError

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number at one moment.

    name: that of the property, as ``unsent_size``; a value of each of several parts is named
        after both, as ``peers_match_index``, and their number ``peers_count``.
    value: the number; 1 where a label says it all, as the state does.
    labels: the part that it measures, as ``("server_id", "2")``.
    """

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


def measures(machine: object) -> list[Measure]:
    """All numbers that a machine's public properties have now, the same ones at any time.

    Reading them changes nothing.  Numbers, truth values and states are read as they are; tables by
    an enum, as that of reasons, and records, as those of peers, have labels; of other
    collections it is the number of items.
    """
    kind: type = type(machine)
    return [
        measure for name in _properties(kind) for measure in _measured(name, getattr(machine, name))
    ]


@cache
def _properties(kind: type) -> tuple[str, ...]:
    found = {
        name
        for each in kind.__mro__
        for name, value in vars(each).items()
        if isinstance(value, property) and not name.startswith("_")
    }
    return tuple(sorted(found))


def _measured(name: str, value: object) -> Iterator[Measure]:
    match value:
        case Enum():
            yield Measure(name, 1, ((name, value.name),))
        case bool() | int() | float():
            yield Measure(name, value)
        case None | str() | bytes() | bytearray() | memoryview():
            return
        case _ if (parts := _parts(value)) is not None:
            for part, inner in parts:
                yield from _measured(f"{name}_{part}", inner)
        case Mapping():
            yield Measure(f"{name}_count", len(value))
            for key, number in value.items():
                if isinstance(key, Enum):
                    yield Measure(name, number, (("of", key.name),))
        case Collection():
            yield Measure(f"{name}_count", len(value))
            yield from of_records(name, value)


def of_records(name: str, records: Iterable[object]) -> Iterator[Measure]:
    """The numbers of records, as `measures` has them: the first field of each says which it is."""
    for record in records:
        if not (parts := _parts(record)):
            continue
        (of, identity), *rest = parts
        text = (
            identity.decode(errors="backslashreplace")
            if isinstance(identity, bytes)
            else str(identity)
        )
        for part, inner in rest:
            for measure in _measured(f"{name}_{part}", inner):
                yield Measure(measure.name, measure.value, ((of, text), *measure.labels))


def _parts(value: object) -> list[tuple[str, object]] | None:
    """The names and values of a record's fields; ``None`` for anything but a record."""
    if is_dataclass(value):
        return [(each.name, getattr(value, each.name)) for each in fields(value)]
    names = getattr(value, "_fields", None)
    return None if names is None else [(name, getattr(value, name)) for name in names]


class Tally:
    """Counts events by their class, and ends and refusals by the code of their error.

    One may count the events of many machines: a driver's `on_event` is
    ``tally.before(handler)``, or `tally.count` itself.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, event: Event) -> None:
        """Count an event."""
        error = getattr(event, "error", None)
        code = error.code.name if isinstance(error, ProtocolError) else ""
        self._counts[type(event).__name__, code] += 1

    def before(self, handler: Callable[[E], object]) -> Callable[[E], None]:
        """A handler that counts an event, and then hands it on."""

        def count_and_handle(event: E) -> None:
            self.count(event)
            handler(event)

        return count_and_handle

    def measures(self) -> list[Measure]:
        """The counts, as ``events_total`` by class and, where there is one, code."""
        return [
            Measure("events_total", number, (("event", name), ("code", code)))
            for (name, code), number in sorted(self._counts.items())
        ]
