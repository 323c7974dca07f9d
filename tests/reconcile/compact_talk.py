"""Two compact sessions on a link, and checks of them."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from random import Random
from typing import Any

from culm.buffer import ReceiveBuffer
from culm.machine import Closed, Event
from culm.reconcile import (
    CheckFailed,
    CompactParameters,
    CompactSession,
    ItemsReceived,
    Reconciled,
    Role,
    SumsEqual,
    Tree,
)
from culm.reconcile.frames import FrameKind, take_frame
from culm.testing.link import MachinePair, random_chunks, whole

UNKEYED = CompactParameters(keyed=False)


def tree_of(
    items: AbstractSet[bytes], size: int, *, varying: bool = False, monoid: str = "xxh3-sum"
) -> Tree:
    tree = Tree(item_size=size, varying=varying, monoid=monoid)
    tree.load_items(sorted(items))
    return tree


class Live:
    """A session on a tree that takes in the items it receives."""

    def __init__(self, tree: Tree, role: Role, seed: int, **options: Any) -> None:
        self.tree = tree
        self.session = CompactSession(view=tree, role=role, rng=Random(seed), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def next_event(self) -> Event | None:
        event = self.session.next_event()
        if isinstance(event, ItemsReceived):
            for item in event.items:
                assert self.tree.insert(item), "an item came twice"
        return event


def talk(
    ours: Tree,
    theirs: Tree,
    parameters: tuple[CompactParameters, CompactParameters] = (UNKEYED, UNKEYED),
    *,
    seed: int | None = None,
    live: bool = False,
    **options: Any,
) -> MachinePair:
    """Both sides run until quiet; with a `seed`, their bytes come in random pieces."""
    make = Live if live else _session
    sides = [
        make(tree, role, number, parameters=chosen, **options)
        for number, (tree, role, chosen) in enumerate(
            zip((ours, theirs), Role, parameters, strict=True)
        )
    ]
    chunker = whole if seed is None else random_chunks(Random(seed))
    return MachinePair.of_machines(*sides, chunker=chunker).run()


def _session(tree: Tree, role: Role, seed: int, **options: Any) -> CompactSession:
    return CompactSession(view=tree, role=role, rng=Random(seed), **options)


def received(events: list[Event]) -> list[bytes]:
    return [item for event in events if isinstance(event, ItemsReceived) for item in event.items]


def check_union(
    link: MachinePair,
    ours: AbstractSet[bytes],
    theirs: AbstractSet[bytes],
    *,
    keyed: bool = False,
    strong: bool = False,
) -> None:
    """Both have ended with all items of the other, each item once, in one run."""
    told = Reconciled(keyed=keyed) if keyed or strong else SumsEqual()
    for end, lacking in ((link.left, theirs - ours), (link.right, ours - theirs)):
        assert end.events[-2:] == [told, Closed()]
        assert not any(isinstance(event, CheckFailed) for event in end.events)
        assert sorted(received(end.events)) == sorted(lacking)


def frames_in(data: bytes) -> list[tuple[FrameKind, bytes]]:
    inbox = ReceiveBuffer()
    inbox.append(data)
    return list(iter(lambda: take_frame(inbox), None))


def rounds_in(link: MachinePair) -> int:
    """The number of rounds on both sides."""
    kinds = [kind for end in (link.left, link.right) for kind, _ in frames_in(end.sent)]
    return kinds.count(FrameKind.LAST_PIECE)
