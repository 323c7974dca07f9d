"""A queue works like a deque, and takes next to no memory while it is empty."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.buffer import NOTHING, Queue
from culm.machines.memory import retained_size

ADDED = st.lists(st.integers(), max_size=3)
DEEDS = st.one_of(
    st.tuples(st.sampled_from(["append", "appendleft"]), st.integers()),
    st.tuples(st.just("extend"), ADDED),
    st.sampled_from([("popleft",), ("pop",), ("clear",)]),
)


@given(ADDED, st.lists(DEEDS))
def test_it_does_what_a_deque_does(first: list[int], deeds: list[tuple[str, object]]) -> None:
    queue, twin = Queue(first), deque(first)
    for verb, *arguments in deeds:
        if verb in ("pop", "popleft") and not twin:
            with pytest.raises(IndexError):
                getattr(queue, verb)()
            continue
        assert getattr(queue, verb)(*arguments) == getattr(twin, verb)(*arguments)
        assert list(queue) == list(twin)
        assert (len(queue), bool(queue)) == (len(twin), bool(twin))
        if twin:
            assert (queue[0], queue[-1]) == (twin[0], twin[-1])
    assert not NOTHING


def test_it_is_small_again_when_it_is_empty() -> None:
    def emptied() -> Queue[int]:
        queue = Queue([1])
        queue.popleft()
        queue.append(2)
        queue.pop()
        return queue

    shared = retained_size(NOTHING)
    assert retained_size([emptied() for _ in range(100)]) < shared + 100 * 64
