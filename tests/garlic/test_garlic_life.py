"""Nothing said, refused or cancelled leaves a server stuck: the laws of life for nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from garlic_cluster import CORE_LIMITS, USERS, Cluster, Member, server
from garlic_simulator import BAD_FRAMES
from raft_disk import Disk
from raft_intruder import STRANGER, Intruder
from raft_simulator import Simulator, run_seed
from raft_weather import Weather

from culm import garlic
from culm.garlic.digest import CredentialCache
from culm.garlic.events import LinkClosed
from culm.garlic.handshake import ClientHandshake
from culm.garlic.messages import MessageType, RequestFrame
from culm.garlic.raft import (
    Entry,
    ErrorCode,
    LeadershipTransferred,
    Left,
    Server,
    State,
    TransferFailed,
)
from culm.garlic.raft import messages as m
from culm.garlic.raft.terms import Terms
from culm.garlic.states import HandshakeState
from culm.garlic.translate import Translator
from culm.machine import Event, LocalProtocolError

CALM = Weather(
    loss=0.0,
    duplication=0.0,
    delay_max=0.002,
    crash=0.0,
    partition=0.0,
    change=0.0,
    transfer=0.0,
    skew=0.0,
    disk_delay_max=0.0005,
    pause=0.1,
)


class Bricks(Simulator):
    """Three servers in fair weather, and the given attack after half a second."""

    def __init__(self, seed: int, strike: Callable[[Bricks], None], *, falls: bool) -> None:
        super().__init__(seed, weather=CALM, size=3, intrudes=False)
        self.is_attacked = True  # by the story, not by chance
        self.limits = type(self.limits)()
        for node in self.nodes.values():
            self.crash(node)
            self.start(node)
        self.falls = falls
        self.at(0.5, lambda: strike(self))


def forge_terms(world: Bricks, victim: int, source: int, kind: str, count: int) -> None:
    raft = world.nodes[victim].raft
    assert raft is not None
    make = {"vote": Intruder.vote, "entries": Intruder.heartbeat}[kind]
    intruder = Intruder(world, random.Random(1))
    for _ in range(count):
        term = min(2**62, raft.term + 2**32)
        world.forge([make(intruder, source, victim, term)])


@pytest.mark.parametrize("falls", [False, True], ids=["they live", "all restart"])
@pytest.mark.parametrize("victims", [(2,), (1, 2, 3)])
@pytest.mark.parametrize("kind", ["vote", "entries"])
@pytest.mark.parametrize("source", ["a member", "a stranger"])
def test_a_few_forged_terms_put_nobody_out(
    source: str, kind: str, victims: tuple[int, ...], *, falls: bool
) -> None:
    """Two entries in a member's name used to put one server out for good, and six all of them."""

    def strike(world: Bricks) -> None:
        for victim in victims:
            name = STRANGER if source == "a stranger" else victim % 3 + 1
            forge_terms(world, victim, name, kind, 2)

    for seed in range(3):
        world = Bricks(seed, strike, falls=falls)
        world.run(1.0)  # ends with a check that all servers are in service
        assert max(node.disk.term for node in world.nodes.values()) < 2**21


def test_strangers_put_nobody_out_while_the_leader_is_silent() -> None:
    """For 0.2 seconds: six vote requests from a non-member used to be enough."""
    struck = 0

    def strike(world: Bricks) -> None:
        for leader in world.leaders():
            leader.stalled = world.now + 0.25
            world.at(world.now + 0.2, partial(tempt, world, leader.id))

    def tempt(world: Bricks, leader: int) -> None:
        nonlocal struck
        for victim in {1, 2, 3} - {leader}:
            struck += 1
            forge_terms(world, victim, STRANGER, "vote", 3)

    for seed in range(6):
        world = Bricks(seed, strike, falls=False)
        world.run(1.0)
        assert max(node.disk.term for node in world.nodes.values()) < 100
    assert struck


