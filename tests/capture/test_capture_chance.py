"""Chance is an input of a machine: draws are recorded, and repeated."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from culm import garlic
from culm.capture import (
    Capture,
    CaptureError,
    ErrorCode,
    Header,
    Recorder,
    Replay,
    Step,
    read,
    replay,
)
from culm.capture.blocks import MAGIC, write_block
from culm.effects import Answer
from culm.garlic.handshake import Credentials
from culm.garlic.raft import Raft, Server, Stored
from culm.garlic.store import MemoryStore
from culm.oxen import Limits, Node
from culm.testing.raft_store_model import Values


class Drawer:
    """Draws in every way, also in its constructor."""

    def __init__(self, rng: random.Random, *, more: bool = False) -> None:
        self.rng, self.more = rng, more
        self.first = rng.random()

    def draw(self) -> list[object]:
        rng = self.rng
        items = list(range(20))
        rng.shuffle(items)
        if self.more:
            rng.random()
        return [
            self.first,
            items,
            rng.getrandbits(200),
            rng.uniform(1, 2),
            rng.choice("abc"),
            rng.randbytes(5),
            rng.sample(range(1000), 4),
            rng.expovariate(1.0),
        ]

    def rest(self) -> int:
        return 1


def recorded(use: Callable[[Recorder], object]) -> Capture:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append)
    use(recorder)
    recorder.flush()
    return read(b"".join(pieces))


def draws() -> Capture:
    def use(recorder: Recorder) -> None:
        drawer = recorder.stand_in(Drawer(recorder.chance(random.SystemRandom())))
        drawer.draw()
        drawer.rest()

    return recorded(use)


def test_a_replay_draws_what_was_drawn() -> None:
    assert replay(draws(), lambda _, rng: Drawer(rng)) is None


def test_whoever_draws_more_or_less_is_named() -> None:
    more = replay(draws(), lambda _, rng: Drawer(rng, more=True))
    assert more is not None
    assert (more.recorded.name, more.found and more.found.name) == ("~getrandbits", "~random")
    less = replay(draws(), lambda _, rng: Drawer(random.Random(1)))
    assert less is not None
    assert (less.recorded.name, less.found) == ("~random", None)
    unheard = recorded(lambda made: made.stand_in(Drawer(random.Random(1))).draw())
    without = replay(unheard, lambda _, rng: Drawer(rng))
    assert without is not None
    assert (without.recorded.name, without.found and without.found.name) == ("draw", "~random")


@pytest.mark.parametrize("seed", range(5))
def test_servers_with_real_chance_are_replayed(seed: int) -> None:
    """An election timeout is drawn again and again."""
    servers = [Server(n, f"tcp://h:{n}") for n in (1, 2, 3)]

    def build(rng: random.Random) -> Raft:
        return Raft(server_id=1, stored=Stored.founding(servers), rng=rng, now=0.0)

    def use(recorder: Recorder) -> None:
        store = MemoryStore(Values(), Stored.founding(servers))
        raft = recorder.stand_in(build(recorder.chance(random.SystemRandom(seed))))
        for _ in range(20):
            while raft.next_event() is not None:
                pass
            while (effect := raft.next_effect()) is not None:
                Answer.of(effect, store.perform).give(raft)
            if (deadline := raft.next_deadline()) is not None:
                raft.advance(deadline)

    assert replay(recorded(use), lambda _, rng: build(rng)) is None


def test_a_node_with_real_chance_is_replayed() -> None:
    def build(rng: random.Random) -> Node:
        return Node(me=b"one", rng=rng, epoch=0.0)

    def use(recorder: Recorder) -> None:
        node = recorder.stand_in(build(recorder.chance(random.SystemRandom())))
        node.advance(0.0)
        node.join(b"two", seed=True)
        for now in range(50):
            node.advance(float(now))
            while node.next_event() is not None:
                pass
            node.datagrams_to_send()

    capture = recorded(use)
    assert replay(capture, lambda _, rng: build(rng)) is None


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("~random", [], 1.0),
        ("~random", [], "0.5"),
        ("~random", [1], 0.5),
        ("~getrandbits", [3], 8),
        ("~getrandbits", [3], -1),
        ("~getrandbits", [], 1),
        ("~seed", [], None),
    ],
)
def test_what_no_generator_draws_is_refused(
    name: str, arguments: list[object], result: object
) -> None:
    step = Step(0.0, 0, name, arguments, {}, result)
    capture = read(MAGIC + write_block(Header().encode() + step.encode()))
    with pytest.raises(CaptureError) as caught:
        replay(capture, lambda _, rng: Drawer(rng))
    assert caught.value.code is ErrorCode.BAD_RECORD


def test_draws_without_end_are_refused() -> None:
    step = Step(0.0, 0, "~random", [], {}, 0.5).encode()
    capture = read(MAGIC + write_block(Header().encode() + step * 70_000))
    with pytest.raises(CaptureError, match="over 65536 draws"):
        replay(capture, lambda _, rng: Drawer(rng))


def test_a_machine_that_the_recorder_has_made_is_made_again() -> None:
    def use(recorder: Recorder) -> None:
        rng = recorder.chance(random.SystemRandom())
        node = recorder.make(Node, me=b"one", rng=rng, epoch=0.0, limits=Limits(peers_max=7))
        assert isinstance(node, Node)
        node.advance(0.0)
        node.join(b"two", seed=True)
        node.datagrams_to_send()
        with pytest.raises(ValueError, match="32 bytes"):
            recorder.make(Node, me=b"three", rng=rng, epoch=0.0, keys=[b"short"])

    capture = recorded(use)
    steps = list(recorded(use))
    assert steps[-1].keywords["keys"] == {"": "secret", "type": "list"}
    player = Replay(capture.header)
    for step in [*capture][:-1]:
        assert player.do(step) is None
    assert player.machine.me == b"one"


def test_handshakes_of_a_node_are_made_again() -> None:
    servers = [Server(n, f"tcp://h:{n}") for n in (1, 2, 3)]

    def use(recorder: Recorder) -> None:
        rng = recorder.chance(random.SystemRandom())
        stored = Stored.founding(servers)
        node = recorder.make(garlic.Node, server_id=1, stored=stored, rng=rng, now=0.0)
        credentials = recorder.make(Credentials, user="farm", password="wonderland", rng=rng)
        link = node.accepted(handshake=credentials.handshake(None, 0.0))
        link.receive_data(b"GET /GarlicFarm/farm/1/websocket HTTP/1.1\r\nHost: h\r\n\r\n")
        while node.next_event() is not None:
            pass
        assert b"nonce" in link.data_to_send()

    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine="garlic-node", redact=frozenset())
    use(recorder)
    recorder.flush()
    assert replay(read(b"".join(pieces))) is None
    pieces.clear()
    recorder = Recorder(pieces.append, machine="oxen", redact=frozenset())
    use(recorder)
    recorder.flush()
    with pytest.raises(CaptureError, match="no machine"):  # a machine without such helpers
        replay(read(b"".join(pieces)))
    assert b"wonderland" not in repr([*recorded(use)]).encode()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("+culm.capture.records:Step", ErrorCode.BAD_VALUE),
        ("+culm.bamboo.store:MemoryStore", ErrorCode.BAD_VALUE),
        ("+culm.nowhere:Nothing", ErrorCode.BAD_VALUE),
        ("+os:system", ErrorCode.BAD_VALUE),
        ("+", ErrorCode.BAD_VALUE),
    ],
)
def test_what_is_no_machine_is_not_made(name: str, code: ErrorCode) -> None:
    step = Step(0.0, 0, name, [1], {"x": {"": "chance"}}, None)
    with pytest.raises(CaptureError) as caught:
        replay(read(MAGIC + write_block(Header().encode() + step.encode())))
    assert caught.value.code is code


def test_a_recorder_is_for_one_machine() -> None:
    for first in ("stand_in", "make"):
        recorder = Recorder([].append)
        if first == "make":
            recorder.make(Node, me=b"one", rng=random.Random(1), epoch=0.0)
        else:
            recorder.stand_in(Node(me=b"one", rng=random.Random(1), epoch=0.0))
        with pytest.raises(CaptureError) as caught:
            recorder.stand_in(Node(me=b"two", rng=random.Random(2), epoch=0.0))
        assert caught.value.code is ErrorCode.SECOND_MACHINE
