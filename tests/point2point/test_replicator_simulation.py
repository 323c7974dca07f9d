"""Replicators in random worlds: in the end every store has everything, whatever happened.

A failure names its seed; ``RandomWorld(seed).go()`` repeats it.
"""

from __future__ import annotations

import pytest
from replicator_parts_random import RandomParts
from replicator_random import RandomWorld

from culm.testing import captures
from effort import amount

CHUNK = 25  # seeds a test


@captures.of_failures
def go(seed: int, *, forks: bool) -> None:
    try:
        RandomWorld(seed, forks=forks).go()
    except BaseException as error:
        error.add_note(f"seed {seed}, forks={forks}")
        raise


@captures.of_failures
def go_for_parts(seed: int) -> None:
    try:
        RandomParts(seed).go()
    except BaseException as error:
        error.add_note(f"RandomParts({seed})")
        raise


@pytest.mark.parametrize("chunk", range(amount(6, long=400)))
def test_all_stores_converge(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        go(seed, forks=False)


@pytest.mark.parametrize("chunk", range(amount(2, long=200)))
def test_forks_are_found_and_what_comes_before_them_is_shared(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        go(seed, forks=True)


@pytest.mark.parametrize("chunk", range(amount(2, long=200)))
def test_whoever_wants_a_part_gets_it_and_can_have_the_rest(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        go_for_parts(seed)
