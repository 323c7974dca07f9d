"""The estimate of the number of differing items, by hand."""

from __future__ import annotations

from math import log

import pytest

from culm.reconcile.estimate import Estimate


def noted(*differences: int, equal: int = 0) -> Estimate:
    """After ranges with these differences in count, and `equal` equal ones."""
    estimate = Estimate()
    for difference in differences:
        estimate.note(difference, False)
    for _ in range(equal):
        estimate.note(0, True)
    return estimate


def test_nothing_is_expected_where_nothing_differs() -> None:
    assert noted().load == 0
    assert noted(equal=5).load == 0
    assert noted(equal=5).expected == 1


def test_few_differences_are_told_by_the_share_of_unequal_ranges() -> None:
    assert noted(0, equal=1).load == pytest.approx(log(2))
    assert noted(1, 1, 1, equal=1).load == pytest.approx(log(4))


def test_many_are_told_by_the_variance_of_the_counts() -> None:
    assert noted(3, -3).load == 9
    assert noted(1, 5).load == 4
    assert noted(0, 0).load == 1.5
    # Four of five ranges are too many for a share.
    assert noted(4, -4, 4, -4, equal=1).load == pytest.approx(64 / 5)


def test_a_range_has_at_least_the_differences_that_its_counts_say() -> None:
    estimate = noted(3, -3)
    assert estimate.differences(20) == 20
    assert estimate.differences(2) == pytest.approx(9, rel=0.01)
    assert (noted(0, equal=50).differences(0), noted(1, equal=50).differences(1)) == (2, 3)
