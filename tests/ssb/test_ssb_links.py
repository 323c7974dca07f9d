"""One peer, or a few bytes, cannot occupy the resources of all."""

from __future__ import annotations

from collections.abc import Sequence
from gc import collect
from typing import Any
from weakref import ref

import pytest
from peer_support import Node, connect, feed_of, identity, packet, packets, run

from culm.ssb import ebt, history, muxrpc
from culm.ssb.ebt import SessionEnded, SessionOpened, SessionRole
from culm.ssb.messages import ClassicMessage, FeedPlace, create_message
from culm.ssb.peer import (
    ErrorCode,
    ExchangeInput,
    FellBack,
    Limits,
    PeerDisconnected,
    PeerLink,
    Settings,
    Timing,
)

POST = {"type": "post", "text": "hello"}
OPEN = b'{"name":["ebt","replicate"],"args":[{"version":3,"format":"classic"}],"type":"duplex"}'
REFUSED = {"message": "method:ebt,replicate is not in list of allowed methods", "name": "Error"}


def ends(node: Node) -> list[tuple[int, int | None]]:
    return [
        (event.link, None if event.error is None else event.error.code)
        for event in node.told(PeerDisconnected)
    ]


def accept(node: Node, name: str) -> PeerLink:
    link = node.peer.attached(feed_of(name), role=SessionRole.SERVER)
    node.drain()
    return link


@pytest.mark.parametrize("sealed", [False, True])
def test_one_identity_has_a_few_links(sealed: bool) -> None:
    """One more ends the oldest: a peer that returns finds a place, whatever happened to others."""
    alice = Node("alice", limits=Limits(links_of_peer_max=2))
    bob = Node("bob")
    links = [connect(bob, alice, sealed=sealed)[1] for _ in range(1)]
    for _ in range(4):
        run(alice, bob)
        links.append(connect(bob, alice, sealed=sealed)[1])
    run(alice, bob)
    assert ends(alice) == [(link.number, ErrorCode.REPLACED) for link in links[:3]]
    assert list(alice.peer.links) == links[3:]
    for node, other in ((alice, bob), (bob, alice)):
        node.peer.follow(other.peer.me)
    alice.peer.publish(POST)
    run(alice, bob)
    assert bob.peer.clock[alice.peer.me] == 1


def test_the_links_of_one_leave_room_for_others() -> None:
    alice = Node("alice", limits=Limits(links_max=8))
    for _ in range(100):
        accept(alice, "mallory")
    assert len(alice.peer.links) == 4
    assert not accept(alice, "bob").closed


def half_sent(size: int) -> bytes:
    """All but the last byte of a packet with a request."""
    return packet(1, {"name": ["ebt", "replicate"], "args": ["x" * size]})[:-1]


WIDE = muxrpc.Limits(control_size_max=1 << 20)


def test_packets_that_come_in_part_are_held_within_a_limit() -> None:
    """The slowest one goes; the others stay, as do those that finish theirs."""
    alice = Node("alice", limits=Limits(half_sent_size_max=100_000, rpc=WIDE))
    sizes = [20_000, 50_000, 10_000, 15_000, 15_000]  # each a second after the other
    links = [accept(alice, f"mallory {number}") for number in range(len(sizes))]
    for now, (link, size) in enumerate(zip(links, sizes, strict=True)):
        alice.advance(float(now))
        link.receive_data(half_sent(size))
        run(alice)
    assert ends(alice) == [(links[0].number, ErrorCode.HALF_SENT)]
    links[2].receive_data(b"}")
    bob = accept(alice, "bob")
    bob.receive_data(half_sent(15_000))
    run(alice)
    assert ends(alice)[1:] == []
    assert not bob.closed
    bob.receive_data(b"}")
    run(alice)
    for link in [links[1], *links[3:]]:
        link.receive_eof()
    run(alice)
    assert alice.peer.half_sent_size == 0


def test_a_packet_that_was_finished_does_not_make_the_next_one_slow() -> None:
    alice = Node("alice", limits=Limits(half_sent_size_max=100_000, rpc=WIDE))
    busy, idle = accept(alice, "bob"), accept(alice, "mallory")
    for now, link in ((0.0, busy), (1.0, idle)):
        alice.advance(now)
        link.receive_data(half_sent(50_000 - 9_000 * int(now)))
        run(alice)
    alice.advance(9.0)
    busy.receive_data(b"}" + half_sent(10_000))
    run(alice)
    alice.advance(9.1)
    other = accept(alice, "carol")
    other.receive_data(half_sent(50_000))
    run(alice)
    assert ends(alice) == [(idle.number, ErrorCode.HALF_SENT)]


