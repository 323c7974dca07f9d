"""What two sessions say to each other: abstract messages, which a protocol encodes.

A round is a `LowerBound`, then ranges that follow each other once around the ring, each from
where the one before ends up to its own upper bound, the last one up to the lower bound of the
round, and a `Terminal`.  Instead of a round, a side without any item says `EmptySet`.

Source: p2panda's replication, "Range-based set reconciliation"; the messages of
earthstar-project/range-reconcile.
"""

from __future__ import annotations

from dataclasses import dataclass

from culm.reconcile.monoids import Fingerprint

__all__ = [
    "Done",
    "EmptyPayload",
    "EmptySet",
    "LowerBound",
    "Message",
    "Payload",
    "RangeFingerprint",
    "Terminal",
]


@dataclass(frozen=True, slots=True)
class EmptySet:
    """We have nothing; with `can_respond`, send all you have."""

    can_respond: bool


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A round starts here."""

    bound: bytes


@dataclass(frozen=True, slots=True)
class Payload:
    """One of our items; several stand for a range, and the last one has its upper bound.

    With `can_respond` they are all we have in it, and you are to send what you have besides.
    """

    item: bytes
    upper_bound: bytes | None = None
    can_respond: bool = False


@dataclass(frozen=True, slots=True)
class EmptyPayload:
    """We have nothing in the range: send all you have."""

    upper_bound: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to be said of the range."""

    upper_bound: bytes


@dataclass(frozen=True, slots=True)
class RangeFingerprint:
    """The fingerprint of what we have in the range, its state being cut to a digest."""

    fingerprint: Fingerprint
    upper_bound: bytes


@dataclass(frozen=True, slots=True)
class Terminal:
    """The round is over; it is your turn."""


Message = EmptySet | LowerBound | Payload | EmptyPayload | Done | RangeFingerprint | Terminal
