"""The links of a node: their ends, their contents, and valid times."""

from __future__ import annotations

import gc
import math
import random
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest
from garlic_cluster import Cluster, server

from culm.garlic.digest import CredentialCache, Nonces
from culm.garlic.errors import ErrorCode
from culm.garlic.events import DialWanted, LinkClosed
from culm.garlic.handshake import ClientHandshake, ServerHandshake
from culm.garlic.limits import Limits, Timing
from culm.garlic.messages import MessageType, RequestFrame
from culm.garlic.node import Node
from culm.garlic.raft import (
    Configuration,
    Entry,
    Persist,
    Raft,
    Snapshot,
    State,
    Stored,
    WriteSnapshot,
)
from culm.garlic.raft import Timing as RaftTiming
from culm.garlic.raft.messages import AppendResponse
from culm.garlic.values import (
    LogEntry,
    SnapshotSyncRequest,
    ValueType,
    encode_entries,
    encode_log,
)
from culm.machine import (
    Closed,
    ContractErrorCode,
    Effect,
    LinkedMachine,
    LocalProtocolError,
    Timed,
)
from culm.machine import Link as LinkProtocol
from culm.machines.driver import Driver
from culm.machines.operations import Call, Eof, Receive

FOUNDERS = Stored(
    snapshot=Snapshot(configuration=Configuration(servers=tuple(map(server, (1, 2, 3)))))
)


def node(**options: Any) -> Node:
    return Node(server_id=1, stored=FOUNDERS, rng=random.Random(1), now=0.0, **options)


def append(term: int, *entries: Entry) -> bytes:
    return RequestFrame(
        type=MessageType.APPEND_ENTRIES_REQUEST,
        source=2,
        destination=1,
        term=term,
        log=encode_log(entries),
    ).encode()


def chunk(term: int) -> bytes:
    """All of a snapshot except its last byte."""
    sent = SnapshotSyncRequest(
        snapshot=Snapshot(9, 1, FOUNDERS.snapshot.configuration), offset=0, data=b"x", done=False
    )
    return RequestFrame(
        type=MessageType.INSTALL_SNAPSHOT_REQUEST,
        source=2,
        destination=1,
        term=term,
        log=encode_entries([LogEntry(term, ValueType.SNAPSHOT_SYNC_REQUEST, sent.encode())]),
    ).encode()


def except_for(kind: type[Effect[Any]]) -> Callable[[Driver], None]:
    """Answers all effects except those of that kind."""

    def answer(driver: Driver) -> None:
        while rest := [effect for effect in driver.unanswered if not isinstance(effect, kind)]:
            driver.unanswered.remove(rest[0])
            driver.machine.complete(rest[0].ticket, None)
            driver.drain(None)

    return answer


def test_a_node_and_its_links_keep_the_contracts_shape() -> None:
    machine = node()
    assert isinstance(machine, LinkedMachine)
    assert isinstance(machine, Timed)
    assert isinstance(machine.accepted(), LinkProtocol)


def test_a_connection_may_end_while_an_answer_waits_for_an_earlier_one() -> None:
    """The chunk waits for the store, the heartbeat after it has its answer."""
    driver = Driver(node())
    answer = except_for(WriteSnapshot)
    link = driver.do(Call("accepted")).result
    assert isinstance(link, int)
    driver.do(Receive(chunk(1) + append(1), link))
    answer(driver)
    assert [type(effect) for effect in driver.unanswered] == [WriteSnapshot]
    ended = driver.do(Eof(link))
    assert ended.events == (LinkClosed(link=link, peer=2, error=None),)


def test_answers_to_ended_connections_do_not_wait_for_the_store() -> None:
    """A peer that comes again and again while the store stands still fills no memory."""

    def responses() -> int:
        return sum(isinstance(each, AppendResponse) for each in gc.get_objects())

    before = responses()
    driver = Driver(node())
    for _ in range(20):
        link = driver.do(Call("accepted")).result
        assert isinstance(link, int)
        driver.do(Receive(append(1) * 10, link))
        driver.do(Eof(link))
    assert [type(effect) for effect in driver.unanswered] == [Persist]
    assert responses() == before


def test_a_node_ends_its_links_before_itself() -> None:
    driver = Driver(node())
    for _ in range(2):
        driver.do(Call("accepted"))
    ended = driver.do(Call("close"))
    assert ended.events == (
        LinkClosed(link=1, peer=None, error=None),
        LinkClosed(link=2, peer=None, error=None),
        Closed(),
    )
    assert driver.machine.state is State.CLOSED
    assert driver.do(Call("accepted")).error is not None


def test_what_comes_after_the_end_of_a_link_is_not_kept() -> None:
    machine = node()
    link = machine.accepted()
    link.receive_data(b"\xff")
    closed = machine.next_event()
    assert isinstance(closed, LinkClosed)
    assert closed.error is not None
    link.receive_data(append(1))
    assert machine.next_event() is None
    assert link.read_size() == 0


