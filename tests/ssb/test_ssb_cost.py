"""Bytes cost alike: whatever is in a frame, reading it takes few steps for each byte.

A step is a line of Python.  Work done in C takes time in proportion to its bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from time import process_time
from types import FrameType
from typing import Any

import pytest
from ebt_support import Host, as_frames, chain, feed, kinds, on
from nacl.signing import SigningKey
from peer_support import Node, feed_of, packet

from culm.machine import RemoteProtocolError
from culm.ssb.ebt import Limits, LoadClock, SessionRole
from culm.ssb.ebt.session import Feed, Relation, SendQueue
from culm.ssb.ebt.states import FeedState
from culm.ssb.messages import MessageError, MessageErrorCode, create_message, read_message
from culm.ssb.muxrpc import BodyType, ValueReceived
from culm.ssb.muxrpc.requests import MalformedRequestError, read_error, read_request
from culm.ssb.peer.conversation import read_frame
from culm.ssb.v8json import JsonError, JsonTooDeepError, parse

SIZE = 1 << 16
STEPS_MAX = 400
FACTOR = 16  # a byte of a message takes at most this many steps; one of anything else takes one


def listed(item: str) -> str:
    return f"[{','.join([item] * (SIZE // (len(item) + 1)))}]"


SHAPES = {
    "flat": f'"{"a" * SIZE}"',
    "digits": "1" * SIZE,
    "small numbers": listed("1"),
    "long numbers": listed("1" * 60),
    "fractions": listed("1e-300"),
    "empty lists": listed("[]"),
    "empty objects": listed("{}"),
    "empty texts": listed('""'),
    "brackets in texts": listed('"[{"'),
    "escapes": f'"{chr(92) * 2 * (SIZE // 2)}"',
    "half pairs": '"' + r"\ud83d" * (SIZE // 6) + '"',
    "keys": "{" + ",".join(f'"{number}":1' for number in range(SIZE // 10)) + "}",
    "nested lists": "[" * (SIZE // 2) + "]" * (SIZE // 2),
    "nested objects": '{"a":' * (SIZE // 6) + "1" + "}" * (SIZE // 6),
    "nested a little": listed("[" * 60 + "]" * 60),
    "open lists": "[" * SIZE,
    "closed lists": "]" * SIZE,
    "spaces": " " * SIZE + "1",
}


def steps(do: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except (JsonError, MalformedRequestError, RemoteProtocolError, MessageError):
        pass
    finally:
        sys.settrace(before)
    return count


READERS: dict[str, Callable[[bytes], object]] = {
    "a frame of a session": lambda body: read_frame(body, BodyType.JSON),
    "a wrapped one": lambda body: read_frame(b'{"clock":%b}' % body, BodyType.JSON),
    "a value": lambda body: ValueReceived(number=1, body=body).read(depth_max=64),
    "a request": lambda body: read_request(body, BodyType.JSON, stream=True),
    "its arguments": lambda body: read_request(
        b'{"name":["a"],"type":"source","args":[%b]}' % body, BodyType.JSON, stream=True
    ),
    "an end": lambda body: read_error(body, BodyType.JSON),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_message_takes_few_steps(reader: str, shape: str) -> None:
    body = SHAPES[shape].encode()
    assert steps(lambda: READERS[reader](body)) < STEPS_MAX + len(body)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_ping_takes_few_steps(shape: str) -> None:
    """However often it comes: anything longer than a number is ignored."""
    node = Node("alice")
    link = node.peer.attached(feed_of("bob"), role=SessionRole.SERVER)
    ask = b'{"name":["gossip","ping"],"args":[],"type":"duplex"}'
    body = SHAPES[shape].encode()
    link.receive_data(packet(1, ask) + packet(1, body) * 3)
    assert steps(node.drain) < 4 * STEPS_MAX
    assert not link.closed


@pytest.mark.parametrize("part", [1, 2, 8], ids=["too long", "half", "an eighth"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_takes_some_steps_for_each_byte(shape: str, part: int) -> None:
    made = create_message(SigningKey(bytes(32)), content={"type": "post"}, timestamp=1, last=None)
    inner = SHAPES[shape].encode()[: 48_000 // part]
    for content in (inner, b"[" + inner + b"]", b"[" + inner.rstrip(b"[{:,") + b'"]' * 64):
        data = made.data.replace(b'"post"', b'"post","a":' + content)
        assert steps(partial(read_message, data)) < 4 * STEPS_MAX + FACTOR * len(data)


def test_what_is_nested_too_deeply_is_told_before_it_is_built() -> None:
    assert parse("[" * 64 + "]" * 64, depth_max=64)
    for text in ("[" * 65 + "]" * 65, '["[\\"["' + ",[" * 64 + "]" * 65, "[" * 65, '{"":' * 65):
        with pytest.raises(JsonTooDeepError):
            parse(text, depth_max=64)
    for text in ('"[[[[["', r'"\"[[[["', r'["\\",[],[],[],"\\\"[[[[["]', "[{},{},[[]],[[]]]"):
        assert parse(text, depth_max=3) == parse(text)


def test_a_message_that_is_nested_so_deeply_would_be_too_long() -> None:
    made = create_message(SigningKey(bytes(32)), content={"type": "post"}, timestamp=1, last=None)
    data = made.data.replace(b'"post"', b'"post","a":' + b"[" * 63 + b"]" * 63)
    with pytest.raises(MessageError) as caught:
        read_message(data)
    assert caught.value.code is MessageErrorCode.TOO_LONG
    with pytest.raises(ValueError, match="8192"):
        create_message(
            SigningKey(bytes(32)),
            content={"type": "post", "a": parse("[" * 62 + "]" * 62)},
            timestamp=1,
            last=None,
        )


# Mere promises


def crowded(feeds: int, strangers: int) -> Host:
    """A host to which strangers have promised everything that it follows."""
    names = [feed(f"author {number}") for number in range(feeds)]
    host = Host(feed("me")).follow(*names)
    for number in range(strangers):
        host.tell(host.accept(feed(f"stranger {number}")), dict.fromkeys(names, on(10)))
    return host


def test_promises_cost_the_same_whatever_their_number() -> None:
    """One look at the time changes a limited number of sources; so does one farewell."""
    few, many = (crowded(feeds, 16) for feeds in (400, 1600))
    costs = [steps(partial(host.machine.advance, 3.0)) for host in (few, many)]
    assert costs[1] < 1.2 * costs[0]
    farewells = [crowded(feeds, 16) for feeds in (400, 1600)]
    costs = [steps(partial(host.machine.disconnect, 1)) for host in farewells]
    assert costs[1] < 3 * costs[0]


def test_promises_that_are_never_kept_cost_nothing_in_the_end() -> None:
    """All are asked; then it is quiet, and an honest peer still brings everything, at once."""
    host = crowded(50, 64)
    host.events.clear()
    while (due := host.machine.next_deadline()) is not None:
        host.advance(due)
        assert host.now < 120.0
    assert kinds(host.events) == ["SourceChanged"] * len(host.events)
    assert len(host.events) <= 50 * 8  # a feed has a turn with each doubling
    bob = host.accept(feed("bob"))
    host.tell(bob, {feed("author 7"): on(10)})
    while (due := host.machine.next_deadline()) is not None:
        host.advance(due)
    host.tell(bob, *as_frames(chain(feed("author 7"), 10)))
    assert host.machine.clock[feed("author 7")] == 10


def test_feeds_that_have_to_wait_for_others_come_soon() -> None:
    """The source of all of them is gone; another peer has them."""
    host = crowded(2000, 4)
    host.machine.disconnect(1)
    host.drain()
    while (due := host.machine.next_deadline()) is not None and due < 1.0:
        host.advance(due)
    assert all(
        host.machine.source(feed(f"author {number}")) == feed("stranger 1")
        for number in range(2000)
    )


def test_feeds_that_wait_for_their_turn_to_be_read_cost_the_same_however_many() -> None:
    """Feeds taken from the front may leave no gap that the next one has to cross.

    Such gaps are crossed in C, where no steps can be counted.
    """
    outgoing = SendQueue(Limits(), wake=lambda: None)
    count = 1 << 17
    for number in range(count):
        outgoing.want(Relation(Feed(str(number), None, FeedState.WHOLE)))

    def take(share: int) -> float:
        begun = process_time()
        for _ in range(count // share):
            outgoing.next_read()
            outgoing.read()
        return process_time() - begun

    first, _, last = take(8), take(2), take(8)
    assert last < 5 * first


def loading(count: int) -> Node:
    """A peer with links whose sessions all wait for a clock from the store."""
    node = Node("alice")
    ask = b'{"name":["ebt","replicate"],"args":[{"version":3}],"type":"duplex"}'
    for number in range(count):
        link = node.peer.attached(feed(f"{number}"), role=SessionRole.SERVER)
        link.receive_data(packet(1, ask))
        while node.peer.next_event() is not None:
            pass
    return node


def test_links_that_wait_for_the_store_are_hardly_looked_at_when_it_answers_for_another_one() -> (
    None
):
    """All of them moved a step; so a thousand peers that come at once took five seconds."""
    costs = []
    for node in map(loading, (16, 32)):
        effect = node.peer.next_effect()
        assert isinstance(effect, LoadClock)
        node.peer.links_to_send()

        def answer(node: Node = node, effect: LoadClock = effect) -> None:
            node.peer.complete(effect.ticket, node.store.perform(effect))
            while node.peer.next_event() is not None:
                pass

        costs.append(steps(answer))
        assert len(node.peer.links_to_send()) == 1
    assert costs[1] - costs[0] < 16 * 16
