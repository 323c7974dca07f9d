"""Frames and values: limits, every malformed form, and round trips."""

from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.garlic.connection import Connection
from culm.garlic.errors import ErrorCode
from culm.garlic.events import RequestReceived, ResponseReceived
from culm.garlic.limits import Limits
from culm.garlic.messages import RESPONSE_SIZE, MessageType, RequestFrame, ResponseFrame
from culm.garlic.raft import Configuration, Entry, Server, Snapshot
from culm.garlic.states import ConnectionRole, ConnectionState
from culm.garlic.status import DestinationStatus, RouterStatus, StatusRecord
from culm.garlic.values import (
    LogEntry,
    LogPack,
    SnapshotSyncRequest,
    ValueType,
    decode_configuration,
    decode_entries,
    decode_log,
    decode_server,
    decode_server_id,
    encode_configuration,
    encode_entries,
    encode_log,
    replicated,
)
from culm.machine import Closed, LocalProtocolError, RemoteProtocolError

LIMITS = Limits()
SMALL = Limits(entries_max=3, servers_max=2, endpoint_size_max=8, inflated_size_max=200)

terms = st.integers(0, 2**62)
indexes = st.integers(0, 2**63 - 1)
servers = st.builds(
    Server,
    st.integers(0, 2**32 - 1),
    st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=40),
)
configurations = st.builds(
    Configuration,
    indexes,
    indexes,
    st.lists(servers, unique_by=lambda server: server.server_id, max_size=5).map(tuple),
)
entries = st.lists(
    st.builds(LogEntry, terms, st.sampled_from(ValueType), st.binary(max_size=50)), max_size=8
)


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(RemoteProtocolError) as caught:
        call()
    return ErrorCode(caught.value.code)


@given(entries)
def test_entries_round_trip(given_entries: list[LogEntry]) -> None:
    assert decode_entries(encode_entries(given_entries), LIMITS) == given_entries


@given(entries, st.integers(1, 1000))
def test_log_packs_round_trip(given_entries: list[LogEntry], start: int) -> None:
    pack = LogPack(tuple(given_entries), start if given_entries else 0)
    assert LogPack.decode(pack.encode(), LIMITS) == pack


@given(configurations)
def test_configurations_round_trip(configuration: Configuration) -> None:
    assert decode_configuration(encode_configuration(configuration), LIMITS) == configuration


@given(
    st.builds(
        SnapshotSyncRequest,
        snapshot=st.builds(Snapshot, indexes, terms, configurations),
        offset=indexes,
        data=st.binary(max_size=100),
        done=st.booleans(),
    )
)
def test_snapshot_chunks_round_trip(chunk: SnapshotSyncRequest) -> None:
    assert SnapshotSyncRequest.decode(chunk.encode(), LIMITS) == chunk


@given(st.lists(st.builds(Entry, terms, st.binary(max_size=20) | configurations), max_size=6))
def test_replicated_logs_round_trip_and_agree_with_the_general_codec(log: list[Entry]) -> None:
    encoded = encode_log(log)
    assert decode_log(encoded, LIMITS) == log
    assert encode_entries(decode_entries(encoded, LIMITS)) == encoded


@given(st.data())
def test_logs_of_equal_sizes_are_read_as_entry_by_entry(data: st.DataObject) -> None:
    """Values as long as the first are read in one go: nothing may differ because of that."""
    size = data.draw(st.integers(0, 5), "size")
    values = st.binary(min_size=size, max_size=size)
    logs = st.lists(st.builds(entry, st.sampled_from((1, 1, 1, 2, 9)), values), max_size=5)
    encoded = bytearray(b"".join(data.draw(logs, "log")))
    if encoded and data.draw(st.booleans(), "changed"):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))

    def one_by_one() -> list[Entry]:
        return [replicated(each, SMALL) for each in decode_entries(bytes(encoded), SMALL)]

    def outcome(read: Callable[[], list[Entry]]) -> object:
        try:
            return read()
        except RemoteProtocolError as error:
            return error.code

    assert outcome(lambda: decode_log(bytes(encoded), SMALL)) == outcome(one_by_one)