def test_what_is_no_buffer_is_refused_by_a_link_that_has_ended_too() -> None:
    machine = node()
    link = machine.accepted()
    link.close()
    assert isinstance(machine.next_event(), LinkClosed)
    for wrong in ("text", [1, 2], 5, None):
        with pytest.raises(TypeError):
            link.receive_data(cast("bytes", wrong))


def test_bytes_may_be_taken_before_the_end_of_a_link_is() -> None:
    """The core wants to ask a peer whose connection was given up a moment ago."""
    machine = node()
    machine.advance(1.0)
    opened = []
    while (event := machine.next_event()) is not None or (effect := machine.next_effect()):
        if isinstance(event, DialWanted):
            opened.append(machine.dialled(event.server.server_id))
        elif event is None and effect is not None:
            machine.complete(effect.ticket, None)
    opened[0].close()
    assert machine.links_to_send() == opened
    assert [len(link.data_to_send()) for link in opened] == [0, 45]
    assert machine.next_event() == LinkClosed(link=1, peer=2, error=None)


def test_a_peer_that_does_not_read_its_answers_is_not_asked_for_more() -> None:
    driver = Driver(node(limits=Limits(unanswered_max=4)))
    answer = except_for(WriteSnapshot)
    link = driver.do(Call("accepted")).result
    assert isinstance(link, int)
    driver.take = lambda machine: b""
    for _ in range(8):
        driver.do(Receive(append(1), link))
        answer(driver)
    waiting = driver.links[link].data_to_send()
    assert len(waiting) == 4 * 26
    driver.take = None
    driver.drain(None)
    assert sum(len(data) for _, data in driver.drain(None).links) == 0


@pytest.mark.parametrize("size", [100, 900])
def test_what_a_leader_sends_fits_the_frames_of_the_limits(size: int) -> None:
    limits = Limits(log_size_max=2048, entries_max=16)
    cluster = Cluster(1, 2, limits=limits)
    leader = cluster.leader().node
    values = [bytes([n]) * size for n in range(50)]
    leader.propose(values)
    cluster.run(1.0)
    assert all(member.machine.values == values for member in cluster.members.values())


def test_a_joiner_is_given_what_fits_the_frames_of_the_limits() -> None:
    limits = Limits(log_size_max=2048, entries_max=16)
    cluster = Cluster(1, limits=limits)
    leader = cluster.leader().node
    chance = random.Random(1)
    values = [chance.randbytes(900) for n in range(20)]
    leader.propose(values)
    cluster.add(4)
    leader.add_server(server(4))
    cluster.run(2.0)
    assert cluster.members[4].machine.values == values


# The time


def handshakes() -> list[Any]:
    return [
        ServerHandshake(lookup={}.get, nonces=Nonces(rng=random.Random(1)), now=5.0),
        ClientHandshake(
            host="farm",
            user="u",
            password="p",
            cache=CredentialCache(),
            rng=random.Random(1),
            now=5.0,
        ),
    ]


def at_five() -> list[Any]:
    core = Raft(server_id=1, stored=FOUNDERS, rng=random.Random(1), now=0.0)
    machines = [core, node()]
    for machine in machines:
        machine.advance(5.0)
    return [*machines, *handshakes()]


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize(
    ("now", "code"),
    [
        (math.nan, ContractErrorCode.NOT_A_TIME),
        (math.inf, ContractErrorCode.NOT_A_TIME),
        (-math.inf, ContractErrorCode.NOT_A_TIME),
        (4.9, ContractErrorCode.TIME_WENT_BACK),
    ],
)
def test_what_is_no_time_is_refused(which: int, now: float, code: ContractErrorCode) -> None:
    machine, twin = at_five()[which], at_five()[which]
    with pytest.raises(LocalProtocolError) as refusal:
        machine.advance(now)
    assert refusal.value.code is code
    assert machine.next_deadline() == twin.next_deadline()
    machine.advance(5.0)


@pytest.mark.parametrize("build", [Raft, Node])
def test_nobody_is_born_at_no_time(build: Any) -> None:
    with pytest.raises(LocalProtocolError):
        build(server_id=1, stored=FOUNDERS, rng=random.Random(1), now=math.nan)


# The handshake


def client(cache: CredentialCache) -> ClientHandshake:
    return ClientHandshake(
        host="farm", user="farm", password="er", cache=cache, rng=random.Random(2)
    )


def test_a_challenge_of_any_characters_is_answered() -> None:
    """They come from the server, and the next connection to it repeats them."""
    cache = CredentialCache()
    first = client(cache)
    first.receive_data(
        b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n"
        b'WWW-Authenticate: Digest realm="f\xe4rm", nonce="\xba\xff", qop="auth", algorithm=MD5,'
        b' opaque="\xff"\r\n\r\n'
    )
    assert first.next_event() is not None
    assert b'realm="f\xe4rm", nonce="\xba\xff"' in client(cache).data_to_send()


