"""A faulty network for datagrams: loss, duplication, reordering, delay, partitions.

All randomness comes from one seed.  Every direction of every link has its own random numbers,
and each datagram takes the same number of draws from them, so that a change in one place
does not affect the others.  An exception that leaves the network's
``with`` block, or a run of it, carries the seed as a note.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Self

from culm.machines.driver import EndlessError
from culm.testing.clock import Timetable, VirtualClock

Address = Hashable
Deliver = Callable[[Any, Address], None]  # (payload, source)

STEPS_MAX = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The faults in one direction of one link.

    loss, duplication, reordering: probabilities from 0 to 1.
    delay_min, delay_max: seconds under way, evenly distributed between the two.
    hold_max: a reordered datagram is held back by up to that many seconds more.
    size_max: bytes; longer datagrams are lost.
    """

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay_min: float = 0.0
    delay_max: float = 0.0
    hold_max: float = 0.0
    size_max: int | None = None

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, not {getattr(self, name)}")
        if not 0 <= self.delay_min <= self.delay_max:
            raise ValueError("delays must be such that 0 <= delay_min <= delay_max")
        if self.hold_max < 0:
            raise ValueError("hold_max must not be negative")


@dataclass(frozen=True, slots=True)
class Statistics:
    """The fates of datagrams, counted; a duplicated one is sent once and delivered twice."""

    sent: int = 0
    sent_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    cut: int = 0  # lost to a partition
    oversize: int = 0
    unreachable: int = 0  # the address had no receiver when it arrived


class Network:
    """Carries payloads (bytes, or anything `size` can measure) between addresses.

    Addresses need a ``repr`` that is the same in every run.  `timetable` schedules
    changes: ``network.timetable.at(30.0, network.heal)``.
    """

    def __init__(
        self,
        *,
        seed: int,
        conditions: Conditions | None = None,
        size: Callable[[Any], int] = len,
    ) -> None:
        self.seed = seed
        self.timetable = Timetable()
        self._default = Conditions() if conditions is None else conditions
        self._conditions: dict[tuple[Address, Address], Conditions] = {}
        self._cuts: set[tuple[Address, Address]] = set()
        self._receivers: dict[Address, Deliver] = {}
        self._chance: dict[tuple[Address, Address], Callable[[], float]] = {}
        self._counts = defaultdict[tuple[Address, Address], Counter[str]](Counter)
        self._size = size

    @property
    def clock(self) -> VirtualClock:
        """The true time."""
        return self.timetable.clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        note = f"network seed: {self.seed}"
        if error is not None and note not in getattr(error, "__notes__", ()):
            error.add_note(note)

    def random(self, purpose: str) -> Random:
        """Random numbers for `purpose`, fixed by the seed: for nodes, disks, loads."""
        return Random(f"{self.seed} {purpose}")

    def attach(self, address: Address, deliver: Deliver) -> None:
        """Call ``deliver(payload, source)`` for each payload that arrives at `address`."""
        self._receivers[address] = deliver

    def detach(self, address: Address) -> None:
        """Make `address` unreachable from now on."""
        self._receivers.pop(address, None)

    def set_conditions(
        self,
        conditions: Conditions,
        *,
        source: Address | None = None,
        destination: Address | None = None,
    ) -> None:
        """Set the conditions from `source` to `destination`; if neither is given, everywhere.

        Setting them everywhere forgets those of single links, but no partition.
        """
        if source is None and destination is None:
            self._default = conditions
            self._conditions.clear()
        elif source is not None and destination is not None:
            self._conditions[source, destination] = conditions
        else:
            raise ValueError("conditions are of one direction of one link, or of all")

    def conditions(self, source: Address, destination: Address) -> Conditions:
        """The conditions from `source` to `destination`."""
        return self._conditions.get((source, destination), self._default)

    def cut(self, source: Address, destination: Address, *, one_way: bool = False) -> None:
        """Let nothing pass from `source` to `destination`, nor back unless `one_way`."""
        self._cuts.add((source, destination))
        if not one_way:
            self._cuts.add((destination, source))

    def partition(self, *groups: Iterable[Address], one_way: bool = False) -> None:
        """Cut every link between members of different groups, in addition to other cuts.

        With `one_way`, only towards groups later in the list.
        """
        parts = [list(group) for group in groups]
        for index, group in enumerate(parts):
            for other in parts[index + 1 :]:
                for source in group:
                    for destination in other:
                        self.cut(source, destination, one_way=one_way)

    def heal(self) -> None:
        """Undo all cuts and partitions."""
        self._cuts.clear()

    def is_cut(self, source: Address, destination: Address) -> bool:
        """Whether nothing passes from `source` to `destination`."""
        return (source, destination) in self._cuts

    def send(self, source: Address, destination: Address, payload: Any) -> None:
        """Put one datagram on its way; present conditions and cuts decide its fate."""
        conditions = self.conditions(source, destination)
        counted = self._counts[source, destination]
        luck = self._luck(source, destination)
        # Drawn in any case: the next datagram's luck must not depend on this one's fate.
        loses, doubles, holds = luck(), luck(), luck()
        delays = luck(), luck(), luck(), luck()
        size = self._size(payload)
        counted["sent"] += 1
        counted["sent_bytes"] += size
        if (source, destination) in self._cuts:
            counted["cut"] += 1
        elif conditions.size_max is not None and size > conditions.size_max:
            counted["oversize"] += 1
        elif loses < conditions.loss:
            counted["lost"] += 1
        else:
            copies = 2 if doubles < conditions.duplication else 1
            held = holds < conditions.reordering
            counted["duplicated"] += copies - 1
            counted["reordered"] += held
            for copy in range(copies):
                delay, hold = delays[2 * copy : 2 * copy + 2]
                seconds = conditions.delay_min
                seconds += delay * (conditions.delay_max - conditions.delay_min)
                seconds += hold * conditions.hold_max if held else 0.0
                self.timetable.after(
                    seconds, lambda: self._deliver(source, destination, payload, size)
                )

    def statistics(
        self, *, source: Address | None = None, destination: Address | None = None
    ) -> Statistics:
        """The sum over all links, or those from `source`, or to `destination`, or both."""
        total = Counter[str]()
        for (sender, receiver), counted in self._counts.items():
            if source in {None, sender} and destination in {None, receiver}:
                total.update(counted)
        return Statistics(**total)

    def step(self) -> bool:
        """Make the next scheduled call; false if there is none."""
        with self:
            return self.timetable.step()

    def run(self, until: float, *, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass up to `until`, in seconds, or until ``done()`` holds after some step.

        Returns whether it did; true without `done`.  Raises `EndlessError` if too much
        happens before `until`.
        """
        with self:
            if done is not None and done():
                return True
            for _ in range(STEPS_MAX):
                time = self.timetable.next_time()
                if time is None or time > until:
                    self.clock.advance_to(until)
                    return done is None
                self.timetable.step()
                if done is not None and done():
                    return True
            raise EndlessError(f"{STEPS_MAX} steps, and it is {self.clock.now} only")

    def _deliver(self, source: Address, destination: Address, payload: Any, size: int) -> None:
        counted = self._counts[source, destination]
        deliver = self._receivers.get(destination)
        if deliver is None:
            counted["unreachable"] += 1
            return
        counted["delivered"] += 1
        counted["delivered_bytes"] += size
        deliver(payload, source)

    def _luck(self, source: Address, destination: Address) -> Callable[[], float]:
        draw = self._chance.get((source, destination))
        if draw is None:
            draw = self.random(f"{source!r} -> {destination!r}").random
            self._chance[source, destination] = draw
        return draw