@pytest.mark.parametrize("role", list(State)[:4], ids=lambda role: role.value)
def test_a_finite_attack_in_every_role_ends(role: State) -> None:
    """The first server seen in that role gets everything that an intruder can say."""

    for seed in range(4):
        world = Bricks(2 * seed + 1, lambda world: None, falls=seed % 2 == 1)
        struck = False

        def watch(world: Bricks = world) -> None:
            nonlocal struck
            for node in world.running():
                if not struck and node.core is not None and node.core.state is role:
                    struck = True
                    for _ in range(20):
                        world.intruder.strike()
            if not world.stopped:
                world.at(world.now + 0.0005, watch)

        world.at(0.0, watch)
        world.run(1.0)
        assert struck


def test_a_snapshot_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator checks every chunk; here the disk itself is checked, in the worst seed."""
    largest = 0
    write_chunk = Disk.write_chunk

    def watched(disk: Disk, *args: object) -> bool:
        nonlocal largest
        done = write_chunk(disk, *args)  # type: ignore[arg-type]
        largest = max(largest, len(disk.incoming))
        return done

    monkeypatch.setattr(Disk, "write_chunk", watched)
    simulator = run_seed(3)
    assert simulator.happened["forged"]
    assert 0 < largest <= simulator.limits.snapshot_size_max


def speak(cluster: Cluster, to: int, request: m.RaftRequest) -> None:
    """A stranger connects to a node, and sends a server's request."""
    near, _ = cluster.client(to)
    near.send_request(Translator(garlic.Limits()).encode_request(request))
    cluster.run(0.02)


def test_a_frame_that_denies_what_is_committed_costs_its_connection() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    leader.node.propose([b"one"])
    cluster.run(0.2)
    victim, other = others_of(cluster, leader)
    node = cluster.members[victim].node
    denial = m.AppendRequest(
        source=other,
        destination=victim,
        term=node.term + 1,
        previous_index=node.commit_index,
        previous_term=node.term + 1,
        commit_index=0,
        entries=(),
    )
    speak(cluster, victim, denial)
    ends = [one for one in cluster.members[victim].events if isinstance(one, LinkClosed)]
    assert [one.error.code for one in ends if one.error] == [ErrorCode.CONTRADICTION]
    assert cluster.run(2.0, lambda: any(one.node.state is State.LEADER for one in members(cluster)))
    cluster.leader().node.propose([b"two"])
    cluster.run(0.5)
    assert all(one.machine.values == [b"one", b"two"] for one in members(cluster))


def members(cluster: Cluster) -> list[Member]:
    return list(cluster.members.values())


def others_of(cluster: Cluster, leader: Member) -> list[int]:
    return [number for number in cluster.members if number != leader.node.server_id]


# Orders to leave


def order_to_leave(leader: Member, number: int) -> m.LeaveRequest:
    """The only message of a removal that is given up."""
    return m.LeaveRequest(
        source=leader.node.server_id,
        destination=number,
        term=leader.node.term,
        last_log_index=leader.node.last_index,
        commit_index=leader.node.commit_index,
    )


def test_orders_to_leave_that_were_cancelled_leave_nothing_behind() -> None:
    """Two of three are told, the leader changes its mind and dies: none used to stand again."""
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    others = others_of(cluster, leader)
    for number in others:
        speak(cluster, number, order_to_leave(leader, number))
    assert leader.node.configuration.ids == {1, 2, 3}
    cluster.stop(leader.node.server_id)
    assert cluster.run(
        3.0, lambda: any(cluster.members[one].node.state is State.LEADER for one in others)
    )
    assert not any(Left() in cluster.members[number].events for number in others)


def test_a_leader_that_stands_again_is_heard_by_whom_it_ordered_to_leave() -> None:
    """One of two may not stand; it used to take the other's vote requests for signs of a leader."""
    cluster = Cluster(1, 2)
    leader = cluster.leader()
    (other,) = others_of(cluster, leader)
    speak(cluster, other, order_to_leave(leader, other))
    cluster.paused.add(other)
    assert cluster.run(2.0, lambda: leader.node.state is not State.LEADER)
    cluster.paused.clear()
    assert cluster.run(3.0, lambda: any(one.node.state is State.LEADER for one in members(cluster)))