def test_other_informational_responses_may_come_with_the_real_one() -> None:
    cache = CredentialCache()
    machine = client(cache)
    machine.receive_data(
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3
        + b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    )
    event = machine.next_event()
    assert isinstance(event, Closed)
    assert event.error is not None


def client_handshake() -> ClientHandshake:
    rng, cache = random.Random(1), CredentialCache()
    return ClientHandshake(host="two", user="farm", password="er", cache=cache, rng=rng, now=0.0)


class Asker:
    """A node that has asked server 2, and sends nothing more: it waits for that answer alone."""

    def __init__(self, timeout: float = 1000.0) -> None:
        founding = Stored.founding([server(1), server(2)])
        timing = RaftTiming(election_timeout_min_s=timeout, election_timeout_max_s=timeout)
        self.node = Node(
            server_id=1,
            stored=founding,
            rng=random.Random(1),
            now=0.0,
            timing=Timing(answer_timeout_s=5.0, raft=timing),
        )
        self.now = 0.0
        self.wait(timeout)
        self.link = self.node.dialled(2)
        self.wait(timeout)  # it knows now that the other side has no pre-vote, and stands

    def drain(self) -> list[object]:
        events: list[object] = []
        while (event := self.node.next_event()) is not None:
            events.append(event)
        while (effect := self.node.next_effect()) is not None:
            self.node.complete(effect.ticket, None)
        return events

    def wait(self, seconds: float) -> list[object]:
        self.now += seconds
        self.node.advance(self.now)
        events = self.drain()
        self.node.links_to_send()
        return events


def test_a_peer_that_never_answers_is_dialled_anew() -> None:
    """Its machine may have lost power, without any sign that the connection is dead."""
    asker = Asker()
    assert asker.link.data_to_send()
    asked_at = asker.now
    deadline = asker.node.next_deadline()
    assert deadline is not None
    assert deadline <= asked_at + 5.0
    assert asker.wait(4.9) == []
    closed, *_ = asker.wait(0.1)
    assert isinstance(closed, LinkClosed)
    assert (closed.peer, closed.error and closed.error.code) == (2, ErrorCode.ANSWER_TIMEOUT)
    assert any(isinstance(event, DialWanted) for event in asker.wait(1.0))


@pytest.mark.parametrize("way", ["comes", "goes"])
def test_a_peer_is_waited_for_as_long_as_bytes_move(way: str) -> None:
    asker = Asker()
    for _ in range(4):
        assert asker.wait(4.0) == []
        if way == "comes":
            asker.link.receive_data(b"\2")  # a vote, byte by byte
        else:
            assert asker.link.data_to_send(1)
    assert asker.wait(4.9) == []
    assert any(isinstance(event, LinkClosed) for event in asker.wait(0.1))


def test_a_peer_that_was_given_up_is_waited_for_longer_each_time() -> None:
    """What the operating system takes at once may be on a slow line for longer than a wait."""
    asker = Asker(1.0)

    def ends(seconds: float, *, answers: bool) -> list[float]:
        """The times at which connections were given up."""
        times = []
        for _ in range(int(seconds / 0.25)):
            for event in asker.wait(0.25):
                if isinstance(event, LinkClosed):
                    times.append(asker.now)
                elif isinstance(event, DialWanted):
                    asker.link = asker.node.dialled(2)
            asked = len(asker.link.data_to_send()) // 45
            if answers:
                asker.link.receive_data(asked * struct.pack(">BIIQQB", 2, 2, 1, 0, 0, 0))
        return times

    first, second, third = ends(40.0, answers=False)
    assert 10.0 < second - first < 12.0
    assert 20.0 < third - second < 22.0
    assert ends(6.0, answers=True) == []  # one that has answered as much is as good as new
    now = asker.now
    assert 4.0 < ends(6.0, answers=False)[0] - now < 6.5


@pytest.mark.parametrize("established", [True, False])
def test_who_is_not_given_time_for_a_handshake_dials_less_often(established: bool) -> None:
    """Servers that share one place for strangers would end each other's handshakes for ever."""
    asker = Asker(1.0)
    pauses: list[float] = []
    for _ in range(12):
        handshake = None if established else client_handshake()
        asker.link.receive_eof()
        ended_at = asker.now
        while not any(isinstance(event, DialWanted) for event in asker.wait(0.01)):
            pass
        pauses.append(asker.now - ended_at)
        asker.link = asker.node.dialled(2, handshake=handshake)
    longest = Timing().dial_pause_max_s if established else Timing().handshake_timeout_s
    assert longest / 2 <= pauses[-1] <= longest + 0.01


def test_a_connection_on_which_nothing_is_asked_may_be_quiet() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.leader()
    cluster.run(31.0)
    events = [event for member in cluster.members.values() for event in member.events]
    assert not any(isinstance(event, LinkClosed) for event in events)
