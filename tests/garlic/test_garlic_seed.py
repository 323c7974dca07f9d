"""The layouts and tables of the specification, byte for byte and row for row."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from garlic_cluster import Cluster, server
from raft_lab import Lab, founders

from culm.garlic.connection import Connection
from culm.garlic.events import LinkClosed, RequestReceived
from culm.garlic.limits import Limits
from culm.garlic.messages import RESPONSE_OF, MessageType, RequestFrame, ResponseFrame, is_request
from culm.garlic.raft import Configuration, Server, Snapshot, State
from culm.garlic.states import ConnectionRole
from culm.garlic.values import (
    LogEntry,
    LogPack,
    SnapshotSyncRequest,
    ValueType,
    decode_configuration,
    decode_entries,
    decode_server,
    decode_server_id,
    encode_configuration,
    encode_entries,
    encode_server,
    encode_server_id,
)

LIMITS = Limits()
ENDPOINT = "tcp://localhost:9001"
# Number, whether sent by a client or a server of the cluster, and its response
REQUESTS = {
    "REQUEST_VOTE": 1,
    "APPEND_ENTRIES": 3,
    "ADD_SERVER": 6,
    "REMOVE_SERVER": 8,
    "SYNC_LOG": 10,
    "JOIN_CLUSTER": 12,
    "LEAVE_CLUSTER": 14,
    "INSTALL_SNAPSHOT": 16,
}


def number(value: int, size: int) -> str:
    return value.to_bytes(size, "big").hex()


def test_the_request_header_is_laid_out_as_specified() -> None:
    request = RequestFrame(
        type=MessageType.APPEND_ENTRIES_REQUEST,
        source=0xF0000001,
        destination=2,
        term=3,
        last_log_term=4,
        last_log_index=0x0102030405060708,
        commit_index=6,
    )
    wanted = (
        "03 f0000001 00000002 0000000000000003 0000000000000004"
        " 0102030405060708 0000000000000006 00000000"
    )
    assert request.encode().hex(" ") == bytes.fromhex(wanted).hex(" ")
    assert len(request.encode()) == 45
    assert RequestFrame.decode(request.encode(), b"", LIMITS) == request


def test_log_entries_follow_the_header_which_tells_their_size() -> None:
    log = encode_entries(
        [LogEntry(7, ValueType.APPLICATION, b"abc"), LogEntry(8, ValueType.LOG_PACK, b"")]
    )
    assert log.hex() == number(7, 8) + "01" + number(3, 4) + "616263" + number(8, 8) + "0400000000"
    data = RequestFrame(type=MessageType.CLIENT_REQUEST, log=log).encode()
    assert data[41:45] == len(log).to_bytes(4, "big")
    assert data[45:] == log
    machine = Connection(role=ConnectionRole.LISTENER)
    machine.receive_data(data * 2)
    for _ in range(2):
        event = machine.next_event()
        assert isinstance(event, RequestReceived)
        assert len(decode_entries(event.request.log, LIMITS)) == 2


def test_the_response_is_laid_out_as_specified() -> None:
    response = ResponseFrame(
        type=MessageType.SYNC_LOG_RESPONSE,
        source=1,
        destination=0xFFFFFFFF,
        term=3,
        next_index=0x0102030405060708,
        accepted=True,
    )
    wanted = "0b 00000001 ffffffff 0000000000000003 0102030405060708 01"
    assert response.encode().hex(" ") == bytes.fromhex(wanted).hex(" ")
    assert len(response.encode()) == 26
    assert ResponseFrame.decode(response.encode(), LIMITS) == response


OURS = 64  # types from here on are not in the seed


def test_the_17_messages_have_their_numbers_and_pairs() -> None:
    for name, value in REQUESTS.items():
        request, response = MessageType(value), MessageType(value + 1)
        assert (request.name, response.name) == (f"{name}_REQUEST", f"{name}_RESPONSE")
        assert RESPONSE_OF[request] is response
    assert MessageType.CLIENT_REQUEST == 5
    assert RESPONSE_OF[MessageType.CLIENT_REQUEST] is MessageType.APPEND_ENTRIES_RESPONSE
    assert [int(kind) for kind in MessageType if kind < OURS] == list(range(1, 18))
    requests = {MessageType(value) for value in REQUESTS.values()} | {MessageType.CLIENT_REQUEST}
    assert {kind for kind in MessageType if is_request(kind) and kind < OURS} == requests


def test_the_five_value_types_have_their_numbers() -> None:
    names = ["APPLICATION", "CONFIGURATION", "CLUSTER_SERVER", "LOG_PACK", "SNAPSHOT_SYNC_REQUEST"]
    assert [(kind.name, int(kind)) for kind in ValueType] == list(
        zip(names, range(1, 6), strict=True)
    )


SERVER_BYTES = number(9, 4) + number(len(ENDPOINT), 4) + ENDPOINT.encode().hex()


def test_a_server_is_laid_out_as_specified_in_both_forms() -> None:
    assert encode_server(Server(9, ENDPOINT)).hex() == SERVER_BYTES
    assert decode_server(bytes.fromhex(SERVER_BYTES), LIMITS) == Server(9, ENDPOINT)
    assert encode_server_id(9).hex() == "00000009"
    assert decode_server_id(bytes.fromhex("fffffff0")) == 0xFFFFFFF0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_configuration_is_laid_out_as_specified(count: int) -> None:
    servers = tuple(Server(9 + at, ENDPOINT) for at in range(count))
    data = encode_configuration(Configuration(5, 3, servers))
    wanted = number(5, 8) + number(3, 8)
    for at in range(count):
        wanted += number(9 + at, 4) + SERVER_BYTES[8:]
    assert data.hex() == wanted
    assert decode_configuration(data, LIMITS) == Configuration(5, 3, servers)


def test_a_log_pack_is_laid_out_as_specified_and_gzipped() -> None:
    entries = [
        LogEntry(1, ValueType.APPLICATION, b"ab"),
        LogEntry(2, ValueType.CONFIGURATION, b"c"),
    ]
    pack = LogPack(entries, 100)
    data = pack.encode()
    first = number(1, 8) + "01" + b"ab".hex()
    second = number(2, 8) + "02" + b"c".hex()
    index = number(100, 8) + number(100 + len(first) // 2, 8)
    sizes = number(16, 4) + number(len(first + second) // 2, 4)
    assert gzip.decompress(data).hex() == sizes + index + first + second
    assert zlib.decompress(data, 31) == gzip.decompress(data)  # one member, and no bytes after it
    assert list(LogPack.decode(data, LIMITS).entries) == entries


@pytest.mark.parametrize("done", [False, True])
def test_a_snapshot_sync_request_is_laid_out_as_specified(done: bool) -> None:
    """Except for the message type at its head, which JRaft never writes."""
    configuration = Configuration(5, 3, (Server(9, ENDPOINT),))
    config = encode_configuration(configuration)
    chunk = SnapshotSyncRequest(
        snapshot=Snapshot(11, 2, configuration), offset=4096, data=b"image", done=done
    )
    wanted = number(11, 8) + number(2, 8) + number(len(config), 4) + config.hex()
    wanted += number(4096, 8) + number(5, 4) + b"image".hex() + ("01" if done else "00")
    assert chunk.encode().hex() == wanted
    assert SnapshotSyncRequest.decode(chunk.encode(), LIMITS) == chunk


def test_terms_and_indexes_begin_at_zero_and_only_grow() -> None:
    lab = Lab(founders(1))
    seen = [(lab.core.term, lab.core.last_index, lab.core.commit_index, lab.core.applied_index)]
    assert seen == [(0, 0, 0, 0)]
    for step in range(30):
        lab.wait(0.5)
        if lab.core.state is State.LEADER:
            lab.core.propose([b"%d" % step])
            lab.append(source=2, term=lab.core.term - 1)  # of a past term
        seen.append(
            (lab.core.term, lab.core.last_index, lab.core.commit_index, lab.core.applied_index)
        )
    for before, after in pairwise(seen):
        assert all(new >= old for old, new in zip(before, after, strict=True))
    assert seen[-1][2] > 20


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        (MessageType.ADD_SERVER_REQUEST, 2),
        (MessageType.REMOVE_SERVER_REQUEST, 2),
        (MessageType.INSTALL_SNAPSHOT_REQUEST, 2),
        (MessageType.SYNC_LOG_REQUEST, 2),
        (MessageType.JOIN_CLUSTER_REQUEST, 2),
    ],
)
def test_requests_of_a_single_entry_are_refused_with_more(kind: MessageType, entries: int) -> None:
    values = {
        MessageType.ADD_SERVER_REQUEST: (ValueType.CLUSTER_SERVER, encode_server(server(4))),
        MessageType.REMOVE_SERVER_REQUEST: (ValueType.CLUSTER_SERVER, encode_server_id(2)),
        MessageType.INSTALL_SNAPSHOT_REQUEST: (
            ValueType.SNAPSHOT_SYNC_REQUEST,
            SnapshotSyncRequest(snapshot=Snapshot(), offset=0, data=b"", done=True).encode(),
        ),
        MessageType.SYNC_LOG_REQUEST: (ValueType.LOG_PACK, LogPack([], 0).encode()),
        MessageType.JOIN_CLUSTER_REQUEST: (
            ValueType.CONFIGURATION,
            encode_configuration(Configuration()),
        ),
    }
    value_type, value = values[kind]
    for count, closes in ((1, False), (entries, True)):
        cluster = Cluster(1)
        cluster.leader()
        _, pipe = cluster.client(1)
        log = encode_entries([LogEntry(0, value_type, value)] * count)
        request = RequestFrame(type=kind, source=2, destination=1, log=log)
        pipe.far.receive_data(request.encode())
        cluster.run(0.0)
        ended = any(isinstance(event, LinkClosed) for event in cluster.members[1].events)
        assert ended is closes