# Leaders, real and supposed


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pause", [0.4, 1.0, 3.0, 40.0])
def test_a_follower_that_was_stopped_for_a_while_deposes_nobody(pause: float, seed: int) -> None:
    """Without handshakes there is no pre-vote, so it must hear its leader in time."""
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    cluster.run(0.2 + 0.013 * seed)
    term = leader.node.term
    follower = others_of(cluster, leader)[seed % 2]
    cluster.paused.add(follower)
    cluster.run(pause + 0.017 * seed)
    cluster.paused.clear()
    cluster.run(2.0)
    assert (leader.node.state, leader.node.term) == (State.LEADER, term)


def test_a_leader_that_is_only_refused_does_not_lead_on() -> None:
    """Bytes of refusals used to count as life: it led for as long as they came."""
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    others = others_of(cluster, leader)
    term = leader.node.term
    for number in others:  # both are in a term in which they cannot follow this leader
        stored = cluster.members[number].store.load()
        cluster.stop(number)
        cluster.add(number, replace(stored, term=2**50, voted_for=None))
        cluster.down.remove(number)
    assert cluster.run(
        1.0, lambda: leader.node.state is not State.LEADER or leader.node.term > term
    )


# Transfer of leadership


def test_a_transfer_ends_with_the_word_of_who_leads() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    target, _ = others_of(cluster, leader)
    leader.node.transfer_leadership(target)
    cluster.run(1.0)
    assert outcomes(leader) == [LeadershipTransferred(target=target)]
    assert leader.node.leader == target


def test_a_transfer_to_a_server_that_does_not_win_has_failed() -> None:
    """It has stood for election, which ends the leader's term; then it is gone."""
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    target, _ = others_of(cluster, leader)
    leader.node.transfer_leadership(target)
    vote = m.VoteRequest(
        source=target,
        destination=leader.node.server_id,
        term=leader.node.term + 1,
        last_log_index=0,
        last_log_term=0,
        transfer=True,
    )
    cluster.stop(target)
    speak(cluster, leader.node.server_id, vote)
    assert leader.node.state is not State.LEADER
    cluster.run(2.0)
    assert outcomes(leader) == [TransferFailed(target=target)]


def outcomes(member: Member) -> list[Event]:
    return [one for one in member.events if isinstance(one, LeadershipTransferred | TransferFailed)]


# The right to speak for a server


def test_its_user_speaks_for_a_server() -> None:
    cluster = Cluster(1, 2, 3, handshake=True, users=USERS)
    leader = cluster.leader()
    leader.node.propose([b"value"])
    cluster.run(0.5)
    assert all(one.machine.values == [b"value"] for one in members(cluster))
    links = [link for one in members(cluster) for link in one.node.links]
    assert {link.user for link in links if not link.dialled} <= set(USERS.values())


@pytest.mark.parametrize("bound", [{1: "one", 2: "two"}, {**USERS, 3: "nobody"}])
def test_nobody_else_does(bound: dict[int, str]) -> None:
    """A user with a password that claims to be server 3 is not heard."""
    cluster = Cluster(1, 2, 3, handshake=True, users=bound)
    leader = cluster.leader()
    assert leader.node.server_id != 3
    leader.node.transfer_leadership(3)
    cluster.run(1.0)
    ends = [one for member in members(cluster) for one in member.events]
    codes = {one.error.code for one in ends if isinstance(one, LinkClosed) and one.error}
    assert codes == {garlic.ErrorCode.WRONG_SOURCE}


