"""Whatever users want of whichever peers: it comes to rest, they are told, and have it.

A failure names its seed; ``Whims(seed).go()`` repeats it.
"""

from __future__ import annotations

import pytest
from replicator_oracle import Whims

from culm.testing import captures
from effort import seeds


@captures.of_failures
def go(seed: int) -> None:
    world = Whims(seed)
    try:
        world.go()
    except BaseException as error:
        error.add_note(f"Whims({seed}): {world.draws}")
        raise


@pytest.mark.parametrize("seed", seeds("REPLICATOR_WHIMS", 4, long=20_000))
def test_after_all_whims_everything_that_is_promised_holds(seed: int) -> None:
    go(seed)


# Seeds of worlds in which something was wrong once, and what has to be true in them.
PINNED = {
    # But one that has ended is: a peer that forgot it asks for its place.
    "a log that was refused and had to make way is not proposed for ever": (37, 101),
    "two that ask each other for entries to come wait for them": (112, 464),
    "a range does not wait for a payload that never comes": (189,),
    "what is answered late is not withdrawn for ever": (336,),
    "a range dropped for a request that is confirmed already is proposed again": (621,),
    "a range at rest goes on when the peer passes over its first entry": (730,),
    "a live log is served as far as it was offered, whatever else is not": (1033,),
    "a log at rest of which there is nothing new has no place that others need": (1231,),
    "logs that got no place wait for one without the logs that are in step": (1157,),
    "who takes an offer back, as its payload is not there, owes it no more": (2370,),
    "a log that was turned away makes way for one with news": (2406,),
    "what the peer passes over in its own range is fetched all the same": (3330,),
    "a payload that neither has whole is not asked for again and again": (3781,),
    "a range inside the payload of an entry that we lack, before others of ours": (20155,),
    "a fork shown in a proposal that is dropped is shown again": (50620,),
    "a range that cannot end before a fork is told as refused": (50642,),
    "what the store answers to a request that is over finds no log any more": (30161,),
    "a payload that turns out to be missing before its entry is stored is not waited for": (4524,),
    "a log that makes way for another leaves, though the peer has more of it": (40122, 60909),
    "notifications in a range beside a live log at rest are news of that log": (40024, 71014),
    "who waits for a payload in another request hears that it does not come": (61013, 61065),
}


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, id=f"{seed}: {what}") for what, tried in PINNED.items() for seed in tried],
)
def test_what_was_wrong_once_stays_right(seed: int) -> None:
    go(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [132, 165, 251, 373, 374, 525, 1053, 1454, 1677])
def test_worlds_in_which_something_was_wrong_once(seed: int) -> None:
    """A probe lost with its place, payloads taken for an offer, ranges that roused each other."""
    go(seed)
