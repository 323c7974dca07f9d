"""What something costs, in lines of culm that are run: the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import culm

_HOME = str(Path(culm.__file__).parent)


def lines(act: Callable[[], object]) -> int:
    """How many lines of culm `act` runs."""
    count = 0

    def inside(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return inside

    def outside(frame: FrameType, event: str, arg: Any) -> Any:
        return inside if frame.f_code.co_filename.startswith(_HOME) else None

    before = sys.gettrace()
    sys.settrace(outside)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def grows_linearly(cost: Callable[[int], int], sizes: tuple[int, ...]) -> bool:
    """Whether twice the size costs at most about twice as much; each size is twice the last."""
    costs = [cost(size) for size in sizes]
    return all(more <= 2.3 * less for less, more in pairwise(costs))
