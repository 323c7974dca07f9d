"""A peer: all layers together, and its answers to others."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from nacl.public import PrivateKey
from peer_support import Node, connect, feed_of, packet, packets, run

from culm import ssb
from culm.machine import Closed, LinkedMachine, LocalProtocolError
from culm.ssb import ErrorCode
from culm.ssb.ebt import EndReason, SessionEnded, SessionRole, State
from culm.ssb.ebt import ErrorCode as EbtErrorCode
from culm.ssb.messages import read_message
from culm.ssb.muxrpc import BodyType, CallType, Connection
from culm.ssb.peer import ErrorCode as PeerErrorCode
from culm.ssb.peer import Limits, PeerConnected, PeerDisconnected, PeerLink, Timing
from culm.ssb.peer.conversation import read_frame
from culm.testing.record import conversations
from culm.testing.spec import Flood, Work
from culm.testing.suite import PROPERTIES, check_machine
from culm.testing.suite.work import Worker, at_once
from spec_changes import spec_with
from specs import spec_of

POST = {"type": "post", "text": "hello"}
OPEN = b'{"name":["ebt","replicate"],"args":[{"version":3,"format":"classic"}],"type":"duplex"}'


def served(**options: Any) -> tuple[Node, PeerLink]:
    """Alice, whom Bob has dialled."""
    alice = Node("alice", **options)
    return alice, alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)


def tell(node: Node, link: PeerLink, *data: bytes) -> list[tuple[int, int, Any]]:
    for each in data:
        link.receive_data(each)
    return packets(node.take(link))


@pytest.mark.parametrize("sealed", [True, False])
def test_two_peers_exchange_what_they_publish(sealed: bool) -> None:
    alice, bob = Node("alice"), Node("bob")
    for node, other in ((alice, bob), (bob, alice)):
        node.peer.follow(other.peer.me)
        node.peer.publish(POST)
    connect(bob, alice, sealed=sealed)
    run(alice, bob)
    for node in (alice, bob):
        node.peer.publish({"type": "post", "text": "live"})
    run(alice, bob)
    expected = {alice.peer.me: 2, bob.peer.me: 2}
    assert alice.peer.clock == bob.peer.clock == expected
    assert alice.store.messages(bob.peer.me) == bob.store.messages(bob.peer.me)
    assert alice.told(PeerConnected) == [PeerConnected(link=1, peer=bob.peer.me)]
    assert read_message(bob.store.messages(alice.peer.me)[0]).verify()


def test_a_peer_is_a_machine_with_links() -> None:
    assert isinstance(Node("alice").peer, LinkedMachine)


def test_closing_says_goodbye_and_keeps_what_is_to_be_kept() -> None:
    alice, bob = Node("alice"), Node("bob")
    bob.peer.follow(alice.peer.me)
    alice.peer.publish(POST)
    connect(bob, alice, sealed=True)
    run(alice, bob)
    bob.peer.close()
    run(alice, bob)
    assert bob.peer.state is State.CLOSED
    assert isinstance(bob.events[-1], Closed)
    assert alice.told(PeerDisconnected) == [PeerDisconnected(link=1, peer=bob.peer.me)]
    again = Node("bob", store=bob.store)
    again.peer.follow(alice.peer.me)
    assert again.peer.clock == {alice.peer.me: 1, bob.peer.me: 0}
    with pytest.raises(LocalProtocolError):
        bob.peer.attached(alice.peer.me, role=SessionRole.CLIENT)


def test_a_client_that_says_nothing_is_left() -> None:
    alice = Node("alice")
    alice.peer.accepted(ephemeral=PrivateKey.generate())
    alice.drain()
    assert alice.peer.next_deadline() == 15.0
    alice.advance(20.0)
    (left,) = alice.told(PeerDisconnected)
    assert (left.peer, left.error.code) == (None, ErrorCode.HANDSHAKE_TIMEOUT)
    assert alice.peer.next_deadline() is None


def test_the_deadline_of_a_link_that_waits_for_the_store_is_known() -> None:
    alice, link = served()
    alice.drain()
    link.receive_data(packet(1, OPEN) + packet(1, {}))
    while alice.peer.next_event() is not None:
        pass
    assert alice.peer.next_effect() is not None  # the clock is not loaded yet
    assert alice.peer.next_deadline() == 5.0


@pytest.mark.parametrize("whole", [True, False])
def test_a_peer_that_does_not_answer_a_goodbye_is_left(whole: bool) -> None:
    """Whether the whole peer was closed, or that link alone."""
    alice, link = served()
    alice.drain()
    (alice.peer if whole else link).close()
    alice.drain()
    assert alice.peer.state is (State.CLOSING if whole else State.OPEN)
    assert alice.peer.next_deadline() == 5.0
    alice.advance(5.0)
    assert alice.told(PeerDisconnected)[0].error.code is PeerErrorCode.NO_GOODBYE
    assert alice.peer.state is (State.CLOSED if whole else State.OPEN)
    assert link.closed
    link.close()  # again: no effect
    assert alice.peer.next_deadline() is None


def test_the_client_opens_a_session_and_waits_for_the_servers_notes() -> None:
    bob = Node("bob")
    link = bob.peer.attached(feed_of("alice"), role=SessionRole.CLIENT)
    assert bob.take(link) == packet(1, OPEN)
    assert tell(bob, link, packet(-1, {})) == [(10, 1, {bob.peer.me: 0})]


def test_the_server_answers_with_its_notes() -> None:
    alice, link = served()
    assert tell(alice, link, packet(1, OPEN)) == [(10, -1, {alice.peer.me: 0})]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "expected ebt.replicate({version: 3})"),
        ([{"version": 2, "format": "classic"}], "expected ebt.replicate({version: 3})"),
        ([{"version": True}], "expected ebt.replicate({version: 3})"),
        ([{"version": 3, "format": "bendybutt-v1"}], "Unknown format: bendybutt-v1"),
        ([3], "expected ebt.replicate({version: 3})"),
    ],
)
def test_incorrect_arguments_end_the_stream_with_an_error(args: Any, message: str) -> None:
    alice, link = served()
    asked = {"name": ["ebt", "replicate"], "args": args, "type": "duplex"}
    (answer,) = tell(alice, link, packet(1, asked))
    assert answer[:2] == (14, -1)
    assert answer[2]["message"] == message
    assert not link.closed


@pytest.mark.parametrize("args", [[{"version": 3}], [{"version": 3, "format": "classic"}]])
def test_the_format_may_be_left_out(args: Any) -> None:
    alice, link = served()
    asked = {"name": ["ebt", "replicate"], "args": args, "type": "duplex"}
    assert tell(alice, link, packet(1, asked)) == [(10, -1, {alice.peer.me: 0})]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"@x":1}', EbtErrorCode.BAD_FEED_ID),
        (b'{"%s":2.5}' % feed_of("eve").encode(), EbtErrorCode.BAD_NOTE),
        (b'{"%s":9007199254740992}' % feed_of("eve").encode(), EbtErrorCode.BAD_NOTE),
        (b"null", EbtErrorCode.NOT_NOTES),
        (b"[1]", EbtErrorCode.NOT_NOTES),
        (b"{", EbtErrorCode.NOT_NOTES),
        (b"[" * 100_000, EbtErrorCode.NOT_NOTES),
        (b'{"@' + b'{"a":' * 100_000, EbtErrorCode.NOT_NOTES),
    ],
)
def test_a_malformed_note_ends_the_session_with_an_error(body: bytes, code: EbtErrorCode) -> None:
    alice, link = served()
    tell(alice, link, packet(1, OPEN))
    end, asked = tell(alice, link, packet(1, body))
    assert end[:2] == (14, -1)
    assert asked[2]["name"] == ["createHistoryStream"]  # feeds are asked for one by one
    (ended,) = alice.told(SessionEnded)
    assert (ended.reason, ended.error.code) == (EndReason.FAULT, code)
    assert not link.closed  # the connection goes on
    assert tell(alice, link, packet(2, {"name": ["manifest"], "args": []}, flags=2))


def test_text_and_bytes_are_no_frames() -> None:
    alice, link = served()
    tell(alice, link, packet(1, OPEN))
    assert tell(alice, link, packet(1, b"hello", flags=9))[0][0] == 14


def test_what_is_sent_is_what_was_published() -> None:
    """Byte for byte, and each message in its own packet."""
    alice, link = served()
    published = [alice.peer.publish(POST), alice.peer.publish({"type": "post", "2": 1e21, "1": ""})]
    alice.drain()
    tell(alice, link, packet(1, OPEN))
    link.receive_data(packet(1, {alice.peer.me: 0}))
    assert alice.take(link) == b"".join(packet(-1, message.data) for message in published)


def test_a_second_session_of_the_same_peer_ends_the_first() -> None:
    alice, link = served()
    tell(alice, link, packet(1, OPEN))
    answers = tell(alice, link, packet(2, OPEN))
    assert [answer[:2] for answer in answers] == [(14, -1), (10, -2)]
    assert answers[0][2]["message"] == "reconnected to peer"


def test_a_peer_does_not_open_sessions_without_end() -> None:
    """Over one connection: each session makes the store read."""
    alice, link = served(limits=Limits(sessions_max=3))
    for number in (1, 2, 3):
        assert tell(alice, link, packet(number, OPEN))[-1][:2] == (10, -number)
    (refusal,) = tell(alice, link, packet(4, OPEN))
    assert refusal[:2] == (14, -4)
    assert refusal[2]["message"] == "too many sessions over this connection"
    assert not alice.told(SessionEnded)[2:]  # the third one goes on


def test_an_unknown_format_is_not_repeated_in_full() -> None:
    alice, link = served()
    args = [{"version": 3, "format": "x" * 60_000}]
    asked = {"name": ["ebt", "replicate"], "args": args, "type": "duplex"}
    (answer,) = tell(alice, link, packet(1, asked))
    assert answer[2]["message"] == f"Unknown format: {'x' * 100}..."


def test_the_peers_end_of_the_session_is_answered() -> None:
    alice, link = served()
    tell(alice, link, packet(1, OPEN))
    assert tell(alice, link, packet(1, b"true", flags=14)) == [(14, -1, True)]
    assert alice.told(SessionEnded)[0].reason is EndReason.DISCONNECTED


def test_messages_are_verified_before_anything_is_stored() -> None:
    author = Node("carol")
    good = author.peer.publish(POST)
    alice, link = served()
    alice.peer.follow(author.peer.me)
    tell(alice, link, packet(1, OPEN), packet(1, {author.peer.me: 2}))
    forged = good.data.replace(b"hello", b"hallo")
    assert tell(alice, link, packet(1, forged)) == [(10, -1, {author.peer.me: -1})]
    assert alice.store.messages(author.peer.me) == []


def test_a_message_of_another_shape_is_refused_and_the_session_stays() -> None:
    author = Node("carol")
    good = json.loads(author.peer.publish(POST).data)
    alice, link = served()
    alice.peer.follow(author.peer.me)
    tell(alice, link, packet(1, OPEN), packet(1, {author.peer.me: 2}))
    assert tell(alice, link, packet(1, {**good, "more": 1})) == [(10, -1, {author.peer.me: -1})]
    assert not alice.told(SessionEnded)


def test_an_unknown_method_is_refused_and_the_connection_stays() -> None:
    alice, link = served()
    answer = tell(alice, link, packet(1, {"name": ["foo", "bar"], "args": []}, flags=2))
    assert answer[0][2]["message"] == "method:foo,bar is not in list of allowed methods"
    assert tell(alice, link, packet(2, OPEN))


def test_blob_wants_are_answered_with_none_and_stay_open() -> None:
    alice, link = served()
    asked = {"name": ["blobs", "createWants"], "args": [], "type": "source"}
    assert tell(alice, link, packet(1, asked)) == [(10, -1, {})]


def test_a_ping_is_volleyed_and_then_served() -> None:
    alice, link = served(timing=Timing(ping_s=60.0, session_s=1000.0))
    asked = {"name": ["gossip", "ping"], "args": [{"timeout": 300000}], "type": "duplex"}
    assert tell(alice, link, packet(1, asked)) == []
    assert tell(alice, link, packet(1, 1700000000123)) == [(10, -1, 1700000000000)]
    alice.peer.advance(60.0)
    assert packets(alice.take(link)) == [(10, -1, 1700000060000)]
    assert tell(alice, link, packet(1, 1700000060100)) == []  # not volleyed again
    assert tell(alice, link, packet(1, "x"), packet(1, 1)) == [(10, -1, 1700000060000)]


def test_a_peer_that_does_not_answer_a_ping_is_left() -> None:
    bob = Node("bob", timing=Timing(ping_s=60.0))
    link = bob.peer.attached(feed_of("alice"), role=SessionRole.CLIENT)
    assert [body for _, _, body in packets(bob.take(link))][1:] == [
        {"name": ["gossip", "ping"], "args": [{"timeout": 60000}], "type": "duplex"},
        1700000000000,
    ]
    bob.advance(60.0)
    assert bob.told(PeerDisconnected)[0].error.code is PeerErrorCode.SILENT


def test_a_peer_without_pings_is_not_asked_again() -> None:
    bob = Node("bob", timing=Timing(ping_s=60.0))
    link = bob.peer.attached(feed_of("alice"), role=SessionRole.CLIENT)
    bob.take(link)
    tell(bob, link, packet(-2, {"message": "method:gossip,ping is not in list"}, flags=14))
    bob.advance(29.0)
    assert not link.closed


WORKING = spec_with(spec_of("ssb-peer"), work=Work(base=4000, per_byte=40))


@pytest.mark.slow
def test_what_a_peer_does_is_bounded_by_what_it_is_given() -> None:
    check_machine(WORKING, [law for law in PROPERTIES if law.name == "work"])


@pytest.mark.once
def test_what_a_peer_does_in_a_conversation_is_bounded() -> None:
    for told in conversations(WORKING):
        Worker(WORKING, told).tell(told.operations)


@pytest.mark.costly
@pytest.mark.once
@pytest.mark.parametrize(
    "flood", WORKING.attacks.floods, ids=["notes", "histories", "pings", "early"]
)
def test_what_a_peer_does_in_a_flood_grows_with_it(flood: Flood) -> None:
    after = [each for each in WORKING.usage.meetings if f"{each.name}/alice" == flood.after]
    at_once(spec_with(WORKING, meetings=after, floods=[flood]))


# The peers that we accept


def test_who_is_blocked_is_not_admitted_and_not_dialled() -> None:
    alice, bob = Node("alice"), Node("bob")
    alice.peer.block(alice.peer.me, bob.peer.me)
    connect(bob, alice, sealed=True)
    run(alice, bob)
    assert not alice.told(PeerConnected)
    with pytest.raises(LocalProtocolError) as caught:
        alice.peer.dialled(bob.peer.me, ephemeral=PrivateKey.generate())
    assert caught.value.code is PeerErrorCode.BLOCKED
    with pytest.raises(LocalProtocolError) as caught:
        alice.peer.attached(bob.peer.me, role=SessionRole.SERVER)
    assert caught.value.code is PeerErrorCode.BLOCKED
    with pytest.raises(ValueError, match="peer must be the id of a feed"):
        alice.peer.attached("bob", role=SessionRole.SERVER)
    assert not alice.peer.links


def test_whom_we_block_is_disconnected() -> None:
    alice, bob = Node("alice"), Node("bob")
    connect(bob, alice)
    run(alice, bob)
    alice.peer.block(alice.peer.me, bob.peer.me)
    run(alice, bob)
    assert alice.told(PeerDisconnected)
    assert alice.told(SessionEnded)[0].reason is EndReason.BLOCKED


def test_whom_we_block_while_we_dial_is_disconnected() -> None:
    alice, bob = Node("alice"), Node("bob")
    connect(alice, bob, sealed=True)
    alice.peer.block(alice.peer.me, bob.peer.me)
    run(alice, bob)
    assert not alice.peer.links
    assert not alice.told(SessionEnded)


def test_there_are_no_more_links_than_the_limit() -> None:
    alice = Node("alice", limits=Limits(links_max=1))
    alice.peer.attached(feed_of("bob"), role=SessionRole.SERVER)
    with pytest.raises(LocalProtocolError) as caught:
        alice.peer.accepted(ephemeral=PrivateKey.generate())
    assert caught.value.code is PeerErrorCode.TOO_MANY_LINKS


def test_a_sealed_link_takes_as_many_packets_at_a_time_as_the_limit() -> None:
    alice, bob = Node("alice", limits=Limits(ssb=ssb.Limits(packets_max=3))), Node("bob")
    _, link = connect(bob, alice, sealed=True)
    run(alice, bob)
    assert link.read_size() == 3 * (34 + 4096)


def test_a_store_that_fails_ends_everything() -> None:
    alice, link = served()
    alice.peer.publish(POST)
    effect = alice.peer.next_effect()
    assert effect is not None
    alice.peer.fail(effect.ticket, OSError("the disk is full"))
    alice.drain()
    link.receive_eof()
    alice.drain()
    assert isinstance(alice.events[-1], Closed)


def test_a_network_with_a_key_of_its_own() -> None:
    alice, bob = (Node(name, hmac_key=bytes(32)) for name in ("alice", "bob"))
    bob.peer.follow(alice.peer.me)
    message = alice.peer.publish(POST, timestamp=7)
    connect(bob, alice)
    run(alice, bob)
    assert bob.peer.clock[alice.peer.me] == 1
    assert message.verify(hmac_key=bytes(32))
    assert not message.verify()
    assert message.timestamp == 7


def test_feeds_spread_over_a_chain_of_peers() -> None:
    names = ["alice", "bob", "carol", "dave"]
    nodes = [Node(name) for name in names]
    for node in nodes:
        for name in names:
            node.peer.follow(feed_of(name))
    nodes[0].peer.publish(POST)
    for client, server in pairwise(nodes):
        connect(client, server, sealed=True)
    run(*nodes)
    nodes[3].peer.publish(POST)
    run(*nodes)
    assert all(node.peer.clock == nodes[0].peer.clock for node in nodes)
    assert nodes[0].peer.clock == {
        **dict.fromkeys(map(feed_of, names), 0),
        feed_of("alice"): 1,
        feed_of("dave"): 1,
    }
    assert nodes[3].peer.source(feed_of("alice")) == feed_of("carol")


def test_frames_are_told_apart() -> None:
    message = Node("alice").peer.publish(POST)
    frame = read_frame(message.data, BodyType.JSON)
    assert frame == (message.author, 1, message)
    notes = b'{"%s":7}' % feed_of("bob").encode()
    assert read_frame(notes, BodyType.JSON) == {feed_of("bob"): 7}


def test_a_peer_of_another_language_may_be_anybody() -> None:
    """muxrpc alone, as for a client of any kind: it asks for the manifest."""
    alice, link = served()
    rpc = Connection()
    call = rpc.make_call(["manifest"], CallType.ASYNC)
    link.receive_data(rpc.data_to_send())
    rpc.receive_data(alice.take(link))
    reply = rpc.next_event()
    assert reply is not None
    assert reply.read()["ebt"] == {"replicate": "duplex", "replicateFormat": "duplex"}  # type: ignore[attr-defined]
    assert call.number == 1
