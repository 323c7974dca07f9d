"""A peer that keeps the rules of the wire, and acts at random, brings no replicator into trouble.

A failure names its seed; ``Wilful(seed).go()`` repeats it.
"""

from __future__ import annotations

import pytest
from replicator_against import Wilful

from culm.testing import captures
from effort import seeds


@captures.of_failures
def go(seed: int) -> None:
    world = Wilful(seed)
    try:
        world.go()
    except BaseException as error:
        error.add_note(f"Wilful({seed}): {world.draws}")
        raise


@pytest.mark.parametrize("seed", seeds("REPLICATOR_WILFUL", 16, long=10_000))
def test_whatever_the_peer_may_do_all_that_is_promised_holds(seed: int) -> None:
    go(seed)


# Seeds of worlds in which something was wrong once, and what has to be true in them.
PINNED = {
    "what the peer may be past of a sparse range, or before, is not passed over": (1516, 1561),
    "a range that the peer has shortened ends with a word": (452, 508, 803, 1005),
    "a range ends with a word though we have to end it, for want of a payload": (469, 980, 2873),
    "a goodbye is answered though data before it waits for the store": (2466,),
}


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, id=f"{seed}: {what}") for what, tried in PINNED.items() for seed in tried],
)
def test_what_was_wrong_once_stays_right(seed: int) -> None:
    go(seed)
