"""Writes: one at a time, in order, as large as allowed."""

from __future__ import annotations

from random import Random

import pytest

from culm.replication import Writes


def writes(size_max: int = 10, count_max: int = 4) -> Writes[str]:
    return Writes(size_max=size_max, count_max=count_max)


def taken(queue: Writes[str]) -> list[str]:
    """The contents of each of the writes made now."""
    found: list[str] = []
    while (write := queue.next()) is not None:
        found.append("".join(write.items))
        queue.done()
    return found


def test_the_item_that_reaches_a_limit_is_the_last_of_its_write() -> None:
    queue = writes()
    assert [queue.add(item, 4) for item in "abcd"] == [True, False, False, True]
    assert taken(queue) == ["abc", "d"]
    for item in "abcde":
        queue.add(item, 0)
    assert taken(queue) == ["abcd", "e"]


def test_many_items_at_a_time_fill_one_write_after_the_other() -> None:
    queue = writes()
    queue.add("a", 3)
    assert queue.extend("bcdefgh", [3, 3, 3, 3, 0, 0, 0]) == 1
    assert taken(queue) == ["abcd", "efgh"]
    assert queue.extend("", []) == 0
    assert not queue
    assert queue.extend("abcdefghi", [0] * 9) == 3


@pytest.mark.parametrize(("size_max", "count_max"), [(0, 4), (10, 0), (0, 0)])
def test_one_item_always_fits(size_max: int, count_max: int) -> None:
    queue = writes(size_max, count_max)
    assert queue.extend("abc", [1, 0, 1]) == 3
    assert taken(queue) == ["a", "b", "c"]


def test_items_gather_while_a_write_is_under_way() -> None:
    queue = writes()
    queue.add("a", 1)
    first = queue.next()
    assert first is not None
    assert (first.items, first.size) == (["a"], 1)
    queue.add("b", 1)
    queue.add("c", 2)
    assert queue.next() is None
    queue.done()
    second = queue.next()
    assert second is not None
    assert (second.items, second.size) == (["b", "c"], 3)
    assert not queue


def test_nothing_goes_with_what_is_closed() -> None:
    queue = writes()
    queue.close()
    queue.add("a", 1)
    queue.close()
    assert queue.is_full
    queue.add("b", 1)
    assert not queue.is_full
    queue.add_last("c")
    queue.add("d", 1)
    assert taken(queue) == ["a", "bc", "d"]


def test_the_last_goes_with_the_item_before_it_however_full_that_write_is() -> None:
    queue = writes()
    queue.add("a", 10)
    assert queue.is_full
    queue.add_last("b")
    assert taken(queue) == ["ab"]


def test_what_is_put_back_goes_alone_and_before_all_others() -> None:
    queue = writes()
    queue.extend("ab", [1, 2])
    write = queue.next()
    assert write is not None
    queue.add("c", 1)
    queue.put_back("", 0)
    queue.put_back("b", 2)
    assert queue.first is None  # before the pending write has ended
    queue.done()
    assert queue.first == "b"
    again = queue.next()
    assert again is not None
    assert (again.items, again.size) == (["b"], 2)
    queue.done()
    assert queue.first == "c"
    assert taken(queue) == ["c"]
    assert queue.first is None


@pytest.mark.parametrize("seed", range(10))
def test_everything_comes_in_order_and_within_the_limits(seed: int) -> None:
    rng, queue = Random(seed), Writes[int](size_max=20, count_max=5)
    expected: list[int] = []
    found: list[int] = []
    sizes = [rng.randrange(12) for _ in range(200)]
    for number, size in enumerate(sizes):
        if number % 3:
            queue.add(number, size)
        else:
            queue.extend([number], [size])
        expected.append(number)
        if rng.random() < 0.3 and (write := queue.next()) is not None:
            assert len(write.items) <= 5
            assert sum(sizes[each] for each in write.items[:-1]) < 20
            assert write.size == sum(sizes[each] for each in write.items)
            found += write.items
            if rng.random() < 0.5:
                assert queue.next() is None
            queue.done()
    while (write := queue.next()) is not None:
        found += write.items
        queue.done()
    assert found == expected
