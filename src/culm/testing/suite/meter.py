"""The work of a machine in steps, which are the same in every run, not in seconds.

A step is a line of Python executed by the machine or by functions that it calls, or 16 bytes (or
items) that one of their functions returns.  The latter reveals the output of kernels and
of the standard library, and bytes that are copied again and again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import culm.kernels
import culm.machines
import culm.testing
from culm.arguments import is_tuple

T = TypeVar("T")

_RETURNED_PER_STEP = 16

# The kernels' two twins work differently with the same results; drivers are no machines.
_NOT_COUNTED = tuple(
    str(Path(module.__path__[0]).resolve())
    for module in (culm.kernels, culm.machines, culm.testing)
)
_SIZED = frozenset({bytes, bytearray, memoryview, list, tuple, set, dict, str})
_TUPLE_SIZE_MAX = 4


class EndlessWorkError(BaseException):
    """Work exceeded the allowed steps and was stopped there; nothing must catch this."""


class Meter:
    """Counts the steps of functions called by `count`.

    allowed: steps at which the work is stopped, by an exception in the middle of it.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.allowed: float = float("inf")
        self._counts: dict[CodeType, bool] = {}

    def allow(self, steps: float) -> None:
        """Stop the work at `steps`, counted from the beginning."""
        self.allowed = steps

    def count(self, act: Callable[[], T]) -> T:
        """Do `act` and count its steps.  Raises `EndlessWorkError` from the middle of it."""
        return _traced_by(self._enter, act)

    def apart(self, function: Callable[..., T]) -> Callable[..., T]:
        """`function`, not counted while it runs, as it is not part of the machine."""
        return lambda *args: _traced_by(None, lambda: function(*args))

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        counts = self._counts.get(code)
        if counts is None:
            counts = not code.co_filename.startswith(_NOT_COUNTED)
            self._counts[code] = counts
        return self._step if counts else None

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.steps += 1
        elif event == "return" and type(arg) in _SIZED:
            self.steps += _size(arg) // _RETURNED_PER_STEP
        else:
            return self._step
        if self.steps > self.allowed:
            raise EndlessWorkError
        return self._step


def _size(returned: Any) -> int:
    size = len(returned)
    if is_tuple(returned) and size <= _TUPLE_SIZE_MAX:
        size += sum(len(part) for part in returned if type(part) in _SIZED)
    return size


def _traced_by(trace: Callable[..., Any] | None, act: Callable[[], T]) -> T:
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return act()
    finally:
        sys.settrace(before)
