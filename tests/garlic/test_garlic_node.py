"""Whole nodes over frames: as in JRaft's transcripts, and against misbehaving peers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from garlic_cluster import CORE_LIMITS, Cluster, server

import vectors
from culm.garlic.errors import ErrorCode
from culm.garlic.events import DialWanted, LinkClosed
from culm.garlic.limits import Limits
from culm.garlic.messages import (
    REQUEST_HEADER_SIZE,
    MessageType,
    RequestFrame,
    ResponseFrame,
)
from culm.garlic.raft import (
    ConfigurationChanged,
    Left,
    ReadReady,
    RoleChanged,
    SnapshotInstalled,
    State,
)
from culm.garlic.values import (
    LogEntry,
    LogPack,
    ValueType,
    decode_entries,
    encode_entries,
    encode_server,
    encode_server_id,
)

LIMITS = Limits()
NO_LEADER = 0xFFFF_FFFF


def requests_in(data: bytes) -> list[RequestFrame]:
    found = []
    while data:
        size = RequestFrame.log_size(data[:REQUEST_HEADER_SIZE], LIMITS)
        end = REQUEST_HEADER_SIZE + size
        found.append(
            RequestFrame.decode(data[:REQUEST_HEADER_SIZE], data[REQUEST_HEADER_SIZE:end], LIMITS)
        )
        data = data[end:]
    return found


def client_request(*values: bytes) -> RequestFrame:
    log = encode_entries([LogEntry(0, ValueType.APPLICATION, value) for value in values])
    return RequestFrame(type=MessageType.CLIENT_REQUEST, log=log)


def add_request(number: int) -> RequestFrame:
    entry = LogEntry(0, ValueType.CLUSTER_SERVER, encode_server(server(number)))
    return RequestFrame(type=MessageType.ADD_SERVER_REQUEST, log=encode_entries([entry]))


def remove_request(number: int) -> RequestFrame:
    entry = LogEntry(0, ValueType.CLUSTER_SERVER, encode_server_id(number))
    return RequestFrame(type=MessageType.REMOVE_SERVER_REQUEST, log=encode_entries([entry]))


def follower_of(cluster: Cluster, leader: int) -> int:
    return next(number for number in cluster.members if number != leader)


@pytest.mark.parametrize("handshake", [False, True])
def test_a_cluster_elects_replicates_and_reads(handshake: bool) -> None:
    cluster = Cluster(1, 2, 3, handshake=handshake)
    leader = cluster.leader()
    values = [b"value %d" % number for number in range(500)]
    for value in values:
        leader.node.propose([value])
    number = leader.node.read()
    cluster.run(1.0)
    assert all(member.machine.values == values for member in cluster.members.values())
    assert any(isinstance(e, ReadReady) and e.read == number for e in leader.events)


def test_the_first_entry_of_a_cluster_is_the_transcripts_configuration() -> None:
    """The first AppendEntries of a cluster is byte for byte the one that JRaft sent."""
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader().node.server_id
    lines = vectors.load_json_lines("jraft/a_election.jsonl")
    recorded = [bytes.fromhex(line["hex"]) for line in lines if line["ev"] == "frame"]
    first = next(frame for frame in recorded if frame[0] == MessageType.APPEND_ENTRIES_REQUEST)
    pipe = next(pipe for pipe in cluster.pipes if pipe.near.peer == follower_of(cluster, leader))
    ours = next(r for r in requests_in(bytes(pipe.up)) if r.type == first[0])
    expected = requests_in(first)[0]
    term = ours.term
    log = [entry._replace(term=term) for entry in decode_entries(expected.log, LIMITS)]
    assert ours == replace(
        expected, source=leader, destination=ours.destination, term=term, log=encode_entries(log)
    )


def test_a_client_request_is_answered_by_the_leader_and_by_a_follower_as_in_the_transcripts() -> (
    None
):
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader().node
    follower = follower_of(cluster, leader.server_id)
    accepted = cluster.ask(leader.server_id, client_request(b"k1:alpha"))
    assert accepted == ResponseFrame(
        type=MessageType.APPEND_ENTRIES_RESPONSE,
        source=leader.server_id,
        destination=leader.server_id,
        term=leader.term,
        next_index=3,
        accepted=True,
    )
    refused = cluster.ask(follower, client_request(b"k1:alpha"))
    assert refused == replace(accepted, source=follower, next_index=0, accepted=False)


def test_a_server_that_knows_no_leader_answers_with_minus_one() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.down = {2, 3}
    answer = cluster.ask(1, client_request(b"x"))
    assert answer is not None
    assert (answer.accepted, answer.destination) == (False, NO_LEADER)


def test_a_peer_is_dialled_once_and_when_there_is_something_to_say() -> None:
    """The leader and the voters are connected both ways; a node with nothing to say never dials."""
    cluster = Cluster(1, 2, 3)
    node = cluster.leader().node
    for _ in range(20):
        node.propose([b"x"])
        cluster.run(0.1)
    dialled = [
        event for event in cluster.members[node.server_id].events if type(event) is DialWanted
    ]
    assert sorted(event.server.server_id for event in dialled) == sorted(
        {1, 2, 3} - {node.server_id}
    )
    for number in {1, 2, 3} - {node.server_id}:
        mine = [event for event in cluster.members[number].events if type(event) is DialWanted]
        candidate = any(
            isinstance(event, RoleChanged) and event.role is State.CANDIDATE
            for event in cluster.members[number].events
        )
        assert bool(mine) is candidate


def test_adding_a_server_follows_the_transcript() -> None:
    """JoinCluster, SyncLog in batches, Configuration; the joiner follows afterwards."""
    core = replace(CORE_LIMITS, append_entries_max=5)
    cluster = Cluster(1, 2, 3, core=core, handshake=True)
    leader = cluster.leader().node
    leader.propose([b"f%d" % number for number in range(30)])
    cluster.run(1.0)
    cluster.add(4)
    answer = cluster.ask(leader.server_id, add_request(4))
    assert answer is not None
    assert (answer.type, answer.accepted) == (MessageType.ADD_SERVER_RESPONSE, True)
    assert answer.next_index == 32
    cluster.run(1.0)
    assert leader.configuration.ids == {1, 2, 3, 4}
    pipe = [pipe for pipe in cluster.pipes if pipe.to == 4][-1]
    asked = requests_in(bytes(pipe.up).rpartition(b"\r\n\r\n")[2])
    kinds = [request.type for request in asked]
    assert kinds[0] is MessageType.JOIN_CLUSTER_REQUEST
    assert (asked[0].last_log_term, asked[0].last_log_index, asked[0].commit_index) == (0, 31, 31)
    syncs = [request for request in asked if request.type is MessageType.SYNC_LOG_REQUEST]
    assert [request.last_log_index for request in syncs] == [0, 5, 10, 15, 20, 25]
    assert all(request.last_log_term == 0 for request in syncs)
    packs = [LogPack.decode(decode_entries(sync.log, LIMITS)[0].value, LIMITS) for sync in syncs]
    offset = 0
    for pack in packs:  # JRaft writes them into its own index as they are
        assert pack.start == offset
        offset += pack.size
    appends = [r for r in asked if r.type is MessageType.APPEND_ENTRIES_REQUEST]
    assert kinds == [kinds[0], *[s.type for s in syncs], *[a.type for a in appends]]
    assert (appends[0].last_log_index, appends[0].commit_index) == (30, 32)
    newcomer = cluster.members[4]
    assert newcomer.machine.values == cluster.members[leader.server_id].machine.values
    assert newcomer.node.configuration.ids == {1, 2, 3, 4}


def test_removing_a_server_follows_the_transcript() -> None:
    """LeaveCluster, then the configuration without it, which is still sent to it."""
    cluster = Cluster(1, 2, 3, 4)
    leader = cluster.leader().node
    gone = follower_of(cluster, leader.server_id)
    answer = cluster.ask(leader.server_id, remove_request(gone))
    assert answer is not None
    assert (answer.type, answer.accepted) == (MessageType.REMOVE_SERVER_RESPONSE, True)
    cluster.run(1.0)
    assert leader.configuration.ids == {1, 2, 3, 4} - {gone}
    assert Left() in cluster.members[gone].events
    pipe = next(
        pipe
        for pipe in cluster.pipes
        if pipe.to == gone
        and MessageType.LEAVE_CLUSTER_REQUEST
        in {request.type for request in requests_in(bytes(pipe.up))}
    )
    asked = requests_in(bytes(pipe.up))
    at = [request.type for request in asked].index(MessageType.LEAVE_CLUSTER_REQUEST)
    assert asked[at].last_log_term == 0
    assert not asked[at].log
    entry = decode_entries(asked[at + 1].log, LIMITS)[0]
    assert entry.type is ValueType.CONFIGURATION
    assert asked[-1].commit_index == asked[at + 1].last_log_index + 1
    count = len(asked)
    cluster.run(3.0)
    assert len(requests_in(bytes(pipe.up))) == count


@pytest.mark.parametrize(
    "request_of",
    [
        lambda leader: add_request(leader),
        lambda leader: remove_request(leader),
        lambda leader: remove_request(88),
        lambda leader: replace(
            add_request(9),
            log=encode_entries(
                [LogEntry(0, ValueType.CLUSTER_SERVER, bytes.fromhex("0000000900000000"))]
            ),
        ),
    ],
)
def test_changes_that_cannot_be_are_refused_with_the_log_end(request_of: object) -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader().node
    answer = cluster.ask(leader.server_id, request_of(leader.server_id))  # type: ignore[operator]
    assert answer is not None
    assert (answer.accepted, answer.next_index) == (False, 2)


def test_a_far_behind_joiner_gets_a_snapshot_in_chunks() -> None:
    core = replace(CORE_LIMITS, snapshot_distance=20, trailing_entries=0, chunk_size=100)
    cluster = Cluster(1, 2, 3, core=core)
    leader = cluster.leader()
    values = [b"snap%03d" % number for number in range(100)]
    for value in values:
        leader.node.propose([value])
        cluster.run(0.0)
    cluster.run(0.5)
    cluster.add(4)
    leader.node.add_server(server(4))
    cluster.run(2.0)
    newcomer = cluster.members[4]
    assert newcomer.machine.values == values
    assert any(isinstance(event, SnapshotInstalled) for event in newcomer.events)
    pipe = next(pipe for pipe in cluster.pipes if pipe.to == 4)
    kinds = [request.type for request in requests_in(bytes(pipe.up))]
    assert kinds.count(MessageType.INSTALL_SNAPSHOT_REQUEST) >= 7


def test_a_restarted_follower_catches_up_and_a_lost_leader_is_replaced() -> None:
    cluster = Cluster(1, 2, 3)
    first = cluster.leader().node.server_id
    cluster.members[first].node.propose([b"one"])
    cluster.run(0.5)
    cluster.stop(first)
    second = cluster.leader()
    assert second.node.server_id != first
    second.node.propose([b"two"])
    cluster.run(0.5)
    store = cluster.members[first].store
    cluster.down.clear()
    member = cluster.add(first, store.load())
    cluster.run(2.0)
    assert member.machine.values == [b"one", b"two"]


def test_leadership_is_transferred_on_request() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader().node
    target = follower_of(cluster, leader.server_id)
    term = leader.term
    leader.transfer_leadership(target)
    cluster.run(0.1)
    assert cluster.members[target].node.state is State.LEADER
    assert cluster.members[target].node.term == term + 1
    assert leader.leader == target


def close_code(cluster: Cluster, number: int) -> ErrorCode | None:
    closed = [e for e in cluster.members[number].events if isinstance(e, LinkClosed)]
    error = closed[-1].error
    return None if error is None else ErrorCode(error.code)


def header(kind: int, *, source: int = 0, destination: int = 0, log: bytes = b"") -> bytes:
    data = bytearray(RequestFrame(type=MessageType.CLIENT_REQUEST, log=log).encode())
    data[0] = kind
    data[1:9] = source.to_bytes(4, "big") + destination.to_bytes(4, "big")
    return bytes(data)


def entry(kind: int, value: bytes) -> bytes:
    return bytes(8) + bytes([kind]) + len(value).to_bytes(4, "big") + value


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (header(99), ErrorCode.UNKNOWN_MESSAGE_TYPE),
        (header(0), ErrorCode.UNKNOWN_MESSAGE_TYPE),
        (header(4), ErrorCode.RESPONSE_AS_REQUEST),
        (header(17), ErrorCode.RESPONSE_AS_REQUEST),
        (header(5)[:-4] + b"\x7f\xff\xff\xff", ErrorCode.LOG_TOO_LARGE),
        (header(5, log=entry(9, b"x")), ErrorCode.UNKNOWN_VALUE_TYPE),
        (header(5, log=entry(1, b"abc")[:-1]), ErrorCode.BAD_LOG_ENTRY),
        (header(5, log=b"short"), ErrorCode.BAD_LOG_ENTRY),
        (header(5, log=entry(2, b"not-a-config")), ErrorCode.WRONG_ENTRIES),
        (header(6), ErrorCode.WRONG_ENTRIES),
        (header(6, log=entry(3, b"zz")), ErrorCode.BAD_VALUE),
        (header(8), ErrorCode.WRONG_ENTRIES),
        (header(10, source=2, destination=1, log=entry(4, b"zz")), ErrorCode.BAD_VALUE),
        (header(12, source=2, destination=1), ErrorCode.WRONG_ENTRIES),
        (header(16, source=2, destination=1), ErrorCode.WRONG_ENTRIES),
        (header(3, source=2, destination=77), ErrorCode.WRONG_DESTINATION),
        (header(3, source=1, destination=1), ErrorCode.WRONG_SOURCE),
        (header(3, source=2, destination=1)[:9] + b"\xff" * 36, ErrorCode.LOG_TOO_LARGE),
        (
            header(3, source=2, destination=1)[:9] + b"\xff" * 8 + bytes(28),
            ErrorCode.NUMBER_TOO_LARGE,
        ),
        (header(1, source=2, destination=1, log=entry(1, b"")), ErrorCode.WRONG_ENTRIES),
    ],
)
def test_bad_requests_close_the_connection_with_a_code_and_leave_the_node_unharmed(
    data: bytes, expected: ErrorCode
) -> None:
    cluster = Cluster(1)
    node = cluster.leader().node
    _, pipe = cluster.client(1)
    pipe.far.receive_data(data)
    if expected is ErrorCode.LOG_TOO_LARGE and data[9] == 0xFF:
        expected = ErrorCode.NUMBER_TOO_LARGE
    cluster.run(0.0)
    assert close_code(cluster, 1) is expected
    assert pipe.far.closed
    assert node.state is State.LEADER
    answer = cluster.ask(1, client_request(b"still here"))
    assert answer is not None
    assert answer.accepted


def test_a_log_pack_that_inflates_too_far_closes_the_connection() -> None:
    import gzip

    cluster = Cluster(1, limits=Limits(inflated_size_max=1000))
    cluster.leader()
    _, pipe = cluster.client(1)
    bomb = gzip.compress(bytes(1_000_000))
    pipe.far.receive_data(header(10, source=2, destination=1, log=entry(4, bomb)))
    cluster.run(0.0)
    assert close_code(cluster, 1) is ErrorCode.INFLATED_TOO_LARGE


@pytest.mark.parametrize("whole", [True, False])
def test_whom_a_request_lets_us_dial_is_told_before_what_comes_after_it(whole: bool) -> None:
    """However the bytes were cut: a bad frame right after it ends the link later."""
    cluster = Cluster(1)
    member = cluster.members[cluster.leader().node.server_id]
    link = member.node.accepted()
    good, bad = add_request(9).encode(), header(0)
    told = []
    for data in [good + bad] if whole else [good, bad]:
        link.receive_data(data)
        while (event := member.node.next_event()) is not None:
            told.append(type(event))
    assert told == [DialWanted, LinkClosed]


def test_a_request_cut_short_is_truncated() -> None:
    cluster = Cluster(1)
    cluster.leader()
    _, pipe = cluster.client(1)
    pipe.far.receive_data(header(5)[:20])
    pipe.far.receive_eof()
    cluster.run(0.0)
    assert close_code(cluster, 1) is ErrorCode.TRUNCATED


def test_pipelined_client_requests_are_answered_in_order() -> None:
    cluster = Cluster(1)
    cluster.leader()
    near, _ = cluster.client(1)
    for number in range(50):
        near.send_request(client_request(b"%d" % number))
    cluster.run(0.0)
    answers = []
    while (event := near.next_event()) is not None:
        answers.append(event.response.next_index)  # type: ignore[attr-defined]
    assert answers == list(range(3, 53))


def test_more_requests_than_the_bound_wait_in_the_stream() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    pipe_data = b"".join(client_request(b"%d" % n).encode() for n in range(500))
    _, pipe = cluster.client(leader.node.server_id)
    pipe.far.receive_data(pipe_data)
    cluster.run(0.5)
    assert leader.machine.values == [b"%d" % n for n in range(500)]


def test_configuration_changes_are_told_once_each() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    cluster.add(4)
    leader.node.add_server(server(4))
    cluster.run(1.0)
    told = [event for event in leader.events if isinstance(event, ConfigurationChanged)]
    assert [event.configuration.ids for event in told] == [{1, 2, 3, 4}]


def test_what_waits_for_a_connection_is_sent_even_if_credentials_are_asked_for_first() -> None:
    """Each dialler is challenged once, without losing its first vote requests."""
    cluster = Cluster(1, 2, 3, handshake=True)
    leader = cluster.leader().node
    assert leader.term == 1
