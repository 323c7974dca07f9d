"""Chance as an input: a machine's draws are recorded, and repeated in a replay."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import count

from culm.capture.errors import CaptureError, ErrorCode
from culm.capture.records import Step
from culm.capture.values import from_value, to_value

DRAW = "~"
"""The first character of the names of steps that are draws; each precedes the call that made it."""

_DRAWS_MAX = 1 << 16


class Chance(random.Random):
    """All of a generator's methods draw by `random` and `getrandbits`."""

    def random(self) -> float:
        return float(self._draw("random"))

    def getrandbits(self, k: int, /) -> int:
        return int(self._draw("getrandbits", k))

    def _draw(self, name: str, *arguments: int) -> float:
        raise NotImplementedError


class RecordedChance(Chance):
    """Draws from another generator, and tells of each draw."""

    def __init__(self, rng: random.Random, put: Callable[[Step], None]) -> None:
        super().__init__(0)
        self._rng, self._put = rng, put

    def _draw(self, name: str, *arguments: int) -> float:
        drawn: float = getattr(self._rng, name)(*arguments)
        self._put(Step(0.0, 0, DRAW + name, list(arguments), {}, to_value(drawn)))
        return drawn


class ReplayedChance(Chance):
    """Repeats the recorded draws.  Any other draw gives numbers that never change."""

    def __init__(self) -> None:
        super().__init__(0)
        self._spare = count()  # no constant: drawing until it fits would never end
        self._recorded: deque[Step] = deque()
        self._unlike: tuple[Step | None, Step | None] | None = None

    def tell(self, step: Step) -> None:
        """A draw comes.  Raises `CaptureError` for one that no generator makes."""
        if not _is_draw(step):
            raise CaptureError(ErrorCode.BAD_RECORD, f"{step.name} cannot draw that")
        if len(self._recorded) == _DRAWS_MAX:
            raise CaptureError(ErrorCode.BAD_RECORD, f"over {_DRAWS_MAX} draws in one call")
        self._recorded.append(step)

    def settle(self) -> tuple[Step | None, Step | None] | None:
        """After a call: the first draw that was not as recorded, and the one made instead."""
        unlike, self._unlike = self._unlike, None
        if unlike is None and self._recorded:
            unlike = self._recorded[0], None
        self._recorded.clear()
        return unlike

    def _draw(self, name: str, *arguments: int) -> float:
        recorded = self._recorded.popleft() if self._recorded else None
        called = DRAW + name, list(arguments)
        if recorded is not None and (recorded.name, recorded.arguments) == called:
            drawn: float = from_value(recorded.result, _no_object)
            return drawn
        spare = next(self._spare)
        drawn = spare % (1 << arguments[0]) if arguments else spare % 1000 / 1000
        if self._unlike is None:
            self._unlike = recorded, Step(0.0, 0, *called, {}, to_value(drawn))
        return drawn


def _is_draw(step: Step) -> bool:
    match step.name, step.arguments, from_value(step.result, _no_object):
        case "~random", [], float(drawn):
            return 0 <= drawn < 1
        case "~getrandbits", [int(size)], int(drawn):
            return drawn >= 0 and drawn.bit_length() <= size
    return False


def _no_object(number: int) -> object:
    raise CaptureError(ErrorCode.BAD_RECORD, "a draw of an object")
