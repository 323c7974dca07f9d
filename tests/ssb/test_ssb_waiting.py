"""Calls that ask for feeds: stuck ones, and early messages, hold up nothing else."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from history_support import messages
from peer_support import Node, feed_of, packet, packets

from culm.ssb import history
from culm.ssb.ebt import SessionRole
from culm.ssb.messages import ClassicMessage
from culm.ssb.muxrpc import Limits as RpcLimits
from culm.ssb.peer import Limits, PeerLink, Timing

OVERHEAD = 256  # a message's charge beside its size
ROOM = 100_000


class Without:
    """A peer without EBT on a link; it answers calls for feeds on request."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.link: PeerLink = node.peer.attached(feed_of(name), role=SessionRole.SERVER)
        self.calls: dict[str, int] = {}  # the latest for each feed
        self.live: dict[str, int] = {}
        self.read()

    def wait(self, now: float) -> None:
        self.node.advance(now)
        self.read()

    def read(self) -> None:
        """Take note of the received calls."""
        for _, number, body in packets(self.node.take(self.link)):
            if isinstance(body, dict) and body.get("name") == ["createHistoryStream"]:
                args = body["args"][0]
                (self.live if args.get("live") else self.calls)[args["id"]] = number

    def end(self, feed: str) -> None:
        """There is no more of it."""
        self.link.receive_data(packet(-self.calls.pop(feed), True, flags=14))
        self.read()

    def say(self, feed: str, message: ClassicMessage) -> None:
        self.link.receive_data(packet(-self.live[feed], message.data))
        self.node.drain()
        self.read()

    def follow_all(self) -> None:
        """Let all requested feeds become live."""
        while self.calls:
            self.end(next(iter(self.calls)))

    def fill(self) -> None:
        """Send early messages in every live call, until all are over."""
        for sequence in range(2, 52):
            for feed, number in self.live.items():
                made = {**json.loads(messages("alice", 1)[0].data), "author": feed}
                made |= {"sequence": sequence, "previous": f"%{'A' * 43}=.sha256"}
                made["content"] = {"type": "post", "text": "x" * 2000}
                self.link.receive_data(packet(-number, made))
                self.node.drain()


def asker(*follows: str, **options: Any) -> Node:
    node = Node("me", **options)
    for name in follows:
        node.peer.follow(feed_of(name))
    return node


def held(node: Node) -> int:
    return node.peer.early_size


@pytest.mark.parametrize("strangers", [1, 3, 20])
def test_what_comes_before_its_turn_is_held_within_one_limit(strangers: int) -> None:
    """However many links there are; and there is room for one more, as much as each has."""
    names = ["alice", *(f"feed {number}" for number in range(9))]
    node = asker(*names, limits=Limits(early_size_max=ROOM))
    them = [Without(node, f"stranger {number}") for number in range(strangers)]
    node.advance(5.0)
    for each in them:
        each.read()
        each.follow_all()
        each.fill()
        assert held(node) <= ROOM * strangers // (strangers + 1)
    node.advance(6.0)
    honest = Without(node, "honest")
    honest.wait(11.0)
    honest.follow_all()
    for sequence in (3, 2, 1):
        honest.say(feed_of("alice"), messages("alice", 3)[sequence - 1])
    assert node.peer.clock[feed_of("alice")] == 3
    for each in (*them, honest):
        each.link.receive_eof()
    node.drain()
    assert held(node) == 0


def test_what_comes_before_its_turn_waits_for_a_minute() -> None:
    """Keepalives, and other early messages, do not prolong it."""
    node = asker("alice", limits=Limits(early_size_max=ROOM))
    peer = Without(node, "honest")
    peer.wait(5.0)
    peer.follow_all()
    alice = feed_of("alice")
    for now, sequence in ((10.0, 5), (40.0, 4), (69.0, 3)):
        peer.wait(now)
        peer.say(alice, messages("alice", 5)[sequence - 1])
    assert held(node) > 3 * OVERHEAD
    peer.wait(70.0)
    assert held(node) == 0
    assert alice not in peer.calls
    peer.wait(670.0)
    assert alice in peer.calls  # it is asked for again


def test_what_lacks_nothing_any_more_is_followed_for_ever() -> None:
    node = asker("alice")
    peer = Without(node, "honest")
    peer.wait(5.0)
    peer.follow_all()
    alice = feed_of("alice")
    for sequence in (2, 1):
        peer.say(alice, messages("alice", 2)[sequence - 1])
    for now in range(10, 2000, 100):
        peer.wait(float(now))
        peer.link.receive_data(packet(0, 1))  # a sign of life
    peer.say(alice, messages("alice", 3)[2])
    assert node.peer.clock[alice] == 3


