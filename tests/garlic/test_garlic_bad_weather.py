"""Former obstacles to progress: floods, slow lines, stopped processes, absent peers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from garlic_cluster import Cluster, server

from culm.garlic.dials import Dials
from culm.garlic.digest import CredentialCache, Nonces
from culm.garlic.errors import ErrorCode
from culm.garlic.events import Challenged, DialWanted, LinkClosed
from culm.garlic.handshake import ClientHandshake, ServerHandshake
from culm.garlic.limits import Limits, Timing
from culm.garlic.messages import MessageType, RequestFrame, ResponseFrame
from culm.garlic.node import Node
from culm.garlic.raft import RoleChanged, State, Stored
from culm.garlic.raft import messages as m
from culm.machine import Event


def node(**options: Any) -> Node:
    stored = Stored.founding(map(server, (1, 2, 3)))
    return Node(server_id=1, stored=stored, rng=random.Random(1), now=0.0, **options)


def events_of(machine: Node) -> list[Event]:
    """All events; what is to be stored is."""
    found = []
    while True:
        while (event := machine.next_event()) is not None:
            found.append(event)
        if (effect := machine.next_effect()) is None:
            return found
        machine.complete(effect.ticket, None)


def heartbeat(term: int = 1, source: int = 2) -> bytes:
    return RequestFrame(
        type=MessageType.APPEND_ENTRIES_REQUEST, source=source, destination=1, term=term
    ).encode()


# Places


def greet() -> ServerHandshake:
    return ServerHandshake(lookup={}.get, nonces=Nonces(rng=random.Random(1)))


@pytest.mark.parametrize("greeting", [greet, lambda: None])
def test_strangers_take_no_place_of_others(greeting: Callable[[], ServerHandshake | None]) -> None:
    """The places of present peers, of new ones, and of servers that are dialled."""
    machine = node(limits=Limits(links_max=3, strangers_max=3))
    peer = machine.accepted()
    peer.receive_data(heartbeat())
    events_of(machine)
    crowd = [machine.accepted(handshake=greeting()) for _ in range(50)]
    ended = [event.link for event in events_of(machine) if isinstance(event, LinkClosed)]
    assert ended == [link.number for link in crowd[:-3]]
    assert not peer.closed
    other = machine.accepted()
    other.receive_data(heartbeat(source=3))
    events_of(machine)
    machine.accepted(handshake=greeting())
    assert not other.closed
    machine.advance(1.0)
    machine.advance(2.0)
    wanted = [e.server.server_id for e in events_of(machine) if isinstance(e, DialWanted)]
    assert [machine.dialled(number).peer for number in wanted] == [2, 3]


def test_who_is_crowded_out_is_told_why_and_who_is_known_is_so_beyond_its_bound() -> None:
    machine = node(limits=Limits(links_max=1, strangers_max=1))
    first, second = machine.accepted(), machine.accepted()
    assert crowded_out(machine) == [first.number]
    second.receive_data(heartbeat(source=8))
    assert crowded_out(machine) == []
    third = machine.accepted()
    third.receive_data(heartbeat(source=9))
    assert crowded_out(machine) == [third.number]
    second.receive_eof()
    events_of(machine)
    fourth = machine.accepted()
    fourth.receive_data(heartbeat(source=9))
    assert crowded_out(machine) == []


def test_each_server_has_a_place_for_one_connection_whoever_else_is_there() -> None:
    machine = node(limits=Limits(links_max=1, strangers_max=1))
    links = []
    for source in (9, 2, 3):
        links.append(machine.accepted())
        links[-1].receive_data(heartbeat(source=source))
        assert crowded_out(machine) == []
    again = machine.accepted()
    again.receive_data(heartbeat(source=3))
    assert crowded_out(machine) == [again.number]  # the other one is busy, and so is the guest
    answer(machine)
    machine.advance(0.4)
    links[0].receive_data(heartbeat(source=9))
    again = machine.accepted()
    again.receive_data(heartbeat(source=3))
    assert crowded_out(machine) == [links[2].number]  # it had been silent for long
    links[1].receive_data(heartbeat(source=2))
    answer(machine)
    links[1].receive_eof()
    events_of(machine)
    other = machine.accepted()
    other.receive_data(heartbeat(source=2))
    assert crowded_out(machine) == []


def test_one_that_leads_takes_the_place_of_one_that_asks_for_votes() -> None:
    """A removed server asks without a pause, and the leader of a member may be unknown to it."""
    asking = RequestFrame(
        type=MessageType.REQUEST_VOTE_REQUEST, source=8, destination=1, term=1
    ).encode()
    machine = node(limits=Limits(links_max=1, strangers_max=1))
    removed = machine.accepted()
    for _ in range(3):
        removed.receive_data(asking)
        assert crowded_out(machine) == []
        answer(machine)
    leader = machine.accepted()
    leader.receive_data(heartbeat(source=9))
    assert crowded_out(machine) == [removed.number]
    answer(machine)
    for more in (asking, heartbeat(source=7)):
        other = machine.accepted()
        other.receive_data(more)
        assert crowded_out(machine) == [other.number]
    assert not leader.closed


def crowded_out(machine: Node) -> list[int]:
    ended = [event for event in events_of(machine) if isinstance(event, LinkClosed)]
    assert all(each.error and each.error.code is ErrorCode.CROWDED_OUT for each in ended)
    return [each.link for each in ended]


def answer(machine: Node) -> None:
    """Write all pending data, and answer the requests that waited for it."""
    events_of(machine)
    while (effect := machine.next_effect()) is not None:
        machine.complete(effect.ticket, None)  # type: ignore[misc]
    machine.links_to_send()


def test_an_idle_place_is_given_to_a_peer_that_comes_and_not_to_a_stranger() -> None:
    machine = node(limits=Limits(links_max=2, strangers_max=2))
    idle, busy = machine.accepted(), machine.accepted()
    for number, link in ((8, idle), (9, busy)):
        link.receive_data(heartbeat(source=number))
    answer(machine)
    machine.advance(0.2)
    busy.receive_data(heartbeat(source=9))
    answer(machine)
    machine.advance(0.4)
    strangers = [machine.accepted() for _ in range(2)]
    assert crowded_out(machine) == []
    strangers[0].receive_data(heartbeat(source=8))
    assert crowded_out(machine) == [idle.number]
    strangers[1].receive_data(heartbeat(source=8))  # no other link is idle
    assert crowded_out(machine) == [strangers[1].number]
    assert set(machine.links) >= {busy, strangers[0]}


def test_half_a_frame_is_a_sign_of_life_once() -> None:
    machine = node()
    leader = machine.accepted()
    leader.receive_data(heartbeat())
    answer(machine)
    leader.receive_data(heartbeat()[:20])
    events_of(machine)
    for tick in range(1, 20):
        machine.advance(tick / 20)
        leader.receive_data(b"")
        events_of(machine)
    assert machine.state is not State.FOLLOWER


# Dials


def pauses(dials: Dials, count: int) -> list[float]:
    """The pauses between dials while the server does not answer."""
    found = []
    for _ in range(count):
        assert dials.missing([2]) == 2
        dials.failed(2, 0.0)
        deadline = dials.next_deadline()
        assert deadline is not None
        found.append(deadline)
        dials.advance(deadline)
    return found


def test_pauses_between_dials_double_up_to_a_bound_and_differ() -> None:
    first = pauses(Dials(Timing(), random.Random(1)), 12)
    for doublings, pause in enumerate(first):
        longest = min(1.0, 0.025 * 2**doublings)
        assert longest / 2 <= pause <= longest
    assert first != pauses(Dials(Timing(), random.Random(2)), 12)


def test_an_answer_makes_pauses_short_again() -> None:
    dials = Dials(Timing(), random.Random(1))
    pauses(dials, 10)
    dials.answered(2)
    assert pauses(dials, 1)[0] <= 0.025


def test_pauses_stay_bounded_for_ever() -> None:
    assert max(pauses(Dials(Timing(), random.Random(1)), 5000)) <= 1.0


# Slow lines


class SlowCluster(Cluster):
    """Every connection carries a limited number of bytes a tick of 5 ms."""

    tick_size = 4096

    def run(self, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        end = self.now + seconds
        while self.now < end:
            for member in self.members.values():
                member.node.advance(self.now)
                self.drain(member)
                member.node.links_to_send()
                for link in member.node.links:
                    if data := link.data_to_send(self.tick_size):
                        self._carry(link, data)
                self.drain(member)
            if done is not None and done():
                return True
            self.now += 0.005
        return False


def test_a_value_that_takes_longer_than_an_election_timeout_costs_no_term() -> None:
    """1 MiB in 1.3 s: parts of a frame are signs of life, for the sender and the receiver."""
    cluster = SlowCluster(1, 2, 3)
    leader = cluster.leader()
    term, links = leader.node.term, {pipe.near.number for pipe in cluster.pipes}
    leader.node.propose([bytes(1 << 20)])
    machines = [member.machine for member in cluster.members.values()]
    assert cluster.run(5.0, lambda: all(len(machine.values) == 1 for machine in machines))
    assert {member.node.term for member in cluster.members.values()} == {term}
    assert leader.node.state is State.LEADER
    assert {pipe.near.number for pipe in cluster.pipes} == links
    assert sum(len(pipe.up) for pipe in cluster.pipes) < 2.5 * (1 << 20)  # sent once to each


@pytest.mark.parametrize(
    ("size", "said"), [(1 << 20, []), (1, []), (7, []), (1 << 20, [b""])], ids=str
)
def test_nothing_that_nobody_has_sent_or_taken_is_a_sign_of_life(
    size: int, said: list[bytes]
) -> None:
    """A driver may take bytes in pieces, and report an empty read."""
    cluster = Cluster(1, 2, 3)
    node = cluster.leader().node
    now = cluster.now
    while node.state is State.LEADER and now < cluster.now + 1.0:
        now += 0.005
        node.advance(now)
        events_of(node)
        node.links_to_send()
        for link in node.links:
            for data in said:
                link.receive_data(data)
            while link.data_to_send(size):
                events_of(node)
        events_of(node)
    assert 0.25 <= round(now - cluster.now, 3) <= 0.35


@pytest.mark.parametrize("cut", [26, 25, 1])
def test_bytes_that_come_are_no_answer_of_a_server_of_this_term(cut: int) -> None:
    """However they are cut: here a stray frame, which ends the link."""
    cluster = Cluster(1, 2, 3)
    node = cluster.leader().node
    (link, *_) = (link for link in node.links if link.dialled)
    heard_at = {peer.server_id: peer.heard_at for peer in node.peers}[link.peer]
    node.advance(cluster.now + 0.1)
    wrong = ResponseFrame(
        type=MessageType.APPEND_ENTRIES_RESPONSE,
        source=9,
        destination=1,
        term=1,
        next_index=1,
        accepted=True,
    ).encode()
    node.links_to_send()
    link.data_to_send()
    for data in (wrong[:cut], wrong[cut:]):
        link.receive_data(data)
        events_of(node)
    assert link.closed
    assert {peer.server_id: peer.heard_at for peer in node.peers}[link.peer] == heard_at


def test_a_link_takes_no_more_requests_while_much_is_unsent() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.leader()
    (link, *_) = (link for link in leader.node.links if link.dialled)
    asked = 0
    while link.ask(_values(1 << 19)):
        asked += 1
    assert asked == 2
    assert link.ask(_values(0)) is False


def _values(size: int) -> m.ClientRequest:
    return m.ClientRequest(source=0, destination=0, term=0, values=[bytes(size)])


# Stopped processes


def test_who_was_stopped_reads_what_has_come_before_it_stands() -> None:
    machine = node()
    link = machine.accepted()
    link.receive_data(heartbeat())
    events_of(machine)
    machine.advance(0.8)  # the timeout was due between 0.15 and 0.3
    assert not any(isinstance(event, RoleChanged) for event in events_of(machine))
    link.receive_data(heartbeat())
    events_of(machine)
    machine.advance(0.9)
    assert machine.leader == 2
    machine.advance(0.9 + 0.3)
    machine.advance(0.9 + 0.3 + 0.3)
    assert any(isinstance(event, RoleChanged) for event in events_of(machine))


def test_who_notices_a_timeout_in_time_stands_at_once() -> None:
    machine = node()
    link = machine.accepted()
    link.receive_data(heartbeat())
    events_of(machine)
    deadline = machine.next_deadline()
    assert deadline is not None
    machine.advance(deadline + 0.01)
    assert any(isinstance(event, RoleChanged) for event in events_of(machine))


# A server's text in its challenge


@pytest.mark.parametrize("place", ["realm", "nonce", "opaque", "domain"])
@pytest.mark.parametrize("byte", range(1, 256, 6))
def test_no_byte_of_a_challenge_makes_a_later_handshake_fail(place: str, byte: int) -> None:
    """Only the bytes of a challenge are the peer's; the answer is made much later."""
    cache = CredentialCache()

    def client() -> ClientHandshake:
        chance = random.Random(1)
        return ClientHandshake(host="h", user="u", password="p", cache=cache, rng=chance)

    fields = {"realm": b"r", "nonce": b"n", "opaque": b"o", "domain": b"d"}
    fields[place] += bytes([byte])
    said = b", ".join(name.encode() + b'="' + value + b'"' for name, value in fields.items())
    first = client()
    first.receive_data(
        b"HTTP/1.1 401 No\r\nWWW-Authenticate: Digest "
        + said
        + b', qop="auth"\r\nContent-Length: 0\r\n\r\n'
    )
    challenged = isinstance(first.next_event(), Challenged)
    second = client()
    assert (b"Authorization" in second.data_to_send()) is challenged


def test_a_name_that_no_header_can_say_is_refused_at_once() -> None:
    """And not only at a later challenge."""
    for user in ("жук", "a\nb"):
        with pytest.raises(ValueError, match="user"):
            ClientHandshake(
                host="h", user=user, password="p", cache=CredentialCache(), rng=random.Random(1)
            )
