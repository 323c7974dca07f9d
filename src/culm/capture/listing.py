"""The steps of a capture as the lines of a list: with number, time, and the effect they answer."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, Self

from culm.capture.chance import DRAW
from culm.capture.records import Step
from culm.capture.text import counted, is_idle, kind_of, line_of, plain_step, visible

_EFFECTS_MAX = 1 << 12  # that wait for an answer, and are remembered
_NUMBERS_MAX = 6  # of an effect
_DEPTH_MAX = 2
_NAME_MAX = 40  # characters
_DAYS_BEFORE = 719_468  # from the first of March of the year 0 to 1970
_DAYS_OF_ERA = 146_097  # 400 years


class StepKind(StrEnum):
    """The kinds of steps in the search for a fault."""

    INPUTS = "inputs"  # bytes, time and chance
    EVENTS = "events"
    EFFECTS = "effects"
    ANSWERS = "answers"
    CALLS = "calls"
    OUTPUT = "output"  # bytes and deadlines

    @classmethod
    def of(cls, step: Step) -> StepKind:
        if step.name.endswith("_to_send"):
            return cls.OUTPUT
        return cls.INPUTS if step.name.startswith(DRAW) else _KINDS.get(kind_of(step), cls.CALLS)

    @classmethod
    def read(cls, text: str) -> frozenset[StepKind]:
        """Several, with commas between them.  Raises `ArgumentTypeError`."""
        try:
            return frozenset(map(cls, text.split(",")))
        except ValueError as error:
            raise ArgumentTypeError(f"{error}: {', '.join(cls)}") from None


_KINDS = {
    "received": StepKind.INPUTS,
    "time": StepKind.INPUTS,
    "event": StepKind.EVENTS,
    "effect": StepKind.EFFECTS,
    "answer": StepKind.ANSWERS,
    "deadline": StepKind.OUTPUT,
}


class Mark(NamedTuple):
    """A place in a capture: the number of a step, or a time in seconds since it began."""

    value: float
    is_time: bool

    @classmethod
    def read(cls, text: str) -> Self:
        """``12`` or ``12.5s``.  Raises `ArgumentTypeError`."""
        if re.fullmatch(r"[0-9]{1,18}|[0-9]{1,18}(\.[0-9]*)?s", text) is None:
            raise ArgumentTypeError(f"neither a step, as 12, nor a time, as 12.5s: {text!r}")
        return cls(float(text.removesuffix("s")), text.endswith("s"))

    def is_after(self, step: Listed) -> bool:
        return self.value > self._place_of(step)

    def is_before(self, step: Listed) -> bool:
        return self.value < self._place_of(step)

    def _place_of(self, step: Listed) -> float:
        return step.at if self.is_time else step.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A step in a list.

    at: seconds since the first step.
    time: the wall clock's, if that is asked for.
    answers: the effect, in words; empty if the step answers none.
    """

    number: int
    at: float
    time: str | None
    step: Step
    answers: str

    @property
    def kind(self) -> StepKind:
        return StepKind.of(self.step)

    @property
    def is_idle(self) -> bool:
        return is_idle(self.step)

    def line(self) -> str:
        time = f"{self.at:>12.6f}" if self.time is None else self.time
        answers = f"  answers {self.answers}" if self.answers else ""
        return f"{self.number:>7} {time}  {visible(line_of(self.step) + answers)}"

    def plain(self) -> dict[str, Any]:
        """The same for JSON, in full."""
        value: dict[str, Any] = {"number": self.number, "at": self.at}
        more = {"utc": self.time, "answers": self.answers}
        return {**value, **plain_step(self.step), **{k: v for k, v in more.items() if v}}


class Listing:
    """Numbers steps, in order, and remembers the effects that wait for their answers.

    began: the wall clock's time at the first step, for times shown by it.
    """

    def __init__(self, *, began: float | None = None) -> None:
        self._began = began
        self._number = 0
        self._micros = 0  # a sum of seconds would have errors
        self._waiting: dict[tuple[int, int], str] = {}

    def add(self, step: Step) -> Listed:
        self._number += 1
        self._micros += round(step.after * 1e6)
        at = self._micros / 1e6
        time = None if self._began is None else time_of(self._began + at)
        answers = self._effect_of(step)
        return Listed(number=self._number, at=at, time=time, step=step, answers=answers)

    def _effect_of(self, step: Step) -> str:
        kind = kind_of(step)
        if kind == "effect" and isinstance(step.result, dict):
            fields = step.result.get("fields")
            ticket = fields.get("ticket") if isinstance(fields, dict) else None
            if isinstance(ticket, int):
                words = f"{_effect_words(step.result)} of step {self._number}"
                self._waiting[step.on, ticket] = words
            if len(self._waiting) > _EFFECTS_MAX:
                del self._waiting[next(iter(self._waiting))]
        elif kind == "answer":
            ticket = step.arguments[0] if step.arguments else step.keywords.get("ticket")
            if isinstance(ticket, int):
                take = self._waiting.get if step.error is not None else self._waiting.pop
                return take((step.on, ticket), "")
        return ""


def time_of(seconds: float) -> str:
    """A time of the wall clock, in UTC, to the microsecond."""
    minutes, micros = divmod(round(seconds * 1e6), 60_000_000)
    days, minute = divmod(minutes, 24 * 60)
    year, month, day = _date_of(days)
    time = f"{minute // 60:02}:{minute % 60:02}:{micros / 1e6:09.6f}Z"
    return f"{year:04}-{month:02}-{day:02} {time}"


def _date_of(days: int) -> tuple[int, int, int]:
    """Year, month and day, that number of days after the first of 1970.

    Years begin in March here, so that the day of a leap year is the last of its year.
    """
    era, day = divmod(days + _DAYS_BEFORE, _DAYS_OF_ERA)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    return 400 * era + year + month // 10, (month + 2) % 12 + 1, day + 1


def _effect_words(effect: dict[str, Any]) -> str:
    """An effect by its name and the first of its numbers."""
    numbers = islice(_numbers(effect, "", _DEPTH_MAX), _NUMBERS_MAX)
    return f"{str(effect.get('')).rpartition(':')[2][:_NAME_MAX]}({', '.join(numbers)})"


def _numbers(value: dict[str, Any], path: str, depth: int) -> Iterator[str]:
    fields = value.get("fields")
    for name, part in fields.items() if isinstance(fields, dict) else ():
        items = part.get("items") if isinstance(part, dict) else part
        if isinstance(part, (int, float)) and not isinstance(part, bool) and name != "ticket":
            yield f"{path}{str(name)[:_NAME_MAX]}={part}"
        elif isinstance(items, list):
            yield f"{path}{str(name)[:_NAME_MAX]}: {counted(items)}"
        elif isinstance(part, dict) and depth > 1:
            yield from _numbers(part, f"{path}{str(name)[:_NAME_MAX]}.", depth - 1)