DECODERS: list[Callable[[bytes], object]] = [
    lambda data: decode_entries(data, LIMITS),
    lambda data: decode_log(data, LIMITS),
    lambda data: LogPack.decode(data, LIMITS),
    lambda data: LogPack.decode(gzip.compress(data, mtime=0), LIMITS),
    lambda data: decode_configuration(data, LIMITS),
    lambda data: SnapshotSyncRequest.decode(data, LIMITS),
    lambda data: decode_server(data, LIMITS),
    lambda data: StatusRecord.decode(data),
]


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=120))
def test_rubbish_gives_nothing_but_remote_errors(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode(data)


def entry(kind: int, value: bytes, term: int = 1) -> bytes:
    return struct.pack(">QBI", term, kind, len(value)) + value


def pack_of(offsets: list[int], log: bytes, *, index_size: int | None = None) -> bytes:
    index = struct.pack(f">{len(offsets)}Q", *offsets)
    sizes = struct.pack(">II", len(index) if index_size is None else index_size, len(log))
    return gzip.compress(sizes + index + log, mtime=0)


RECORD = struct.pack(">QB", 1, 1) + b"abc"


@pytest.mark.parametrize(
    ("decode", "data", "expected"),
    [
        (decode_entries, entry(1, b"abc")[:12], ErrorCode.BAD_LOG_ENTRY),
        (decode_entries, entry(1, b"abc")[:-1], ErrorCode.BAD_LOG_ENTRY),
        (decode_entries, entry(6, b""), ErrorCode.UNKNOWN_VALUE_TYPE),
        (decode_entries, entry(0, b""), ErrorCode.UNKNOWN_VALUE_TYPE),
        (decode_entries, entry(1, b"", 2**62 + 1), ErrorCode.NUMBER_TOO_LARGE),
        (decode_entries, entry(1, b"") * 4, ErrorCode.TOO_MANY_ENTRIES),
        (decode_log, entry(1, b"") * 4, ErrorCode.TOO_MANY_ENTRIES),
        (decode_log, entry(1, b"", 2**62 + 1), ErrorCode.NUMBER_TOO_LARGE),
        (decode_log, entry(1, b"abc")[:-1], ErrorCode.BAD_LOG_ENTRY),
        (decode_log, entry(1, b"") + b"x", ErrorCode.BAD_LOG_ENTRY),
        (decode_log, entry(3, bytes(4)), ErrorCode.WRONG_ENTRIES),
        (decode_log, entry(2, bytes(15)), ErrorCode.BAD_VALUE),
        (LogPack.decode, b"zz", ErrorCode.BAD_VALUE),
        (LogPack.decode, gzip.compress(b"1234567", mtime=0), ErrorCode.BAD_VALUE),
        (LogPack.decode, pack_of([0], RECORD)[:-1], ErrorCode.BAD_VALUE),
        (LogPack.decode, pack_of([0], RECORD) + b"x", ErrorCode.BAD_VALUE),
        (LogPack.decode, pack_of([0], RECORD, index_size=7), ErrorCode.BAD_VALUE),
        (LogPack.decode, pack_of([], RECORD), ErrorCode.BAD_VALUE),
        (LogPack.decode, pack_of([9, 5], RECORD * 2), ErrorCode.BAD_VALUE),
        (LogPack.decode, pack_of([0, 4], RECORD * 2), ErrorCode.BAD_VALUE),
        (LogPack.decode, pack_of([0, 999], RECORD * 2), ErrorCode.BAD_VALUE),
        (LogPack.decode, pack_of([0] * 4, RECORD), ErrorCode.TOO_MANY_ENTRIES),
        (LogPack.decode, gzip.compress(bytes(201), mtime=0), ErrorCode.INFLATED_TOO_LARGE),
        (decode_configuration, bytes(16) + b"\0\0\0\1", ErrorCode.BAD_VALUE),
        (decode_configuration, b"\xff" * 16, ErrorCode.NUMBER_TOO_LARGE),
        (
            decode_configuration,
            bytes(16) + struct.pack(">II", 1, 0) * 2,
            ErrorCode.BAD_VALUE,
        ),
        (
            decode_configuration,
            bytes(16) + b"".join(struct.pack(">II", n, 0) for n in range(3)),
            ErrorCode.BAD_VALUE,
        ),
        (decode_server, struct.pack(">II", 1, 9) + b"x" * 9, ErrorCode.BAD_VALUE),
        (decode_server, struct.pack(">II", 1, 1) + b"\xff", ErrorCode.BAD_VALUE),
        (decode_server, struct.pack(">II", 1, 1) + b"ab", ErrorCode.BAD_VALUE),
        (SnapshotSyncRequest.decode, bytes(19), ErrorCode.BAD_VALUE),
        (
            SnapshotSyncRequest.decode,
            struct.pack(">QQI", 1, 1, 16) + bytes(16) + struct.pack(">QI", 0, 5) + b"four" + b"\0",
            ErrorCode.BAD_VALUE,
        ),
    ],
)
def test_every_malformed_form_has_its_code(
    decode: Callable[[bytes, Limits], object], data: bytes, expected: ErrorCode
) -> None:
    assert code_of(lambda: decode(data, SMALL)) is expected


@pytest.mark.parametrize("size", [0, 3, 5])
def test_a_server_id_is_four_bytes(size: int) -> None:
    assert code_of(lambda: decode_server_id(bytes(size))) is ErrorCode.BAD_VALUE


def test_a_bomb_is_not_inflated_beyond_the_limit() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert code_of(lambda: LogPack.decode(bomb, SMALL)) is ErrorCode.INFLATED_TOO_LARGE


@pytest.mark.parametrize("sizes", [(0, 0), (2**31 - 8, 2**31 - 1), (0, 2**32 - 1)])
def test_no_more_is_inflated_of_a_pack_than_it_declares(sizes: tuple[int, int]) -> None:
    """Nor anything if the declared size is too large."""
    bomb = gzip.compress(struct.pack(">II", *sizes) + bytes(50_000_000))
    tracemalloc.start()
    try:
        code = code_of(lambda: LogPack.decode(bomb, Limits()))
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert code is ErrorCode.INFLATED_TOO_LARGE


@pytest.mark.parametrize("decode", [decode_entries, decode_log])
def test_entries_beyond_the_limit_are_not_held(
    decode: Callable[[bytes, Limits], object],
) -> None:
    log = entry(1, b"") * 500_000
    tracemalloc.start()
    try:
        code = code_of(lambda: decode(log, Limits(entries_max=1000)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert code is ErrorCode.TOO_MANY_ENTRIES
    assert peak < 1_000_000


def test_a_log_size_of_minus_one_means_no_entries() -> None:
    machine = Connection(role=ConnectionRole.LISTENER)
    machine.receive_data(RequestFrame(type=MessageType.CLIENT_REQUEST).encode()[:-4] + b"\xff" * 4)
    assert machine.next_event() == RequestReceived(
        request=RequestFrame(type=MessageType.CLIENT_REQUEST)
    )


def test_the_log_size_is_refused_before_any_of_it_arrives() -> None:
    machine = Connection(role=ConnectionRole.LISTENER, limits=Limits(log_size_max=100))
    machine.receive_data(RequestFrame(type=MessageType.CLIENT_REQUEST).encode()[:-1] + b"\x65")
    closed = machine.next_event()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is ErrorCode.LOG_TOO_LARGE
    assert machine.state is ConnectionState.CLOSED


def answer(kind: MessageType = MessageType.REQUEST_VOTE_RESPONSE) -> ResponseFrame:
    return ResponseFrame(type=kind, source=2, destination=1, term=1, next_index=0, accepted=True)


def dialler_with(*kinds: MessageType) -> Connection:
    machine = Connection(role=ConnectionRole.DIALLER, limits=Limits(unanswered_max=2))
    for kind in kinds:
        machine.send_request(RequestFrame(type=kind))
    return machine


def test_responses_belong_to_the_oldest_unanswered_request() -> None:
    machine = dialler_with(MessageType.REQUEST_VOTE_REQUEST, MessageType.CLIENT_REQUEST)
    second = answer(MessageType.APPEND_ENTRIES_RESPONSE)
    machine.receive_data(answer().encode() + second.encode())
    first_event, second_event = machine.next_event(), machine.next_event()
    assert isinstance(first_event, ResponseReceived)
    assert first_event.request.type is MessageType.REQUEST_VOTE_REQUEST
    assert isinstance(second_event, ResponseReceived)
    assert second_event.response == second


@pytest.mark.parametrize(
    ("machine", "data", "expected"),
    [
        (dialler_with(), answer().encode(), ErrorCode.UNEXPECTED_RESPONSE),
        (
            dialler_with(MessageType.CLIENT_REQUEST),
            answer().encode(),
            ErrorCode.UNEXPECTED_RESPONSE,
        ),
        (
            dialler_with(MessageType.REQUEST_VOTE_REQUEST),
            RequestFrame(type=MessageType.REQUEST_VOTE_REQUEST).encode(),
            ErrorCode.UNEXPECTED_RESPONSE,
        ),
    ],
)
def test_answers_that_nobody_asked_for_close_the_connection(
    machine: Connection, data: bytes, expected: ErrorCode
) -> None:
    machine.receive_data(data)
    closed = machine.next_event()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is expected


def test_accepted_is_one_and_everything_else_is_refused() -> None:
    data = answer().encode()
    for byte in (0, 2, 255):
        assert not ResponseFrame.decode(data[:-1] + bytes([byte]), LIMITS).accepted
    assert ResponseFrame.decode(data, LIMITS).accepted


@pytest.mark.parametrize("unanswered", [1, 2])
def test_a_dialler_ends_with_the_stream_whatever_is_unanswered(unanswered: int) -> None:
    """Even if it may ask no more: an answer will never come."""
    machine = dialler_with(*[MessageType.CLIENT_REQUEST] * unanswered)
    machine.receive_data(answer(MessageType.APPEND_ENTRIES_RESPONSE).encode()[:-1])
    machine.receive_eof()
    closed = machine.next_event()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is ErrorCode.TRUNCATED


def test_a_listener_reads_what_was_sent_before_the_end_when_answers_have_gone_out() -> None:
    machine = Connection(role=ConnectionRole.LISTENER, limits=Limits(unanswered_max=1))
    request = RequestFrame(type=MessageType.CLIENT_REQUEST)
    machine.receive_data(request.encode() * 2)
    machine.receive_eof()
    assert machine.next_event() == RequestReceived(request=request)
    assert machine.next_event() is None
    machine.send_response(answer(MessageType.APPEND_ENTRIES_RESPONSE))
    assert machine.next_event() is None  # still untaken
    assert len(machine.data_to_send()) == RESPONSE_SIZE
    assert machine.next_event() == RequestReceived(request=request)
    assert machine.next_event() == Closed()


def test_local_rules_of_a_connection() -> None:
    machine = dialler_with(MessageType.CLIENT_REQUEST, MessageType.CLIENT_REQUEST)
    for call, expected in (
        (
            lambda: machine.send_request(RequestFrame(type=MessageType.CLIENT_REQUEST)),
            ErrorCode.QUEUE_FULL,
        ),
        (lambda: machine.send_response(answer()), ErrorCode.WRONG_STATE),
        (
            lambda: machine.send_request(RequestFrame(type=MessageType.ADD_SERVER_RESPONSE)),
            ErrorCode.WRONG_STATE,
        ),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            call()
        assert caught.value.code is expected


def record() -> StatusRecord:
    return StatusRecord(
        raft_id=1,
        cluster="farm",
        router=RouterStatus(hash="abc", uptime_s=5, participating_tunnels=7),
        destinations=(DestinationStatus(hash="def", cost=1, sessions=2),),
    )


def test_a_status_record_round_trips_and_ignores_what_it_does_not_know() -> None:
    assert StatusRecord.decode(record().encode()) == record()
    wider = record().encode().replace(b'"cluster"', b'"new":[1],"cluster"')
    assert StatusRecord.decode(wider) == record()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"raft_id":1', b'"raft_id":"1"'),
        (b'"raft_id":1', b'"raft_id":true'),
        (b'"raft_id":1', b'"raft_id":-1'),
        (b'"raft_id":1', b'"raft_id":1e3'),
        (b'"hash":"abc"', b'"hash":5'),
        (b'"cluster":"farm"', b'"cluster":null'),
        (b'"destinations":[', b'"destinations":5,"x":['),
        (b'"sessions":2', b'"sessions":9007199254740992'),
    ],
)
def test_a_status_record_of_wrong_types_is_refused(old: bytes, new: bytes) -> None:
    data = record().encode()
    assert old in data
    assert code_of(lambda: StatusRecord.decode(data.replace(old, new))) is ErrorCode.BAD_VALUE


@pytest.mark.parametrize("size", [1, 25, 26, 27, 52, 53])
def test_who_was_full_reads_on_when_all_answers_have_been_taken(size: int) -> None:
    """Otherwise the pieces in which they are taken would decide how much is read at once."""
    machine = Connection(role=ConnectionRole.LISTENER, limits=Limits(unanswered_max=2))
    machine.receive_data(RequestFrame(type=MessageType.APPEND_ENTRIES_REQUEST).encode() * 3)
    for _ in range(2):
        assert isinstance(machine.next_event(), RequestReceived)
    assert machine.next_event() is None
    for _ in range(2):
        machine.send_response(answer(MessageType.APPEND_ENTRIES_RESPONSE))
    for taken in range(size, 2 * RESPONSE_SIZE, size):
        machine.data_to_send(size)
        assert machine.unsent_size == 2 * RESPONSE_SIZE - taken
        assert machine.next_event() is None
    machine.data_to_send(size)
    assert isinstance(machine.next_event(), RequestReceived)


@pytest.mark.parametrize("indexes", [(2**63, 0), (0, 2**63)])
def test_either_index_of_a_configuration_has_63_bits(indexes: tuple[int, int]) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        decode_configuration(struct.pack(">QQ", *indexes), LIMITS)
    assert refused.value.code is ErrorCode.NUMBER_TOO_LARGE
    assert decode_configuration(struct.pack(">QQ", 2**63 - 1, 2**63 - 1), LIMITS).servers == ()