@pytest.mark.parametrize("stuck", [9, 10, 25])
def test_calls_that_are_stuck_keep_their_places_for_a_minute(stuck: int) -> None:
    """The peer never answers them, and is otherwise alive."""
    names = [f"feed {number}" for number in range(50)]
    node = asker(*names)
    peer = Without(node, "honest")
    never = {feed_of(name) for name in names[:stuck]}
    asked: dict[str, float] = {}
    for now in count(5, 5):
        peer.wait(float(now))
        while ready := [feed for feed in peer.calls if feed not in never]:
            for feed in ready:
                asked.setdefault(feed, now)
                peer.end(feed)
        peer.link.receive_data(packet(0, 1))  # a sign of life
        if now > 60 * (stuck // 10 + 1) + 10:
            break
    assert asked.keys() >= {feed_of(name) for name in names} - never


def test_a_call_that_is_stuck_for_long_is_made_again() -> None:
    """Even if nothing waits for its place."""
    asking = history.Timing(patience_s=60.0, retry_s=600.0)
    node = asker("alice", timing=Timing(history=asking))
    peer = Without(node, "honest")
    numbers = set()
    for now in range(5, 1400, 20):
        peer.wait(float(now))
        peer.link.receive_data(packet(0, 1))
        numbers.add(peer.calls[feed_of("alice")])
    assert len(numbers) == 2


@pytest.mark.parametrize("octet_s", [1, 5, 8])
def test_over_a_slow_line_a_call_has_more_than_a_minute(octet_s: int) -> None:
    """And longer again after each that was in vain: 40 minutes in the end."""
    node = asker("alice")
    peer = Without(node, "honest")
    alice = feed_of("alice")
    first = messages("alice", 1)[0].data
    now = 0
    while not node.peer.clock[alice]:
        assert now < 10_000
        now += 5
        peer.wait(now)
        if (number := peer.calls.pop(alice, None)) is not None:
            for octet in packet(-number, first):
                now += octet_s
                peer.wait(now)
                peer.link.receive_data(bytes([octet]))
            node.drain()
    assert now > 240


@pytest.mark.parametrize("silent_s", [50, 100, 200])
def test_a_peer_with_a_slow_store_has_longer_after_calls_in_vain(silent_s: int) -> None:
    node = asker("alice")
    peer = Without(node, "honest")
    alice = feed_of("alice")
    now = 0
    while not node.peer.clock[alice]:
        assert now < 3000
        now += 5
        peer.wait(now)
        peer.link.receive_data(packet(0, 1))  # a sign of life
        if (number := peer.calls.pop(alice, None)) is not None:
            now += silent_s
            node.advance(now)
            peer.link.receive_data(packet(-number, messages("alice", 1)[0].data))
            node.drain()


@pytest.mark.parametrize("count", [1000, 6000])
def test_a_peer_that_asks_for_very_many_feeds_at_once_gets_those_that_there_are(
    count: int,
) -> None:
    """All others are refused, and the answer to that comes only after its last request."""
    node = asker()
    node.peer.publish({"type": "post", "text": "hello"})
    node.drain()
    peer = Without(node, "old")
    names = [*(f"feed {number}" for number in range(count)), "me"]
    answers = b""
    for number, name in enumerate(names, 1):
        args = [{"id": feed_of(name), "live": True, "keys": False}]
        request = {"name": ["createHistoryStream"], "args": args, "type": "source"}
        peer.link.receive_data(packet(number, request))
        answers += node.take(peer.link)
    said = [(flags, number, body) for flags, number, body in packets(answers) if number < 0]
    refused = [-number for flags, number, _ in said if flags & 4]
    assert refused == list(range(1, count + 1))
    assert [number for flags, number, _ in said if not flags & 4] == [-count - 1]
    for number in refused:
        peer.link.receive_data(packet(number, True, flags=14))
    node.drain()
    assert not peer.link.closed
    assert len(peer.link.rpc.calls) <= 2  # its own feed, and a ping


def test_a_peer_that_follows_more_feeds_than_it_may_call_gets_all() -> None:
    """Old peers ask for each feed with a call that never ends; so each needs its turn."""
    names = [f"feed {number}" for number in range(12)]
    node = asker(*names, limits=Limits(rpc=RpcLimits(calls_max=5)))
    peer = Without(node, "old")
    answers = b""
    for number, name in enumerate(names, 1):
        args = [{"id": feed_of(name), "live": True, "keys": False}]
        request = {"name": ["createHistoryStream"], "args": args, "type": "source"}
        peer.link.receive_data(packet(number, request))
        answers += node.take(peer.link)
        if number == 3:  # others take places, too
            call = {"name": ["blobs", "createWants"], "args": [], "type": "source"}
            peer.link.receive_data(packet(100, call) + packet(101, call))
            answers += node.take(peer.link)
    said = [(flags, number, body) for flags, number, body in packets(answers) if number < 0]
    assert [body for flags, _, body in said if flags & 4 and body is not True] == []
    assert len([body for flags, _, body in said if flags & 4]) == 12 - 2
