"""Replay: the recorded inputs, given to a new machine; the first output that differs is told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from culm.capture.chance import DRAW, ReplayedChance
from culm.capture.errors import CaptureError, ErrorCode
from culm.capture.records import Capture, Header, Step
from culm.capture.redaction import Redact, is_secret
from culm.capture.tape import MADE, Tape, is_stand_in
from culm.capture.values import class_of, from_value
from culm.machine import DatagramMachine, LinkedMachine, StreamBase, StreamMachine
from culm.machines import UnknownMachineError, lookup, names

__all__ = ["Difference", "Replay", "machine_of", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The step, counted from 1, at which a replay is unlike its capture.

    found: ``None`` for a deadline that has not changed although it had, and for a draw that was not
        made.
    """

    number: int
    recorded: Step
    found: Step | None


Build = Callable[[Header, random.Random], Any]
"""Makes a machine from a capture's header and the chance that it had (`Recorder.chance`)."""


def machine_of(header: Header, rng: random.Random) -> Any:
    """A new machine, built as the capture says; its chance is of the seed in its settings.

    Raises `CaptureError`: ``NO_MACHINE``, or ``OPAQUE`` if a secret setting was left out.
    """
    if not header.machine:
        raise CaptureError(ErrorCode.NO_MACHINE, "the capture names no machine")
    for name, value in header.config.items():
        if is_secret(value):
            raise CaptureError(ErrorCode.OPAQUE, f"the setting {name!a} was left out")
    try:
        return lookup(header.machine).make(header.config)
    except UnknownMachineError as error:
        raise CaptureError(ErrorCode.NO_MACHINE, str(error)) from None
    except Exception as error:  # whatever a machine raises for made-up settings
        raise CaptureError(ErrorCode.NO_MACHINE, f"with wrong settings: {error}") from None


def replay(capture: Capture, build: Build = machine_of) -> Difference | None:
    """Give the machine the recorded inputs; the first difference, or ``None``.

    build: makes the machine, if `culm.machines` does not know how.

    Raises `CaptureError`, also for a call that could not be written down whole.
    """
    player = Replay(capture.header, build)
    for step in capture:
        if (difference := player.do(step)) is not None:
            return difference
    _ = player.machine  # which there is without any step, too
    return None


class Replay:
    """A replay, step by step.  `machine` may be looked at after each."""

    _objects: dict[int, Any]  # handles by number; 0 is the machine

    def __init__(self, header: Header, build: Build = machine_of) -> None:
        self._header = header
        self._build = build
        self._begin()

    def _begin(self) -> None:
        self.number = 0
        self._tape = _Notes(redact=self._header.redacted)
        self._chance = ReplayedChance()
        self._objects = {}

    @property
    def machine(self) -> Any:
        """The machine, which is built when it is first called, since that may draw already."""
        if 0 not in self._objects:
            self._built = self._build(self._header, self._chance)
            self._objects[0] = self._tape.stand_in(self._built)
        return self._built

    def do(self, step: Step) -> Difference | None:
        """Repeat a step, and compare.  Raises `CaptureError`."""
        self.number += 1
        if step.name.startswith(DRAW):
            self._chance.tell(step)
            return None
        makes = step.name.startswith(MADE)
        if makes and not self._objects and self._build is not machine_of:
            self._make_otherwise()
            return None
        call = self._maker(step.name[len(MADE) :]) if makes else self._method(step)
        arguments = from_value(step.arguments, self._object)
        keywords = from_value(step.keywords, self._object)
        self._tape.take()
        try:
            result = call(*arguments, **keywords)
        except Exception as error:  # whatever the machine has raised is in the notes
            if not self._tape.made:
                raise CaptureError(ErrorCode.BAD_RECORD, f"step {self.number}: {error}") from None
            result = None
        self._keep(step.result, result)
        if makes and step.error is None:
            self._built = getattr(self._objects.get(0), "machine_behind", None)
        found = self._tape.take()
        if (drawn := self._chance.settle()) is not None:
            return Difference(number=self.number, recorded=drawn[0] or step, found=drawn[1])
        if found is not None and replace(found, after=step.after) == step:
            return None
        return Difference(number=self.number, recorded=step, found=found)

    def go_back_to(self, number: int, steps: Iterable[Step]) -> None:
        """Begin anew and do the first `number` of the steps, without comparing."""
        self._begin()
        for _, step in zip(range(number), steps, strict=False):
            self.do(step)

    def _make_otherwise(self) -> None:
        """Make the machine as the replay's user says, who may know the omitted parts."""
        _ = self.machine
        self._chance.settle()

    def _maker(self, name: str) -> Callable[..., Any]:
        """The maker of objects of that class: a machine, or an argument of its calls."""
        try:
            kind = class_of(name)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            raise CaptureError(ErrorCode.BAD_VALUE, f"{name}: {error}") from None
        if not set(kind.__mro__) & _MACHINES and kind not in self._helpers():
            raise CaptureError(ErrorCode.BAD_VALUE, f"{name} is no machine")
        return partial(self._tape.make, kind)

    def _helpers(self) -> Iterator[type]:
        """The helper classes of the machine that the capture names, or of all if it names none."""
        try:
            for name in [self._header.machine] if self._header.machine else names():
                yield from lookup(name).helpers
        except UnknownMachineError:
            return

    def _method(self, step: Step) -> Callable[..., Any]:
        _ = self.machine
        target, name = self._object(step.on), step.name
        if name.startswith("_"):  # no recorder writes it, and from there everything can be reached
            raise CaptureError(ErrorCode.BAD_RECORD, f"step {self.number}: {name!a} is private")

        def call(*arguments: Any, **keywords: Any) -> Any:
            if name.startswith("!"):
                verb = lookup(self._header.machine).verbs[name[1:]]
                return self._tape.verb(name[1:], verb, target, keywords)
            part = getattr(target, name)
            return part(*arguments, **keywords) if callable(part) else part

        return call

    def _object(self, number: int) -> Any:
        if number == -1:
            return self._chance
        try:
            found = self._objects[number]
            return self._tape.handle(found, number) if number else found
        except KeyError:
            raise CaptureError(
                ErrorCode.BAD_RECORD, f"step {self.number}: nothing has the number {number}"
            ) from None

    def _keep(self, recorded: Any, result: Any) -> None:
        """Remember the handles of a result by their recorded numbers; nothing else is a target."""
        if is_stand_in(result):
            number = recorded.get("number") if isinstance(recorded, dict) else None
            if isinstance(number, int):
                # A stand-in for it is made when it is called: there may be very many handles.
                self._objects[number] = result.machine_behind if number else result
            return
        parts = recorded.get("items", []) if isinstance(recorded, dict) else recorded
        if isinstance(parts, list) and isinstance(result, (list, tuple)):
            for part, each in zip(parts, result, strict=False):
                self._keep(part, each)


_MACHINES = {StreamBase, StreamMachine, DatagramMachine, LinkedMachine}


class _Notes(Tape):
    """Keeps the step that was made last."""

    def __init__(self, *, redact: Set[Redact]) -> None:
        super().__init__(redact=redact)
        self.made: Step | None = None

    def put(self, step: Step) -> None:
        self.made = step

    def take(self) -> Step | None:
        """That step, once."""
        made, self.made = self.made, None
        return made
