"""The base of replicators, over a wire that sends its calls and a store that answers late."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from culm.buffer import Buffer
from culm.effects import StoreWork
from culm.machine import Closed, DataReceived, Effect, Event, StoreFailed
from culm.replication import DurableBase


@dataclass(frozen=True, slots=True, kw_only=True)
class Put(Effect[None]):
    """Keep these bytes."""

    data: bytes

    def accepts(self, result: object) -> bool:
        return result is None


class Wire:
    """Every input is an event; it ends with the stream, or by `close`."""

    trailing_data = b"behind"

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.closing = False

    def receive_data(self, data: Buffer) -> None:
        if data:
            self.events.append(DataReceived(data=bytes(data)))

    def receive_eof(self) -> None:
        self.close()

    def read_size(self) -> int:
        return 100

    def next_event(self) -> Event | None:
        return self.events.popleft() if self.events else None

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.events.append(Closed())


class Keeper(DurableBase[Wire, DataReceived | StoreFailed, Put]):  # type: ignore[type-var]
    """Puts its input into the store, with at most one byte waiting for it."""

    def __init__(self) -> None:
        super().__init__(Wire(), work=StoreWork())
        self.released = 0

    def _store_is_behind(self) -> bool:
        return self._work.unwritten_size > 1

    def _handle(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            place = self._work.reserve()
            self._work.hold(len(event.data))

            def kept(_: None) -> None:
                self._work.release(len(event.data))
                place.fill([event])

            self._work.ask(Put, kept, data=event.data)

    def _over(self) -> None:
        self.released += 1


def told(keeper: Keeper) -> list[Event]:
    return list(iter(keeper.next_event, None))


def asked(keeper: Keeper) -> Iterator[Put]:
    return iter(keeper.next_effect, None)


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


def test_what_waits_for_the_store_is_told_when_it_is_there(keeper: Keeper) -> None:
    keeper.receive_data(b"a")
    assert told(keeper) == []
    [put] = asked(keeper)
    assert put.data == b"a"
    keeper.complete(put.ticket, None)
    assert told(keeper) == [DataReceived(data=b"a")]


def test_nothing_is_read_while_the_store_is_behind(keeper: Keeper) -> None:
    assert keeper.read_size() == 100
    for data in (b"ab", b"c"):
        keeper.receive_data(data)
    assert told(keeper) == []
    assert keeper.read_size() == 0
    [put] = asked(keeper)  # the second is still untouched
    keeper.complete(put.ticket, None)
    assert told(keeper) == [DataReceived(data=b"ab")]
    assert keeper.read_size() == 100
    [put] = asked(keeper)
    assert put.data == b"c"


def test_the_end_waits_for_the_store(keeper: Keeper) -> None:
    keeper.receive_data(b"a")
    keeper.receive_eof()
    assert told(keeper) == []
    assert keeper.read_size() == 0
    assert (keeper.trailing_data, keeper.released) == (b"", 0)
    [put] = asked(keeper)
    keeper.complete(put.ticket, None)
    assert told(keeper) == [DataReceived(data=b"a"), Closed()]
    assert (keeper.trailing_data, keeper.released) == (b"behind", 1)
    assert told(keeper) == []


def test_a_store_that_fails_ends_the_connection_with_a_goodbye(keeper: Keeper) -> None:
    keeper.receive_data(b"a")
    assert told(keeper) == []
    [put] = asked(keeper)
    error = OSError("full")
    keeper.fail(put.ticket, error)
    assert keeper.connection.closing
    keeper.receive_data(b"b")
    assert told(keeper) == [StoreFailed(effect=put, error=error), Closed()]
    assert list(asked(keeper)) == []