HELD_MAX, LINKS_MAX = 1 << 20, 128


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("known", ["followed", "dialled", "nobody"])
@pytest.mark.parametrize("strangers", [3, 20, LINKS_MAX - 1])
def test_strangers_that_hold_packets_end_nobody_who_goes_on(
    strangers: int, known: str, waits: bool
) -> None:
    """They occupy all the room; a packet larger than theirs still comes."""
    rpc = muxrpc.Limits(control_size_max=1 << 21)
    limits = Limits(half_sent_size_max=HELD_MAX, links_max=LINKS_MAX, rpc=rpc)
    alice = Node("alice", limits=limits)
    for number in range(strangers):
        link = accept(alice, f"stranger {number}")
        link.receive_data(half_sent((HELD_MAX - 5_000) // strangers))
        alice.drain()
    if known == "followed":
        alice.peer.follow(feed_of("bob"))
    role = SessionRole.CLIENT if known == "dialled" else SessionRole.SERVER
    bob = alice.peer.attached(feed_of("bob"), role=role)
    whole = half_sent(HELD_MAX // 3) + b"}"
    pieces = [whole[at : at + 20_000] for at in range(0, len(whole), 20_000)]
    for now, piece in enumerate(pieces):
        if waits:
            alice.advance(now / 10)
        bob.receive_data(piece)
        alice.drain()
    assert not bob.closed
    assert bob.rpc.half_sent_size == 0
    assert {code for _, code in ends(alice)} == {ErrorCode.HALF_SENT}


def test_the_half_of_those_we_know_is_not_for_strangers() -> None:
    """However fast theirs come, and however long ago the known peer began."""
    rpc = muxrpc.Limits(control_size_max=1 << 21)
    alice = Node("alice", limits=Limits(half_sent_size_max=HELD_MAX, rpc=rpc))
    alice.peer.follow(feed_of("bob"))
    bob = accept(alice, "bob")
    bob.receive_data(half_sent(HELD_MAX // 2))
    for number in range(50):
        alice.advance(1.0 + number)
        accept(alice, f"stranger {number}").receive_data(half_sent(HELD_MAX // 4))
        alice.drain()
    assert not bob.closed
    again = accept(alice, "bob")
    again.receive_data(half_sent(HELD_MAX // 4))
    alice.drain()
    assert bob.closed  # by its own new link


def test_links_that_hold_no_more_than_their_share_always_stay() -> None:
    alice = Node("alice", limits=Limits(half_sent_size_max=HELD_MAX, links_max=64, rpc=WIDE))
    small = [accept(alice, f"small {number}") for number in range(62)]
    for link in small:
        link.receive_data(half_sent(HELD_MAX // 128 - 200))
        alice.drain()
    alice.advance(10.0)
    for number in range(20):
        accept(alice, f"large {number}").receive_data(half_sent(HELD_MAX // 2))
        alice.drain()
    assert not any(link.closed for link in small)


def test_a_link_that_ends_holds_nothing() -> None:
    alice = Node("alice", limits=Limits(half_sent_size_max=10_000))
    for number in range(20):
        link = accept(alice, f"mallory {number}")
        link.receive_data(half_sent(5_000))
        run(alice)
        link.receive_eof()
        run(alice)
    assert [code for _, code in ends(alice)] == [muxrpc.ErrorCode.TRUNCATED] * 20


def test_a_peer_that_reads_nothing_is_asked_for_no_more_feeds() -> None:
    """Each minute the feeds are asked for again, but only once the last questions have left."""
    asking = history.Limits(calls_max=4)
    alice: Any = Node(
        "alice",
        limits=Limits(history=asking, rpc=muxrpc.Limits(unsent_size_max=1000)),
    )
    for number in range(100):
        alice.peer.follow(feed_of(f"feed {number}"))
    link = alice.peer.attached(feed_of("bob"), role=SessionRole.CLIENT)
    alice.take(link)
    alice.carry = lambda link: False  # nothing is taken from now on
    link.receive_data(packet(-1, REFUSED, flags=14))
    run(alice)
    assert [event.reason.name for event in alice.told(SessionEnded)] == ["DISCONNECTED"]
    for _ in range(200):
        link.receive_data(packet(-1, REFUSED, flags=14))  # a sign of life
        alice.advance(alice.peer.next_deadline())
    assert not link.closed
    assert link.rpc.unsent_size < 3000
    assert link.data_to_send().count(b"createHistoryStream") > 4


def test_questions_that_wait_for_answers_to_be_taken_are_answered() -> None:
    """A flood of packets, each with a larger answer, that comes in one piece."""
    alice = Node("alice")
    link = accept(alice, "mallory")
    alice.take(link)
    count = 5_000
    flood = b"".join(packet(number, b"x", flags=2) for number in range(1, count + 1))
    link.receive_data(flood + packet(count + 1, {"name": ["manifest"], "args": []}, flags=2))
    answers = packets(alice.take(link))
    assert [-number for _, number, _ in answers if number < 0] == list(range(1, count + 2))
    assert not link.closed


@pytest.mark.parametrize("stuck", [0, 1, 5, 20])
@pytest.mark.parametrize("claims", ["its own", "bob"])
def test_stuck_peers_hold_up_nobody_else(stuck: int, claims: str) -> None:
    """They promise much, send nothing and read nothing; Bob's feed comes as if they were not there.

    If they promise his feed, twice as many are asked with each turn in vain.
    """
    alice, bob = Node("alice"), Node("bob")
    alice.peer.follow(bob.peer.me)
    for _ in range(100):
        bob.peer.publish(POST)
    run(bob)
    for number in range(stuck):
        name = f"stuck {number}"
        alice.peer.follow(feed_of(name))
        link = accept(alice, name)
        promised = feed_of("bob" if claims == "bob" else name)
        link.receive_data(packet(1, OPEN) + packet(1, {promised: 2 * 100}))
        alice.drain()
    connect(alice, bob)
    run(alice, bob)
    end_s = 3.0 * stuck.bit_length() if claims == "bob" else 0.0
    while (due := alice.peer.next_deadline()) is not None and due <= end_s:
        alice.advance(due)
        run(alice, bob)
    assert alice.peer.clock[bob.peer.me] == 100


ONE_SESSION = Limits(ebt=ebt.Limits(sessions_max=1))


def friends(*names: str, full: str) -> list[Node]:
    """They follow each other, and have published something; `full`: with one session's place."""
    nodes = [Node(name, limits=ONE_SESSION if name in full else Limits()) for name in names]
    for node in nodes:
        for other in nodes:
            node.peer.follow(other.peer.me)
        node.peer.publish(POST)
        run(node)
    return nodes


def assert_level(*nodes: Node, feeds: Sequence[Node], count: int) -> None:
    for node in nodes:
        assert [node.peer.clock[each.peer.me] for each in feeds] == [count] * len(feeds)


def pass_time(*nodes: Node, until: float) -> None:
    while dues := [due for node in nodes if (due := node.peer.next_deadline()) is not None]:
        if min(dues) > until:
            return
        for node in nodes:
            node.advance(min(dues))
        run(*nodes)


@pytest.mark.parametrize("full", [["alice"], ["alice", "carol"]], ids="-".join)
def test_whom_there_is_no_session_for_exchanges_feeds_one_by_one(full: list[str]) -> None:
    """In both directions, news too; and they get a session when there is a place."""
    nodes = friends("alice", "bob", "carol", "dave", full=" ".join(full))
    alice, bob, carol, dave = nodes
    first, _ = connect(alice, bob)
    second, _ = connect(carol, dave)
    run(*nodes)
    connect(alice, carol)
    run(*nodes)
    pass_time(*nodes, until=20.0)
    assert_level(*nodes, feeds=nodes, count=1)
    assert len(alice.told(SessionOpened)) == 1
    for node in (alice, carol):
        node.peer.publish(POST)
    run(*nodes)
    assert_level(*nodes, feeds=[alice, carol], count=2)
    first.close()
    second.close()
    run(*nodes)
    pass_time(*nodes, until=100.0)
    assert [event.peer for event in alice.told(SessionOpened)] == [bob.peer.me, carol.peer.me]
    for node in (alice, carol):
        node.peer.publish(POST)
    run(*nodes)
    assert_level(alice, carol, feeds=[alice, carol], count=3)


def test_who_waits_for_a_place_says_so_if_it_may_not_fall_back() -> None:
    alice, bob, carol = (
        Node(name, limits=ONE_SESSION, settings=Settings(falls_back=False))
        for name in ("alice", "bob", "carol")
    )
    connect(alice, bob)
    connect(alice, carol)
    run(alice, bob, carol)
    assert [(each.peer, each.reason) for each in alice.told(FellBack)] == [
        (carol.peer.me, ExchangeInput.NO_PLACE)
    ]


def test_who_waits_for_a_place_without_a_pause_does_so_a_tick_at_a_time() -> None:
    """The clock was never done."""
    alice = Node("alice", limits=ONE_SESSION, timing=Timing(session_s=0.0))
    for name in ("bob", "carol"):
        alice.peer.attached(feed_of(name), role=SessionRole.CLIENT)
    alice.drain()
    for _ in range(10):
        due = alice.peer.next_deadline()
        assert due is not None
        alice.advance(due)
    assert 0.1 <= due <= 100.0


def test_when_the_other_side_may_open_no_more_sessions_both_get_news() -> None:
    """A second link comes and goes; the first one has had its session."""
    limits = Limits(sessions_max=1)
    alice, bob = Node("alice", limits=limits), Node("bob", limits=limits)
    for node, other in ((alice, bob), (bob, alice)):
        node.peer.follow(other.peer.me)
    connect(bob, alice)
    run(alice, bob)
    near, far = connect(bob, alice)
    run(alice, bob)
    for node, link in ((bob, near), (alice, far)):
        node.ways.pop(link.number)
        link.receive_eof()
    run(alice, bob)
    pass_time(alice, bob, until=100.0)
    for node in (alice, bob):
        node.peer.publish(POST)
    run(alice, bob)
    pass_time(alice, bob, until=200.0)
    assert_level(alice, bob, feeds=[alice, bob], count=1)


def test_a_link_that_fails_while_a_verdict_is_due_ends() -> None:
    """The next event was looked for without end."""
    bob = feed_of("bob")
    alice = Node("alice", limits=Limits(verifying_max=1, links_of_peer_max=1))
    alice.peer.follow(bob)
    link = accept(alice, "bob")
    message = create_message(identity("bob"), content=POST, timestamp=1)
    for each in (OPEN, {bob: 2}):
        link.receive_data(packet(1, each))
        alice.drain()
    link.receive_data(packet(1, message.data))
    while alice.peer.next_event() is not None:
        pass
    alice.peer.attached(bob, role=SessionRole.SERVER)
    alice.drain()
    assert ends(alice) == [(link.number, ErrorCode.REPLACED)]


def judging() -> tuple[Node, PeerLink]:
    """Alice, who takes her time to verify a message of Bob's, and what comes after it."""
    bob = feed_of("bob")
    limits = Limits(verifying_max=9, rpc=muxrpc.Limits(unsent_size_max=1))
    alice = Node("alice", limits=limits, timing=Timing(ping_s=10.0))
    alice.is_late = True
    alice.peer.follow(bob)
    link = accept(alice, "bob")
    for each in (OPEN, {bob: 2}):
        link.receive_data(packet(1, each))
        alice.drain()
    return alice, link


PING: dict[str, Any] = {"name": ["gossip", "ping"], "args": [], "type": "duplex"}
HISTORY: dict[str, Any] = {
    "name": ["createHistoryStream"],
    "args": [{"id": feed_of("alice")}],
    "type": "source",
}


@pytest.mark.parametrize("first", [[packet(2, PING), packet(2, 5)], [packet(2, HISTORY)]])
@pytest.mark.parametrize("hears", [True, False])
def test_nothing_is_said_in_a_call_whose_end_waits_behind_a_verdict(
    first: list[bytes], hears: bool
) -> None:
    """That raised an error, out of `advance` or `data_to_send`."""
    alice, link = judging()
    if not hears:
        alice.carry = lambda link: False  # type: ignore[method-assign]
        first = [packet(9, {"name": ["unknown"], "args": []}, flags=2), *first]
    for each in first:
        link.receive_data(each)
        alice.drain()
    message = create_message(identity("bob"), content=POST, timestamp=1)
    for each in (packet(1, message.data), packet(2, True, flags=14)):
        link.receive_data(each)
        alice.drain()
    while link.data_to_send():
        pass
    for now in (10.0, 40.0):
        alice.advance(now)
    alice.is_late = False
    alice.drain()
    assert alice.peer.clock[feed_of("bob")] == 1


@pytest.mark.parametrize("goodbye", [bytes(9), b""])
def test_nothing_is_said_over_a_link_whose_end_waits_behind_a_verdict(goodbye: bytes) -> None:
    """That raised an error, out of `follow`, or of `next_event` if the feed had forked."""
    alice, link = judging()
    dave = feed_of("dave")
    alice.peer.follow(dave)
    request = {**HISTORY, "args": [{"id": dave, "live": True}]}
    message = create_message(identity("bob"), content=POST, timestamp=1)
    for each in (packet(2, request), packet(1, message.data), goodbye):
        link.receive_data(each)
        alice.drain()
    if not goodbye:
        link.receive_eof()
        alice.drain()
    alice.peer.follow(dave, False)
    alice.is_late = False
    alice.drain()
    assert link.closed
    assert alice.peer.clock[feed_of("bob")] == 1


@pytest.mark.parametrize("ended", ["session", "link"])
def test_what_has_ended_waits_for_no_verdict(ended: str) -> None:
    """Messages had piled up before a slow verifier, session after session and link after link."""
    bob = feed_of("bob")
    alice = Node("alice", limits=Limits(verifying_max=1, links_of_peer_max=2))
    alice.is_late = True
    alice.peer.follow(bob)
    message = create_message(identity("bob"), content=POST, timestamp=1)
    links = [accept(alice, "eve") for _ in range(2)]
    for number in range(20):
        if ended == "link":
            links.append(accept(alice, "eve"))
        call = 1 + number // 2
        link = links[number % 2 if ended == "session" else -1]
        for each in (OPEN, {bob: 2}, message.data):
            link.receive_data(packet(call, each))
            alice.drain()
    judged = 0
    while alice.judge():
        judged += 1
        alice.drain()
    assert judged == 2  # one was out, and one session is left
    assert alice.peer.clock[bob] == 1


def test_a_link_that_has_ended_leaves_no_bytes_behind_before_a_slow_store() -> None:
    """Half a packet of each had stayed as long as the store read for a call of that link."""
    alice = Node("alice")
    alice.peer.publish(POST)
    alice.drain()
    link = accept(alice, "bob")
    link.receive_data(packet(1, {**HISTORY, "args": [{"id": alice.peer.me}]}))
    while alice.peer.next_event() is not None:
        pass
    effect = alice.peer.next_effect()
    assert isinstance(effect, ebt.ReadMessages)
    rpc = ref(link.rpc)
    link.receive_eof()
    alice.drain()
    del link
    collect()
    assert rpc() is None
    alice.peer.complete(effect.ticket, alice.store.perform(effect))
    assert not alice.drain()


@pytest.mark.parametrize("claimed", [2, 0], ids=["promised", "live"])
def test_who_has_sent_the_next_message_stays_the_source_while_it_is_verified(claimed: int) -> None:
    """Others were asked besides, and all sent the same; live, whoever had told of the message."""
    dave = feed_of("dave")
    alice = Node("alice", limits=Limits(verifying_max=9))
    alice.peer.follow(dave)
    alice.is_late = True
    links = [accept(alice, name) for name in ("bob", "carol")]
    message = create_message(identity("dave"), content=POST, timestamp=1)
    for link in links:
        link.receive_data(packet(1, OPEN) + packet(1, {dave: claimed << 1}))
        alice.drain()
    links[0].receive_data(packet(1, message.data))
    alice.drain()
    links[1].receive_data(packet(1, {dave: 2 << 1 | 1}))
    alice.take(links[1])
    for now in (0.5, 3.0, 100.0):
        alice.advance(now)
    assert alice.peer.source(dave) == feed_of("bob")
    assert alice.take(links[1]) == b""
    alice.judge()
    for now in (100.5, 103.0):
        alice.advance(now)
    assert alice.peer.clock[dave] == 1
    assert alice.peer.source(dave) == feed_of("carol")  # which has promised more


def chain(name: str, count: int) -> list[ClassicMessage]:
    """The first messages of a feed."""
    made: list[ClassicMessage] = []
    for at in range(1, count + 1):
        last = FeedPlace(made[-1].author, made[-1].sequence, made[-1].id) if made else None
        made.append(create_message(identity(name), content=POST, timestamp=at, last=last))
    return made


def test_only_messages_that_follow_those_before_them_are_verified() -> None:
    """Anybody could have had any number verified that nobody had asked for, before all others."""
    alice = Node("alice", limits=Limits(verifying_max=9))
    alice.peer.follow(feed_of("bob"))
    alice.is_late = True
    for name in ("bob", "eve"):  # Bob, who comes first, is asked
        link = accept(alice, name)
        link.receive_data(packet(1, OPEN) + packet(1, {feed_of("bob"): 0}))
        alice.drain()
    first, second, third = chain("bob", 3)
    for each in (third, third, first, first, third, second):
        link.receive_data(packet(1, each.data))
    alice.drain()
    assert [len(effect.signatures) for effect in alice.verdicts] == [2]
    alice.judge()
    alice.drain()
    assert (alice.peer.clock[feed_of("bob")], link.closed) == (2, False)
