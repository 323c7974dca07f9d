"""The end of stream creation, in every order of the messages: no state waits in vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
from bymux_support import CLOSE, STOP_READ, close, connect, feed, packet, stop_read

from culm.bymux import (
    INFINITE,
    Closed,
    CloseReceived,
    Connection,
    InitialState,
    InitialStream,
    Role,
    State,
)
from culm.machine import Event, LocalProtocolError

Action = tuple[str, int]
CALLS = ("stop_creating", "stop_accepting")
_FREE = InitialStream(send_credit=INFINITE, receive_credit=INFINITE)


class Two:
    """Two connections that each do one thing at a time; packets are carried one by one."""

    def __init__(self, *, streams: bool) -> None:
        initial = InitialState(
            streams={0: _FREE} if streams else {},
            local_creation_credit=9,
            remote_creation_credit=9,
        )
        self.streams = streams
        self.ends = [Connection(role=role, initial=initial) for role in Role]
        self.ways = [b"", b""]  # from each of them
        self.said = [b"", b""]
        self.told: list[list[Event]] = [[], []]

    def options(self, done: Sequence[Action]) -> Iterator[Action]:
        for side in (0, 1):
            if self.ways[side]:
                yield "carry", side
            for call in CALLS:
                if (call, side) not in done:
                    yield call, side

    def do(self, action: Action) -> None:
        what, side = action
        if what == "carry":
            way = self.ways[side]
            self.ways[side] = way[1:]
            self.ends[1 - side].receive_data(way[:1])  # global packets without amounts: a byte each
        else:
            with suppress(LocalProtocolError):  # it was already sent as an answer
                getattr(self.ends[side], what)()
        for each in (0, 1):
            while (event := self.ends[each].next_event()) is not None:
                self.told[each].append(event)
            said = self.ends[each].data_to_send()
            self.said[each] += said
            self.ways[each] += said

    def check(self) -> None:
        for end, said, told in zip(self.ends, self.said, self.told, strict=True):
            if told and isinstance(told[-1], Closed):
                assert told[-1].error is None
                assert not self.streams
                assert end.state is State.CLOSED
            else:
                settled = close() in said and CloseReceived(stream_id=None) in told
                assert end.state is (State.SETTLED if settled else State.OPEN), (told, end.state)


def orders(done: list[Action], *, streams: bool) -> Iterator[list[Action]]:
    """All possible orders of the actions."""
    two = Two(streams=streams)
    for action in done:
        two.do(action)
    options = [*two.options(done)]
    if not options:
        yield done
    for option in options:
        yield from orders([*done, option], streams=streams)


@pytest.mark.parametrize("streams", [False, True])
def test_a_connection_is_settled_as_soon_as_nobody_can_create_streams(streams: bool) -> None:
    count = 0
    seen: set[tuple[Action, ...]] = set()
    for order in orders([], streams=streams):
        two = Two(streams=streams)
        for index, action in enumerate(order):
            two.do(action)
            if (begun := tuple(order[: index + 1])) not in seen:
                seen.add(begun)
                two.check()
        count += 1
        for end, told in zip(two.ends, two.told, strict=True):
            assert end.state is (State.SETTLED if streams else State.CLOSED), (order, told)
    assert count > 100


@pytest.mark.parametrize("first", [CLOSE, STOP_READ])
def test_the_peers_bytes_end_the_wait_for_what_it_owes(first: int) -> None:
    """The peer may never answer; the end of its bytes then ends a connection without streams."""
    connection = connect(local_creation_credit=1, remote_creation_credit=1)
    connection.stop_creating()
    connection.stop_accepting()
    told = feed(connection, packet(first))
    assert not any(isinstance(event, Closed) for event in told)
    assert connection.state is (State.SETTLED if first == CLOSE else State.OPEN)
    connection.receive_eof()
    assert connection.next_event() == Closed()


def test_what_the_peer_owes_is_no_trailing_data() -> None:
    """So the connection stays open until that packet has come, although it is settled."""
    connection = connect(local_creation_credit=1, remote_creation_credit=1)
    connection.stop_creating()
    feed(connection, close())
    assert connection.state is State.SETTLED
    assert feed(connection, stop_read() + b"more")[-1] == Closed()
    assert connection.trailing_data == b"more"
