"""Exchanges that talk to each other, and twins that must say the same."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from types import ModuleType
from typing import Any

from kernel_twins import freeze

PLAIN, ASKING, ANSWERING = range(3)
LISTING_FROM = 6
ROUNDS_MAX = LISTING_FROM + 3
SIZE = 40_000

Plan = dict[str, int]


def filled(
    module: ModuleType, items: set[bytes], kind: int, item_size: int, varying: bool, width: int = 40
) -> Any:
    """A tree of the items; a frozen one, if nodes have a `width` of 0."""
    tree = module.Tree(kind, item_size, varying, width or 40)
    held = sorted(items)
    tree.load(b"".join(held), array("Q", accumulate(map(len, held), initial=0)))
    return tree if width else freeze(module, tree, kind, item_size, varying)


class Twins:
    """Does everything on all twins, which must behave alike."""

    def __init__(self, *twins: Any) -> None:
        self.twins = twins

    def __getattr__(self, name: str) -> Any:
        values = [getattr(twin, name) for twin in self.twins]
        if not callable(values[0]):
            return same(values)
        return lambda *arguments, **named: same([value(*arguments, **named) for value in values])


def same(values: list[Any]) -> Any:
    assert all(value == values[0] for value in values), values
    return values[0]


def say_all(said: Any, plan: Plan, number: int, size: int) -> Iterator[bytes]:
    listing = plan["listing"] or number >= LISTING_FROM
    while not said.is_over:
        yield said.say(size, **{**plan, "listing": listing})


@dataclass
class Talk:
    """The messages of two sides, by rounds, and the items that they got."""

    plans: tuple[Plan, Plan]
    size: int = SIZE
    rounds: list[list[bytes]] = field(default_factory=list)
    received: tuple[list[bytes], list[bytes]] = field(default_factory=lambda: ([], []))

    def run(self, first: Any, second: Any) -> Talk:
        """Rounds by turns, both sides keeping account."""
        sides, speaker, until = (first, second), 0, 1
        first.begin()
        second.expect()
        while True:
            said, listener = sides[speaker], sides[1 - speaker]
            for piece in self.say(said, speaker):
                self.hear(listener, 1 - speaker, piece, until)
            assert listener.answered == until
            until = said.asked
            if not until:
                return self
            said.listen()
            listener.speak()
            speaker = 1 - speaker

    def run_explicitly(self, asking: Any, make_responder: Callable[[], Any]) -> Talk:
        """Rounds by turns, with no account kept at the second side."""
        asking.begin()
        while not asking.is_over:
            requests = [(piece, asking.asked) for piece in self.say(asking, 0)]
            asking.listen()
            for piece, until in requests:
                responder = make_responder()
                responder.listen()
                self.hear(responder, 1, piece, 0)
                responder.speak()
                for answer in self.say(responder, 1, new=piece is requests[0][0]):
                    self.hear(asking, 0, answer, until)
                assert asking.answered == until
            asking.speak()
        return self

    def say(self, said: Any, speaker: int, new: bool = True) -> Iterator[bytes]:
        if new:
            self.rounds.append([])
        assert len(self.rounds) <= 2 * ROUNDS_MAX
        for piece in say_all(said, self.plans[speaker], len(self.rounds), self.size):
            self.rounds[-1].append(piece)
            yield piece

    def hear(self, listener: Any, side: int, piece: bytes, until: int) -> None:
        fault, items = listener.hear(piece, until)
        assert fault == 0
        self.received[side].extend(items)


def spread(chance: Random, count: int, size: int, varying: bool = False) -> set[bytes]:
    return {chance.randbytes(chance.randint(0, size) if varying else size) for _ in range(count)}