def enter(cluster: Cluster, number: int) -> garlic.Link:
    """A connection to a server, from a user that knows the password."""
    member, cache, link = cluster.members[number], CredentialCache(), None
    for _ in range(2):  # the first one brings the challenge
        client = ClientHandshake(
            host="a", user="farm", password="er", cache=cache, rng=random.Random(3), now=cluster.now
        )
        link = member.node.accepted(handshake=cluster.server_handshake(number))
        link.receive_data(client.data_to_send())
        cluster.drain(member)
        member.node.links_to_send()
        client.receive_data(link.data_to_send())
        while client.next_event() is not None:
            pass
    assert link is not None
    assert client.state is HandshakeState.DONE
    return link


@pytest.mark.parametrize(
    "kind", [MessageType.APPEND_ENTRIES_REQUEST, MessageType.REQUEST_VOTE_REQUEST]
)
@pytest.mark.parametrize("stranger", [False, True], ids=["a member", "a stranger"])
def test_who_has_the_password_puts_nobody_out(kind: MessageType, *, stranger: bool) -> None:
    cluster = Cluster(1, 2, 3, handshake=True)
    leader = cluster.leader()
    for number, member in cluster.members.items():
        link, source = enter(cluster, number), STRANGER if stranger else number % 3 + 1
        for _ in range(2):
            term = member.node.term + 2**32
            frame = RequestFrame(type=kind, source=source, destination=number, term=term)
            link.receive_data(frame.encode())
            cluster.drain(member)
    cluster.run(3.0)
    leader = cluster.leader()
    leader.node.propose([b"on"])
    assert cluster.run(1.0, lambda: all(one.machine.values == [b"on"] for one in members(cluster)))
    assert leader.node.term < 2**22
    assert (leader.node.term > 2**20) is not stranger  # a member's claim is accepted, in steps


def test_without_a_handshake_nobody_speaks_for_a_server_that_is_bound() -> None:
    cluster = Cluster(1, 2, 3, users=USERS)
    cluster.run(3.0)
    assert {one.node.state for one in members(cluster)}.isdisjoint({State.LEADER})


# One bad frame, and one stuck server


def asked(number: int, previous: int, values: list[bytes]) -> bytes:
    """The frame with which the leader, server 1, gives `number` these entries."""
    request = m.AppendRequest(
        source=1,
        destination=number,
        term=1,
        previous_index=previous,
        previous_term=1 if previous else 0,
        commit_index=previous,
        entries=[Entry(1, value) for value in values],
    )
    return Translator(garlic.Limits()).encode_request(request).encode()


def whole() -> int:
    return 1 << 20


def byte_by_byte() -> int:
    return 1


def told(frames: bytes, cuts: Callable[[], int]) -> tuple[object, bytes]:
    """The stored state of a server that hears `frames` in pieces, and all of its answers."""
    cluster = Cluster(1, 2, 3)
    member = cluster.members[2]
    link, answers = member.node.accepted(), b""
    while frames and not link.closed:
        size = cuts()
        link.receive_data(frames[:size])
        frames = frames[size:]
        cluster.drain(member)
        member.node.links_to_send()
        answers += link.data_to_send()
    kept = member.store.load()
    return (kept.term, kept.entries, member.node.commit_index), answers


@pytest.mark.parametrize("bad", range(len(BAD_FRAMES)))
def test_a_bad_frame_costs_nothing_of_what_came_before_however_all_is_cut(bad: int) -> None:
    good = [asked(2, index, [b"%d" % index]) for index in range(6)]
    for place in range(len(good) + 1):
        stream = b"".join([*good[:place], BAD_FRAMES[bad], *good[place:]])
        at_random = partial(random.Random(place).randint, 1, 60)
        ways = [told(stream, cuts) for cuts in (whole, byte_by_byte, at_random)]
        kept = ways[0][0]
        assert [one for one, _ in ways] == [kept] * 3
        if place:
            assert kept == told(b"".join(good[:place]), whole)[0]


def time_of_commits(cluster: Cluster, count: int) -> float:
    leader = cluster.leader()
    began = cluster.now
    for number in range(count):
        leader.node.propose([b"%d" % number])
        wanted = leader.node.last_index
        assert cluster.run(5.0, lambda wanted=wanted: leader.node.commit_index >= wanted)
    return cluster.now - began


