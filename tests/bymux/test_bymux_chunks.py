"""The cuts in the peer's bytes and the moments of taking ours make no difference."""

from __future__ import annotations

from bymux_support import (
    CREDIT,
    FREE,
    WRITE,
    connect,
    events,
    feed,
    packet,
    split,
)
from hypothesis import given
from hypothesis import strategies as st

from culm.bymux import Closed, Connection, Limits, State
from culm.machine import Event

LIMITS = Limits(piece_size_max=5, receive_buffer_max=40, answers_max=10, streams_max=5)


def connection() -> Connection:
    return connect(
        {0: FREE, 1: (30, 30), 2: (0, 0), 300: FREE},
        limits=LIMITS,
        remote_creation_credit=4,
        remote_creator_credit=9,
    )


@st.composite
def packets(draw: st.DrawFn) -> bytes:
    """A packet that is often valid."""
    kind = draw(st.integers(0, 5))
    stream_id = draw(st.sampled_from([None, 0, 1, 2, 3, 300, 300, 5]))
    amount, data = None, b""
    if kind in {CREDIT, WRITE}:
        amount = draw(st.integers(0, 12))
        if kind == WRITE and stream_id is None:
            amount = draw(st.sampled_from([3, 3, 5, 301, 4]))
        elif kind == WRITE:
            data = draw(st.binary(min_size=amount, max_size=amount))
    widths = st.sampled_from([None, 2, 4, 8])
    return packet(kind, stream_id, amount, data, id_width=draw(widths), amount_width=draw(widths))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A conversation, often with a few bytes changed, cut out or put in."""
    data = bytearray(b"".join(draw(st.lists(packets(), max_size=25))))
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(data)))
        removed = draw(st.integers(0, 4))
        data[position : position + removed] = draw(st.binary(max_size=4))
    return bytes(data)


cuts = st.lists(st.tuples(st.integers(1, 20), st.sampled_from([None, 0, 1, 3])), max_size=60)


@given(mutated(), cuts, st.booleans())
def test_every_chunking_gives_the_same(
    data: bytes, plan: list[tuple[int, int | None]], eof: bool
) -> None:
    whole, cut = connection(), connection()
    expected = feed(whole, data)
    found: list[Event] = []
    sent = b""
    rest = data
    for size, take in [*plan, (1, None), (len(data) + 1, None)]:
        chunk, rest = rest[:size], rest[size:]
        found += feed(cut, chunk)
        sent += cut.data_to_send(take)
    if eof:
        for machine, log in ((whole, expected), (cut, found)):
            machine.receive_eof()
            log += events(machine)
    assert found == expected
    assert cut.state is whole.state
    assert cut.trailing_data == whole.trailing_data
    # Answers are kept as counts, and may therefore change places, but all are there.
    assert sorted(split(sent + cut.data_to_send())) == sorted(split(whole.data_to_send()))


@given(mutated())
def test_byte_by_byte_and_the_end_comes_once_and_last(data: bytes) -> None:
    whole, cut = connection(), connection()
    expected = feed(whole, data)
    found: list[Event] = []
    for i in range(len(data)):
        found += feed(cut, data[i : i + 1])
    assert found == expected
    whole.receive_eof()
    log = [*expected, *events(whole)]
    assert [event for event in log if isinstance(event, Closed)] == log[-1:]
    assert whole.state in {State.CLOSED, State.FAILED}
    assert events(whole) == []


@given(st.binary(max_size=200))
def test_noise_never_raises(data: bytes) -> None:
    machine = connection()
    log = feed(machine, data)
    machine.data_to_send()
    machine.receive_eof()
    assert isinstance([*log, *events(machine)][-1], Closed)


@given(mutated())
def test_the_buffer_stays_below_its_limit_for_whoever_heeds_read_size(data: bytes) -> None:
    machine = connection()
    while data and (size := machine.read_size()):
        assert size <= LIMITS.receive_buffer_max
        machine.receive_data(data[:size])
        data = data[size:]
        events(machine)
        machine.data_to_send()
        # The rest is part of one piece or header.
        assert machine.read_size() >= LIMITS.receive_buffer_max - 17 or machine.state in {
            State.CLOSED,
            State.FAILED,
        }
        assert len(machine.streams) <= LIMITS.streams_max
