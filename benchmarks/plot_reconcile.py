"""Draws the cost of reconciliation: bytes and messages, for modes and parameters.

    python benchmarks/plot_reconcile.py docs/pictures

writes ``reconcile-modes.svg`` and ``reconcile-parameters.svg``; it needs matplotlib.  Every point
is the median of real sessions on random items of 32 bytes, with half of the differences on each
side: bytes of both directions, frames included, until both sides know the union.  It takes some
minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import median

import matplotlib as mpl
from matplotlib import pyplot

from culm.machine import Closed
from culm.reconcile import (
    CompactParameters,
    CompactSession,
    PlainSession,
    Role,
    Tree,
    TreeSnapshot,
)

SIZE = 32
COUNT = 100_000
SEEDS = range(5)
DIFFERENCES = (2, 6, 20, 60, 200, 600, 2000, 6000, 20_000, 60_000)
COUNTS = (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
DIFFERENCES_FIXED = 600

RANGES = CompactParameters(keyed=False)
MODES: Mapping[str, CompactParameters | None] = {
    "ranges": RANGES,
    "rateless": replace(RANGES, rateless=True),
    "plain": None,
}
THRESHOLDS = {
    f"threshold {number}": replace(RANGES, list_threshold=number) for number in (1, 6, 30, 150)
}
BRANCHINGS = {
    "adapted": RANGES,
    **{f"{number} parts": replace(RANGES, branching=number) for number in (2, 4, 16, 64)},
}


@dataclass(frozen=True)
class Taken:
    """The cost of a session."""

    size: float
    messages: float


@cache
def shared(count: int) -> bytes:
    return Random(count).randbytes(SIZE * count)


@cache
def sides(count: int, differences: int, seed: int) -> tuple[TreeSnapshot, TreeSnapshot]:
    """Two sets of `count` items, each of them with half of the differences."""
    own = differences // 2
    both = shared(count)[: SIZE * (count - own)]
    chance = Random(seed)
    trees = Tree(item_size=SIZE), Tree(item_size=SIZE)
    for tree in trees:
        tree.fill(both + chance.randbytes(SIZE * own))
    return trees[0].snapshot(), trees[1].snapshot()


def run(count: int, differences: int, seed: int, parameters: CompactParameters | None) -> Taken:
    """One session; without parameters, of abstract messages in full."""
    sessions: list[CompactSession | PlainSession] = [
        PlainSession(view=view, role=role)
        if parameters is None
        else CompactSession(view=view, role=role, rng=Random(seed), parameters=parameters)
        for view, role in zip(sides(count, differences, seed), Role, strict=True)
    ]
    size = messages = 0
    told: list[object] = []
    silent, speaker = 0, -1
    for here in cycle((0, 1)):
        told += iter(sessions[here].next_event, None)
        said = b"".join(iter(sessions[here].data_to_send, b""))
        silent = 0 if said else silent + 1
        if silent == 2:
            break
        if said:
            messages += here != speaker
            speaker = here
        size += len(said)
        sessions[1 - here].receive_data(said)
    assert told.count(Closed()) == 2
    return Taken(size, messages)


def taken(count: int, differences: int, parameters: CompactParameters | None) -> Taken:
    """The medians of several sessions."""
    runs = [run(count, differences, seed, parameters) for seed in SEEDS]
    return Taken(median(each.size for each in runs), median(each.messages for each in runs))


Points = Mapping[str, tuple[list[float], list[Taken]]]


def by_differences(choices: Mapping[str, CompactParameters | None]) -> Points:
    return {
        name: (list(DIFFERENCES), [taken(COUNT, number, chosen) for number in DIFFERENCES])
        for name, chosen in choices.items()
    }


def by_count(choices: Mapping[str, CompactParameters | None]) -> Points:
    return {
        name: (list(COUNTS), [taken(count, DIFFERENCES_FIXED, chosen) for count in COUNTS])
        for name, chosen in choices.items()
    }


def draw(path: Path, columns: Iterable[tuple[str, Points, int | None]]) -> None:
    """Bytes for each difference above messages; a column is its axis, points and differences."""
    columns = list(columns)
    figure, axes = pyplot.subplots(
        2, len(columns), figsize=(4.6 * len(columns), 5.2), sharex="col", sharey="row"
    )
    for column, (name, points, fixed) in enumerate(columns):
        above, below = axes[0][column], axes[1][column]
        for mode, (xs, ys) in points.items():
            each = [one.size / (fixed or x) for one, x in zip(ys, xs, strict=True)]
            above.plot(xs, each, marker=".", label=mode)
            below.plot(xs, [one.messages for one in ys], marker=".", label=mode)
        above.axhline(SIZE, color="gray", linestyle=":")
        above.set(xscale="log", yscale="log", ylim=(25, 700))
        above.set_yticks([32, 50, 100, 200, 400], ["32", "50", "100", "200", "400"])
        above.minorticks_off()
        above.legend(fontsize="small", frameon=False)
        below.set(xscale="log", ylim=(0, 14), xlabel=name)
        below.minorticks_off()
    axes[0][0].set_ylabel("bytes for each difference")
    axes[1][0].set_ylabel("messages")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    # Text stays text, and the same points make the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "culm", "font.size": 9})
    items = f"differences, {COUNT:,} items a side"
    draw(
        directory / "reconcile-modes.svg",
        [
            (items, by_differences(MODES), None),
            (f"items a side, {DIFFERENCES_FIXED} differences", by_count(MODES), DIFFERENCES_FIXED),
        ],
    )
    draw(
        directory / "reconcile-parameters.svg",
        [
            (items, by_differences(THRESHOLDS), None),
            (items, by_differences(BRANCHINGS), None),
        ],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