def test_a_stuck_server_holds_up_nobody_else() -> None:
    healthy, beside = Cluster(1, 2, 3), Cluster(1, 2, 3)
    expected = time_of_commits(healthy, 50)
    stuck = others_of(beside, beside.leader())[0]
    beside.paused.add(stuck)
    assert time_of_commits(beside, 50) <= expected + 0.01
    beside.paused.clear()
    assert beside.run(5.0, lambda: len(beside.members[stuck].machine.values) == 50)


# Candidates for a place in the configuration


@pytest.mark.parametrize("ways", ["by a call", "on the wire"])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(
    "limits",
    [
        lambda endpoints: {"servers_max": len(endpoints)},
        lambda endpoints: {"endpoint_size_max": max(map(len, endpoints))},
        lambda endpoints: {"log_size_max": 2 * (62 + sum(16 + len(one) for one in endpoints)) + 1},
    ],
    ids=["servers", "endpoint", "frame"],
)
def test_a_server_for_which_no_configuration_has_room_is_refused(
    limits: Callable[[list[str]], dict[str, int]], members: int, ways: str
) -> None:
    """It used to be accepted, with an unreadable entry: one server alone was stuck for good."""
    numbers = range(1, members + 1)
    most = garlic.Limits(**limits([server(number).endpoint for number in numbers]))
    cluster = Cluster(*numbers, handshake=True, limits=most)
    leader = cluster.leader()
    term = leader.node.term
    cluster.add(9)
    wanted = Server(9, server(9).endpoint, voter=False)
    if ways == "by a call":
        with pytest.raises(LocalProtocolError) as refused:
            leader.node.add_server(wanted)
        assert refused.value.code is ErrorCode.CONFIGURATION_TOO_LARGE
    else:
        request = m.AddServerRequest(source=0, destination=0, term=0, server=wanted)
        speak(cluster, leader.node.server_id, request)
    cluster.run(3.0)
    assert (leader.node.state, leader.node.term) == (State.LEADER, term)
    leader.node.propose([b"on"])
    assert cluster.run(1.0, lambda: leader.machine.values == [b"on"])


@pytest.mark.parametrize(
    "limits", [{"servers_max": 2}, {"endpoint_size_max": 5}, {"log_size_max": 100}]
)
def test_no_server_starts_with_members_of_which_it_could_not_tell(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="larger than the limits"):
        Cluster(1, 2, 3, limits=garlic.Limits(**limits))


# A joiner that may be JRaft's


@pytest.mark.parametrize("speaks", ["JRaft's frames", "culm's too"])
def test_who_may_be_jrafts_gets_no_pack_but_the_first(speaks: str) -> None:
    """JRaft keeps places within packs, and reads other entries there once it has compacted."""
    core = replace(CORE_LIMITS, append_entries_max=10)
    cluster = Cluster(1, 2, 3, handshake=speaks == "culm's too", core=core)
    leader = cluster.leader()
    leader.node.propose([b"%d" % number for number in range(50)])
    cluster.run(0.5)
    joiner = cluster.add(4)
    leader.node.add_server(server(4))
    assert cluster.run(5.0, lambda: 4 in leader.node.configuration.ids)
    assert cluster.run(1.0, lambda: len(joiner.machine.values) == 50)
    heard = b"".join(bytes(one.up) for one in cluster.pipes if one.to == 4)
    addresses = leader.node.server_id.to_bytes(4, "big") + (4).to_bytes(4, "big")
    pack = bytes([MessageType.SYNC_LOG_REQUEST]) + addresses
    assert heard.count(pack) == (1 if speaks == "JRaft's frames" else 5)


def test_canary_a_member_is_believed_whatever_term_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Terms, "reach", lambda self, term: term)
    with pytest.raises(AssertionError):
        test_a_few_forged_terms_put_nobody_out("a member", "entries", (1, 2, 3), falls=True)
