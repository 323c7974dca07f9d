"""Every state of a half with every packet, both directions, per stream and global."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bymux_support import (
    CLOSE,
    CREDIT,
    FREE,
    NAMES,
    PING,
    PONG,
    STOP_READ,
    WRITE,
    connect,
    failure,
    feed,
    packet,
    split,
)

from culm.bymux import Connection, ErrorCode, HalfState, State
from culm.bymux.packets import PacketType
from culm.bymux.states import ANSWERS, GLOBAL_RULES, STREAM_RULES, Rules
from culm.machine import LocalProtocolError

SENT = {
    HalfState.OPEN: (),
    HalfState.CLOSED: (CLOSE,),
    HalfState.STOPPED: (STOP_READ,),
    HalfState.ENDED: (CLOSE, STOP_READ),
}
ALL_PAIRS = [(half, kind) for half in HalfState for kind in PacketType]


def forbidden(half: HalfState, kind: int) -> bool:
    """The three sentences of the spec ("Ending Streams"), for streams and globally."""
    closed = half in {HalfState.CLOSED, HalfState.ENDED}
    stopped = half in {HalfState.STOPPED, HalfState.ENDED}
    return (
        (closed and kind in {WRITE, CLOSE})
        or (stopped and kind in {CREDIT, STOP_READ})
        or (closed and stopped and kind in {PING, PONG})
    )


@pytest.mark.parametrize("rules", [STREAM_RULES, GLOBAL_RULES])
def test_tables_say_what_the_spec_says(rules: Rules) -> None:
    assert set(rules) == set(HalfState)
    for half, row in rules.items():
        assert set(row) == set(PacketType)
        for kind, outcome in row.items():
            assert isinstance(outcome, ErrorCode) == forbidden(half, kind)
            if not isinstance(outcome, ErrorCode):
                sent = {*SENT[half], kind} & {CLOSE, STOP_READ}
                assert set(SENT[outcome]) == sent


def codes(rules: Rules, kind: PacketType) -> set[ErrorCode]:
    return {outcome for row in rules.values() if isinstance(outcome := row[kind], ErrorCode)}


def test_every_rule_has_a_code_of_its_own() -> None:
    found = [codes(rules, kind) for rules in (STREAM_RULES, GLOBAL_RULES) for kind in PacketType]
    assert all(len(one) == 1 for one in found)
    assert len(set.union(*found)) == len(found) == 12


def test_answers_are_those_of_the_spec() -> None:
    assert ANSWERS == {PING: PONG, CLOSE: STOP_READ, STOP_READ: CLOSE}


def verbs(connection: Connection, stream_id: int | None) -> dict[int, Callable[[], object]]:
    """The call that sends a packet of each type (a Pong is never sent on request)."""
    if stream_id is None:
        return {
            CREDIT: lambda: connection.grant_streams(1),
            WRITE: connection.create_stream,
            PING: connection.ping,
            CLOSE: connection.stop_creating,
            STOP_READ: connection.stop_accepting,
        }
    stream = connection.stream(stream_id)
    return {
        CREDIT: lambda: stream.grant(1),
        WRITE: lambda: stream.send_data(b"x"),
        PING: stream.ping,
        CLOSE: stream.close,
        STOP_READ: stream.stop_read,
    }


def picture(connection: Connection) -> object:
    """Everything that the caller can see of a connection."""
    return (
        connection.state,
        connection.creation_credit,
        connection.remote_creation_credit,
        [
            (stream_id, s.state, s.send_credit, s.receive_credit, s.unsent_size)
            for stream_id, s in connection.streams.items()
        ],
    )


@pytest.mark.parametrize("stream_id", [0, None], ids=["stream", "global"])
@pytest.mark.parametrize(("half", "kind"), [pair for pair in ALL_PAIRS if pair[1] != PONG])
def test_sending(half: HalfState, kind: PacketType, stream_id: int | None) -> None:
    rules = GLOBAL_RULES if stream_id is None else STREAM_RULES
    connection = connect({0: (9, 9)}, local_creation_credit=9, remote_creation_credit=9)
    verb = verbs(connection, stream_id)
    for sent in SENT[half]:
        verb[sent]()
    connection.data_to_send()
    outcome = rules[half][kind]
    if isinstance(outcome, ErrorCode):
        before = picture(connection)
        with pytest.raises(LocalProtocolError) as caught:
            verb[kind]()
        assert caught.value.code is outcome
        assert picture(connection) == before
        assert connection.data_to_send() == b""
    else:
        verb[kind]()
        [sent_packet] = split(connection.data_to_send())
        assert sent_packet[0] >> 5 == kind
        if stream_id is not None:
            assert connection.stream(stream_id).state.local is outcome


def example(kind: int, stream_id: int | None) -> bytes:
    if kind == CREDIT:
        return packet(CREDIT, stream_id, 1)
    if kind == WRITE:
        return packet(WRITE, None, 1) if stream_id is None else packet(WRITE, stream_id, 1, b"x")
    return packet(kind, stream_id)


@pytest.mark.parametrize("stream_id", [0, None], ids=["stream", "global"])
@pytest.mark.parametrize(("half", "kind"), ALL_PAIRS)
def test_receiving(half: HalfState, kind: PacketType, stream_id: int | None) -> None:
    rules = GLOBAL_RULES if stream_id is None else STREAM_RULES
    connection = connect({0: (9, 9), 2: FREE}, local_creation_credit=9, remote_creation_credit=9)
    for sent in SENT[half]:
        assert failure(connection, packet(sent, stream_id)) is None
    outcome = rules[half][kind]
    if stream_id is not None and half is HalfState.ENDED:
        # We have answered both, so the stream is gone: its id is the first thing wrong.
        outcome = ErrorCode.UNKNOWN_STREAM
    code = failure(connection, example(kind, stream_id))
    if isinstance(outcome, ErrorCode):
        assert code is outcome
        assert connection.state is State.FAILED
    else:
        assert code is None
        if stream_id is not None and outcome is not HalfState.ENDED:
            assert connection.stream(stream_id).state.remote is outcome


@pytest.mark.parametrize("stream_id", [0, None], ids=["stream", "global"])
@pytest.mark.parametrize("half", list(HalfState))
@pytest.mark.parametrize("kind", sorted(ANSWERS))
def test_answering(half: HalfState, kind: PacketType, stream_id: int | None) -> None:
    """An answer is sent unless our half forbids it."""
    connection = connect({0: (9, 9), 2: FREE})
    verb = verbs(connection, stream_id)
    for sent in SENT[half]:
        verb[sent]()
    connection.data_to_send()
    feed(connection, packet(kind, stream_id))
    answer = ANSWERS[kind]
    expected = b"" if forbidden(half, answer) else packet(answer, stream_id)
    assert connection.data_to_send() == expected


def test_names_of_the_tests_are_those_of_the_code() -> None:
    assert [packet_type.name for packet_type in PacketType] == list(NAMES)
