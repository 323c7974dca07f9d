"""What each mode of a compact session takes, beside hoytech/negentropy, both in one run.

``CULM_RECONCILE_ITEMS`` is the size of the sets (of 32 bytes each, 1,000,000 by default); where
negentropy's source lies is told by ``CULM_NEGENTROPY``, and without it only ours is measured.
Bytes are those of both directions.  Ours have sent each other what they lack, in negentropy one
side knows what both lack: what the other one lacks is still to be sent.  Time is the processor's,
of both sides, without building the stores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from statistics import median
from time import process_time

import pytest

from beside import built, measured
from culm import kernels
from culm.reconcile import (
    CompactParameters,
    CompactSession,
    ItemsReceived,
    Reconciled,
    Role,
    Tree,
)

COUNT = int(os.environ.get("CULM_RECONCILE_ITEMS", "1000000"))
SIZE = 32
TURNS = 3
MODES = {"plain": CompactParameters(), "keyed": CompactParameters(keyed=True)}

pytestmark = pytest.mark.skipif(
    kernels.IMPLEMENTATIONS["tree"] != "compiled", reason="sets of that size ask for the kernel"
)


@pytest.fixture(scope="module")
def negentropy(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The program of the other side, if it can be built."""
    try:
        return built("negentropy_session.cpp", tmp_path_factory.mktemp("negentropy"))
    except pytest.skip.Exception:
        return None


@dataclass(frozen=True)
class Sets:
    """What each side has."""

    left: list[bytes]
    right: list[bytes]


def spread(differences: int, *, left: float = 0.5, times: bool = False) -> Sets:
    """Random items, so many of which only one side has; a share of them the left one.

    times: eight bytes in front grow slowly, so that the keys are crowded.
    """
    chance = Random(differences)
    own = round(left * differences)
    ids = [chance.randbytes(SIZE) for _ in range(COUNT + differences - own)]
    if times:
        ids = [(1 << 40 | at >> 3).to_bytes(8) + each[8:] for at, each in enumerate(ids)]
        chance.shuffle(ids)
    return Sets(ids[:COUNT], ids[own:])


def clustered(differences: int) -> Sets:
    """All that differs lies in a hundredth of the keys."""
    ids = spread(0).left
    chance = Random(differences)
    own = [
        bytes([77, chance.randrange(3)]) + chance.randbytes(SIZE - 2) for _ in range(differences)
    ]
    return Sets(ids + own[::2], ids + own[1::2])


def disjoint() -> Sets:
    ids = spread(0).left[: COUNT // 10]
    return Sets(ids[::2], ids[1::2])


SETS = {
    "10 differ": lambda: spread(10),
    "1,000 differ": lambda: spread(1000),
    "100,000 differ": lambda: spread(100_000),
    "1,000 in a hundredth": lambda: clustered(1000),
    "1,000 on one side": lambda: spread(1000, left=1.0),
    "times first, 1,000 differ": lambda: spread(1000, times=True),
    "the same": lambda: spread(0),
    "one side empty": lambda: Sets(spread(0).left[: COUNT // 10], []),
    "nothing in common": disjoint,
}


def tree_of(items: list[bytes]) -> Tree:
    tree = Tree(item_size=SIZE)
    tree.fill(b"".join(items))
    return tree


def said(sender: CompactSession) -> Iterator[bytes]:
    while data := sender.data_to_send():
        yield data


Received = list[list[tuple[bytes, ...]]]


def talk(sessions: tuple[CompactSession, CompactSession]) -> tuple[int, int, Received]:
    """Bytes, messages (how often the speaker changed), and what each has received."""
    size = messages = agreed = 0
    received: Received = [[], []]
    speaker: int | None = None
    moved = True
    while moved:
        moved = False
        for here in (0, 1):
            for event in iter(sessions[here].next_event, None):
                if isinstance(event, ItemsReceived):
                    received[here].append(event.items)
                agreed += isinstance(event, Reconciled)
            if spoken := b"".join(said(sessions[here])):
                sessions[1 - here].receive_data(spoken)
                size += len(spoken)
                messages += speaker != here
                speaker, moved = here, True
    assert agreed == 2
    return size, messages, received


@pytest.mark.parametrize("name", SETS)
def test_modes(name: str, capsys: pytest.CaptureFixture[str], negentropy: Path | None) -> None:
    sets = SETS[name]()
    trees = tree_of(sets.left), tree_of(sets.right)
    lines = [f"\n{len(sets.left)} and {len(sets.right)} items, {name}"]
    for mode, parameters in MODES.items():
        times = []
        for turn in range(TURNS):
            left, right = (
                CompactSession(view=tree, role=role, rng=Random(turn), parameters=parameters)
                for tree, role in zip(trees, Role, strict=True)
            )
            start = process_time()
            size, messages, received = talk((left, right))
            times.append(process_time() - start)
            both = [set(chain.from_iterable(each)) for each in received]
            assert both[0] == set(sets.right) - set(sets.left)
            assert both[1] == set(sets.left) - set(sets.right)
        lines.append(row(mode, size, messages, 1000 * median(times)))
    if negentropy is not None:
        lines += beside(negentropy, sets)
    with capsys.disabled():
        print("\n".join(lines))


def beside(program: Path, sets: Sets) -> Iterator[str]:
    """The same by negentropy, in each of its stores."""
    found = measured(program, len(sets.left), b"".join(sets.left + sets.right))
    for store in ("vector", "btree"):
        size, messages, time = (found[f"{store}_{what}"] for what in ("bytes", "messages", "time"))
        yield row(f"neg. {store}", size, messages, time / 1e6)


def row(name: str, size: float, messages: float, time_ms: float) -> str:
    return f"  {name:12} {size / 1000:10.1f} kB {messages:3.0f} messages {time_ms:8.1f} ms"
