"""The cost of each mode of a compact session, beside hoytech/negentropy, both in one run.

``CULM_RECONCILE_ITEMS`` is the size of the sets (of 32 bytes each, 1,000,000 by default; 10,000 and
10,000,000 are worth a look, the latter with some GB of memory to spare); ``CULM_NEGENTROPY`` names
the folder of negentropy's source; without it only ours is measured.  Medians are of
``CULM_RECONCILE_TURNS`` sets.  Bytes are those of both directions.  Our sides have sent each other
the missing items; in negentropy one side knows what both lack: the other one's missing items are
still to be sent.  Time is the processor's, of both sides, without building the stores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
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
    SumsEqual,
    Tree,
)

COUNT = int(os.environ.get("CULM_RECONCILE_ITEMS", "1000000"))
SIZE = 32
TURNS = int(os.environ.get("CULM_RECONCILE_TURNS", "3"))
MODES = {
    "ranges": CompactParameters(keyed=False),
    "keyed": CompactParameters(keyed=True),
    "rateless": CompactParameters(rateless=True, keyed=False),
    "both": CompactParameters(rateless=True, keyed=True),
}

pytestmark = [
    pytest.mark.skipif(
        kernels.IMPLEMENTATIONS["tree"] != "compiled", reason="sets of that size ask for the kernel"
    ),
    # Negentropy's tree takes minutes to build of 10,000,000 items.
    pytest.mark.timeout(0),
]


@pytest.fixture(scope="module")
def negentropy(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The program of the other side, if it can be built."""
    try:
        return built("negentropy_session.cpp", tmp_path_factory.mktemp("negentropy"))
    except pytest.skip.Exception:
        return None


@dataclass(frozen=True)
class Cost:
    """The cost of one reconciliation, for both sides together."""

    size: float
    messages: float
    time_ms: float


@dataclass(frozen=True)
class Sets:
    """The items common to both sides, as one row of bytes, and those of each side alone."""

    both: bytes
    left: list[bytes]
    right: list[bytes]

    @property
    def rows(self) -> tuple[bytes, bytes]:
        """All items of each side, in no order."""
        return self.both + b"".join(self.left), self.both + b"".join(self.right)


def spread(turn: int, differences: int, *, left: float = 0.5, times: bool = False) -> Sets:
    """Random items, `differences` of them on one side only; a share of these on the left one.

    times: eight bytes in front grow slowly, so that the keys are crowded.
    """
    chance = Random(differences + (turn << 32))
    own = round(left * differences)
    both = b"".join(randoms(chance, COUNT - own))
    alone = [*randoms(chance, differences)]
    if times:
        both = b"".join(
            timed(both[SIZE * at + 8 : SIZE * at + SIZE], at) for at in range(COUNT - own)
        )
        alone = [timed(each[8:], chance.randrange(COUNT)) for each in alone]
    return Sets(both, alone[:own], alone[own:])


def randoms(chance: Random, count: int) -> Iterator[bytes]:
    return (chance.randbytes(SIZE) for _ in range(count))


def timed(end: bytes, at: int) -> bytes:
    return (1 << 40 | at >> 3).to_bytes(8) + end


def clustered(turn: int, differences: int) -> Sets:
    """All differences lie in a hundredth of the keys."""
    chance = Random(differences + (turn << 32))
    own = [
        bytes([77, chance.randrange(3)]) + chance.randbytes(SIZE - 2) for _ in range(differences)
    ]
    return Sets(spread(turn, 0).both, own[::2], own[1::2])


def apart(turn: int, *, shared_out: bool) -> Sets:
    """A tenth of the items, all of the left side, or shared out to both."""
    chance = Random(COUNT + (turn << 32))
    ids = [*randoms(chance, COUNT // 10)]
    return Sets(b"", ids[::2], ids[1::2]) if shared_out else Sets(b"", ids, [])


SETS = {
    **{
        f"{number:,} differ": partial(spread, differences=number)
        for number in (10, 1000, 100_000)
        if number <= COUNT
    },
    "1,000 in a hundredth": partial(clustered, differences=1000),
    "1,000 on one side": partial(spread, differences=1000, left=1.0),
    "times first, 1,000 differ": partial(spread, differences=1000, times=True),
    "the same": partial(spread, differences=0),
    "one side empty": partial(apart, shared_out=False),
    "nothing in common": partial(apart, shared_out=True),
}


def tree_of(row: bytes) -> Tree:
    tree = Tree(item_size=SIZE)
    tree.fill(row)
    return tree


def said(sender: CompactSession) -> Iterator[bytes]:
    while data := sender.data_to_send():
        yield data


Received = list[list[tuple[bytes, ...]]]


def talk(sessions: tuple[CompactSession, CompactSession]) -> tuple[int, int, Received]:
    """Bytes, messages (the number of changes of speaker), and the items received by each."""
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
                agreed += isinstance(event, Reconciled | SumsEqual)
            if spoken := b"".join(said(sessions[here])):
                sessions[1 - here].receive_data(spoken)
                size += len(spoken)
                messages += speaker != here
                speaker, moved = here, True
    assert agreed == 2
    return size, messages, received


@pytest.mark.parametrize("name", SETS)
def test_modes(name: str, capsys: pytest.CaptureFixture[str], negentropy: Path | None) -> None:
    found: dict[str, list[Cost]] = {}
    # By turns, since other load on the machine changes from one minute to the next.
    for turn in range(TURNS):
        sets = SETS[name](turn)
        rows = sets.rows
        trees = tree_of(rows[0]), tree_of(rows[1])
        for mode, parameters in MODES.items():
            cost, received = measured_talk(trees, parameters, turn)
            found.setdefault(mode, []).append(cost)
            assert received == [set(sets.right), set(sets.left)]
        if negentropy is not None:
            for store, cost in beside(negentropy, rows).items():
                found.setdefault(store, []).append(cost)
    with capsys.disabled():
        print(f"\n{COUNT} items, {name}, {TURNS} sets")
        print("\n".join(row(each, costs) for each, costs in found.items()))


def measured_talk(
    trees: tuple[Tree, Tree], parameters: CompactParameters, seed: int
) -> tuple[Cost, list[set[bytes]]]:
    """The cost of a session, and the items received by each side."""
    left, right = (
        CompactSession(view=tree, role=role, rng=Random(seed), parameters=parameters)
        for tree, role in zip(trees, Role, strict=True)
    )
    start = process_time()
    size, messages, received = talk((left, right))
    time = process_time() - start
    return Cost(size, messages, 1000 * time), [set(chain.from_iterable(each)) for each in received]


def beside(program: Path, rows: tuple[bytes, bytes]) -> dict[str, Cost]:
    """The same with negentropy, in each of its stores."""
    found = measured(program, len(rows[0]) // SIZE, rows[0] + rows[1])
    return {
        f"neg. {store}": Cost(
            found[f"{store}_bytes"], found[f"{store}_messages"], found[f"{store}_time"] / 1e6
        )
        for store in ("vector", "btree")
    }


def row(name: str, costs: list[Cost]) -> str:
    sizes = sorted(cost.size / 1000 for cost in costs)
    messages = median(cost.messages for cost in costs)
    times = sorted(cost.time_ms for cost in costs)
    return (
        f"  {name:12} {median(sizes):10.1f} kB ({sizes[0]:.1f} to {sizes[-1]:.1f})"
        f" {messages:3.0f} messages {median(times):8.1f} ms ({times[0]:.1f} to {times[-1]:.1f})"
    )
