"""A connection in memory between two stream machines.

A chunker cuts the bytes, either direction may be slow, held up or closed, and
time passes only when nothing else is left to do.  All randomness comes from the
`random.Random` objects that are passed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Unpack

from culm.machines import Responder, Verb
from culm.machines.driver import Driver, WrongKindError
from culm.machines.operations import Advance, Call, Eof, Operation
from culm.testing.pipe import Chunker, JoinedMachines, JoinOptions, Place, Sizer
from culm.testing.spec import Side


def whole(available: int) -> int:
    """Deliver all available bytes."""
    return available


def byte_by_byte(available: int) -> int:
    """Deliver one byte."""
    return 1


def random_chunks(rng: Random) -> Chunker:
    """Deliver chunks of all magnitudes, small ones as often as big ones."""
    return lambda available: min(available, rng.randint(1, 1 << rng.randrange(17)))


def random_sizes(rng: Random) -> Sizer:
    """Take pieces of all magnitudes."""
    return lambda: rng.randint(1, 1 << rng.randrange(17))


class PairOptions(JoinOptions, total=False):
    """Options of `MachinePair`."""

    latency: tuple[float, float]


class MachinePair(JoinedMachines):
    """Joins `left` and `right` and runs them until they are quiet.

    left, right: drivers of stream machines (`Driver.of`, or `MachinePair.of_machines`).
    latency: seconds that bytes take, from left to right and from right to left.
    options: see `JoinedMachines`.
    """

    def __init__(
        self,
        left: Driver,
        right: Driver,
        *,
        latency: tuple[float, float] = (0.0, 0.0),
        **options: Unpack[JoinOptions],
    ) -> None:
        super().__init__({"left": left, "right": right}, **options)
        self.left, self.right = self.ends["left"], self.ends["right"]
        for end in (self.left, self.right):
            if not end.driver.is_stream:
                raise WrongKindError(f"{type(end.machine).__name__} is not for streams")
        self._join((Place("left"), Place("right")), latency)
        self._start()

    @classmethod
    def of_machines(
        cls,
        left: Any,
        right: Any,
        *,
        respond: tuple[Responder | None, Responder | None] = (None, None),
        verbs: tuple[Mapping[str, Verb], Mapping[str, Verb]] = ({}, {}),
        **options: Unpack[PairOptions],
    ) -> MachinePair:
        """A link of two machines; `respond` completes the effects of either."""
        return cls(
            Driver(left, verbs=verbs[0], respond=respond[0]),
            Driver(right, verbs=verbs[1], respond=respond[1]),
            **options,
        )

    def do(self, side: Side, operation: Operation) -> None:
        """Do `operation` to `side`, without running on.

        `Eof` is that side's own half-close, and `Advance` moves the clock of both.
        """
        self._pipes[Place(side)].allow(self._size_max)
        match operation:
            case Eof():
                self.eof(side)
            case Advance(now):
                self.run(until=now)
            case _:
                self._do(side, operation)

    def call(self, side: Side, method: str, /, **args: object) -> None:
        """Call a verb of `side`, without running on; a refusal is noted in its turn."""
        self.do(side, Call(method, args))

    def eof(self, side: Side) -> None:
        """Half-close: `side` sends no more; the other learns it after the last byte."""
        self._pipes[Place(side)].end()

    def hold(self, side: Side) -> None:
        """Hold up the bytes that `side` sends until `release`."""
        self._pipes[Place(side)].hold()

    def release(self, side: Side) -> None:
        """Let the bytes that `side` sends go on."""
        self._pipes[Place(side)].hold(False)
