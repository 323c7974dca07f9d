from __future__ import annotations

from collections import deque
from collections.abc import Container
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.bamboo.anchors import Anchors
from culm.bamboo.links import (
    SEQNUM_MAX,
    certificate_gaps,
    certificate_pool,
    has_lipmaalink,
    lipmaa,
    lower_pool,
    open_targets,
    pool_top,
    shortest_path,
    upper_pool,
)

ALL = range(1, 1094)  # up to u(7)
TOPS = [(3**k - 1) // 2 for k in range(1, 42)]
numbers = st.one_of(
    st.integers(1, 5000),
    st.integers(1, SEQNUM_MAX),
    st.integers(SEQNUM_MAX - 5000, SEQNUM_MAX),
    st.builds(
        lambda top, near: min(max(1, top + near), SEQNUM_MAX),
        st.sampled_from(TOPS),
        st.integers(-5, 5),
    ),
)


@cache
def f(n: int) -> int:
    """The specification's formula, word for word."""
    k = g(n)
    return n - 3 ** (k - 1) if n == (3**k - 1) // 2 else n - (3**k - 1) // 2


@cache
def g(n: int) -> int:
    k = next(k for k in range(50) if (3**k - 1) // 2 >= n)
    return k if n == (3**k - 1) // 2 else g(n - (3 ** (k - 1) - 1) // 2)


@cache
def targets(n: int) -> frozenset[int]:
    return frozenset(target for target in (n - 1, n and f(n)) if target > 0)


def walk(start: int, goal: int, present: Container[int]) -> list[int] | None:
    """Breadth-first search along the links within `present`."""
    came_from = {start: start}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        if here == goal:
            path = [here]
            while path[-1] != start:
                path.append(came_from[path[-1]])
            return path[::-1]
        for target in targets(here):
            if target >= goal and target in present and target not in came_from:
                came_from[target] = here
                queue.append(target)
    return None


def test_the_first_lipmaa_numbers_are_those_of_the_specification() -> None:
    assert [lipmaa(n) for n in range(1, 14)] == [0, 1, 2, 1, 4, 5, 6, 4, 8, 9, 10, 8, 4]
    assert [lipmaa(n) for n in (39, 40, 41, 1092, 1093)] == [26, 13, 40, 728, 364]


@given(numbers)
def test_lipmaa_is_the_formula_of_the_specification(n: int) -> None:
    assert lipmaa(n) == (f(n) if n > 1 else 0)


def test_lipmaa_is_the_formula_throughout_and_beyond_the_table() -> None:
    for n in (*range(2, 3500), *range(29_000, 30_500), *range(88_000, 89_000)):
        assert lipmaa(n) == f(n)


@given(numbers)
def test_a_lipmaalink_is_there_unless_it_would_duplicate_the_backlink(n: int) -> None:
    assert has_lipmaalink(n) == (n > 1 and f(n) != n - 1)


@given(numbers, numbers)
def test_links_do_not_cross(m: int, n: int) -> None:
    n, m = sorted((m, n))
    assert lipmaa(m) <= lipmaa(n) or lipmaa(m) >= n or m == n


def test_the_shortest_path_is_that_of_breadth_first_search() -> None:
    for start in (*range(1, 130), 363, 364, 365, 700, 1092, 1093):
        for goal in (*range(1, min(start, 45) + 1), start):
            found = walk(start, goal, ALL)
            assert found is not None
            path = shortest_path(start, goal)
            assert len(path) == len(found)
            assert path[0] == start
            assert path[-1] == goal
            assert all(older in targets(newer) for newer, older in pairwise(path))


def test_every_path_goes_through_every_entry_of_the_shortest_one() -> None:
    for start in range(2, 122):
        for goal in range(1, start, 3):
            for removed in shortest_path(start, goal)[1:-1]:
                assert walk(start, goal, set(range(goal, start)) - {removed}) is None


@given(numbers, numbers)
def test_paths_are_logarithmic(start: int, goal: int) -> None:
    goal, start = sorted((start, goal))
    path = shortest_path(start, goal)
    assert path == sorted(set(path), reverse=True)
    assert len(path) <= 6 * (start - goal + 1).bit_length()


@pytest.mark.parametrize(("from_", "to"), [(3, 4), (3, 0), (0, 0), (5, -1)])
def test_no_path_leads_upwards_or_to_entry_zero(from_: int, to: int) -> None:
    with pytest.raises(ValueError, match="no links lead"):
        shortest_path(from_, to)


def test_the_pool_of_23_is_that_of_the_drawing_in_the_specification() -> None:
    assert lower_pool(23) == [1, 4, 13, 17, 21, 22, 23]
    assert upper_pool(23) == [24, 25, 26, 39, 40]
    assert certificate_pool(23) == lower_pool(23) + upper_pool(23)
    assert pool_top(23) == 40


def test_the_pool_is_the_union_of_the_shortest_paths() -> None:
    for x in range(1, 400):
        z = next(z for z in TOPS if z >= x)
        assert pool_top(x) == z
        up, down = walk(z, x, ALL), walk(x, 1, ALL)
        assert up is not None
        assert down is not None
        assert lower_pool(x) == down[::-1]
        assert upper_pool(x) == up[:-1][::-1]
        assert certificate_pool(x) == sorted({*up, *down})


def test_two_pools_contain_a_path_from_the_newer_through_the_older_to_the_first() -> None:
    pools = {x: set(certificate_pool(x)) for x in range(1, 125)}
    for y, pool_of_y in pools.items():
        for x in range(1, y):
            union = pools[x] | pool_of_y
            assert walk(y, x, union) is not None
            assert walk(x, 1, union) is not None
            assert not certificate_gaps([x, y], union)


@given(st.lists(numbers, min_size=1, max_size=5))
def test_pools_of_any_set_contain_a_path_through_all_of_it(wanted: list[int]) -> None:
    present = {n for x in wanted for n in certificate_pool(x)}
    assert certificate_gaps(wanted, present) == []


def test_pools_end_where_sequence_numbers_end() -> None:
    last = TOPS[-1]
    assert last < SEQNUM_MAX == 2**64 - 1
    assert pool_top(last) == last
    assert pool_top(last + 1) == 3 * last + 1 > SEQNUM_MAX
    assert certificate_pool(SEQNUM_MAX) == lower_pool(SEQNUM_MAX)
    beyond = last + 2
    assert upper_pool(beyond)
    assert max(upper_pool(beyond)) <= SEQNUM_MAX
    assert certificate_gaps([beyond, SEQNUM_MAX], {*certificate_pool(beyond)}) == [
        n for n in shortest_path(SEQNUM_MAX, beyond)[::-1] if n not in certificate_pool(beyond)
    ]


@given(st.sets(st.integers(1, 60), max_size=5), st.sets(st.integers(1, 60)))
def test_certificate_gaps_are_what_is_missing_on_the_path(
    wanted: set[int], present: set[int]
) -> None:
    gaps = certificate_gaps(wanted, present)
    stops = sorted({1, *wanted})
    for absent in gaps:
        assert absent not in present
        almost = set(ALL) - {absent}
        assert (wanted | {1}) - almost or any(
            walk(newer, older, almost) is None for older, newer in pairwise(stops)
        )
    if wanted:
        filled = present | set(gaps)
        assert {1, *wanted} <= filled
        assert all(walk(newer, older, filled) for older, newer in pairwise(stops))
    else:
        assert gaps == []


def test_open_targets_are_all_that_later_entries_can_link_to() -> None:
    linked = [targets(n) for n in range(3 * 1093 + 2)]
    for head in (*range(130), *range(355, 375), *range(1085, 1093)):
        later = {target for each in linked[head + 1 :] for target in each}
        assert open_targets(head) == sorted(target for target in later if target <= head)


@given(numbers)
def test_open_targets_are_logarithmic(head: int) -> None:
    found = open_targets(head)
    assert found[-1] == head
    assert len(found) <= 1 + len([top for top in TOPS if top <= head]) <= 42
    assert found == sorted(set(found))


def test_anchors_of_a_whole_log_are_logarithmic_and_cover_the_open_targets() -> None:
    anchors: Anchors[int] = Anchors()
    for n in range(1, 30_000):
        for target in targets(n):
            assert anchors.get(target) == target
        anchors.add(n, n)
        levels = len([top for top in TOPS[:12] if top <= n])
        assert len(anchors) <= 3 * levels
    assert set(open_targets(29_999)) <= anchors.snapshot().keys()
    assert len(anchors) < 30


def test_anchors_go_on_from_the_open_targets_of_any_position() -> None:
    for start in range(1, 130):
        anchors = Anchors(start, {n: n for n in open_targets(start)})
        anchors.require_complete()
        for n in range(start + 1, 400):
            assert all(anchors.get(target) == target for target in targets(n))
            anchors.add(n, n)


def test_anchors_know_what_they_lack() -> None:
    for missing in open_targets(77):
        known = {n: n for n in open_targets(77) if n != missing}
        with pytest.raises(ValueError, match=rf"\[{missing}\]"):
            Anchors(77, known).require_complete()


@given(st.sets(st.integers(1, 3000), min_size=1, max_size=200))
def test_anchors_of_a_subset_keep_what_can_be_linked_to(subset: set[int]) -> None:
    anchors: Anchors[int] = Anchors()
    added: set[int] = set()
    for n in sorted(subset):
        anchors.add(n, n)
        added.add(n)
        assert anchors.position == n
        assert set(open_targets(n)) & added <= anchors.snapshot().keys()
        assert anchors.snapshot().keys() <= added
        assert len(anchors) <= 3 * 8


def test_anchors_stay_few_even_if_no_path_is_there() -> None:
    """With entries from inside blocks only, no later one makes the others unreachable."""
    anchors: Anchors[int] = Anchors()
    for n in range(2, 10_000, 4):
        anchors.add(n, n)
        assert anchors.snapshot().keys() <= {n, *open_targets(n - 1)}
    assert len(anchors) <= 3
