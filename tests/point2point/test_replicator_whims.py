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


@pytest.mark.parametrize("seed", [37, 101])
def test_a_log_that_was_refused_and_had_to_make_way_is_not_proposed_for_ever(seed: int) -> None:
    """But one that has ended is: a peer that forgot it asks for its place."""
    go(seed)


@pytest.mark.parametrize("seed", [112, 464])
def test_two_that_ask_each_other_for_entries_to_come_wait_for_them(seed: int) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [189])
def test_a_range_does_not_wait_for_a_payload_that_never_comes(seed: int) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [336])
def test_what_is_answered_late_is_not_withdrawn_for_ever(seed: int) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [1157])
def test_logs_that_got_no_place_wait_for_one_without_the_logs_that_are_in_step(seed: int) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [621])
def test_a_range_dropped_for_a_request_that_is_confirmed_already_is_proposed_again(
    seed: int,
) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [1033])
def test_a_live_log_is_served_as_far_as_it_was_offered_whatever_else_is_not(seed: int) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [2370])
def test_who_takes_an_offer_back_as_its_payload_is_not_there_owes_it_no_more(seed: int) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [2406])
def test_a_log_that_was_turned_away_makes_way_for_one_with_news(seed: int) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [3330])
def test_what_the_peer_passes_over_in_its_own_range_is_fetched_all_the_same(seed: int) -> None:
    go(seed)


@pytest.mark.parametrize("seed", [730])
def test_a_range_at_rest_goes_on_when_the_peer_passes_over_its_first_entry(seed: int) -> None:
    go(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [132, 165, 251, 373, 374, 525, 1053, 1454, 1677])
def test_worlds_in_which_something_was_wrong_once(seed: int) -> None:
    """A probe lost with its place, payloads taken for an offer, ranges that roused each other."""
    go(seed)


@pytest.mark.parametrize("seed", [3781])
def test_a_payload_that_neither_has_whole_is_not_asked_for_again_and_again(seed: int) -> None:
    go(seed)
