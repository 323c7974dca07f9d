"""The things that all parts of a node share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from culm.oxen.clock import Clock
from culm.oxen.errors import DropReason
from culm.oxen.limits import Limits, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The node's ID, its limits and times, its chance and its clock.

    dropped: how often something was dropped, by the reason.
    """

    me: bytes
    limits: Limits
    timing: Timing
    rng: Random
    clock: Clock
    dropped: Counter[DropReason] = field(default_factory=Counter[DropReason])
