"""The abstract messages of a session, which a protocol encodes.

A round is a `LowerBound`, then ranges that follow each other once around the ring, and a
`Terminal`. Each range reaches from the end of the one before to its own upper bound, the last one
to the lower bound of the round.  Instead of a round, a side without any item sends `EmptySet`.

Source: p2panda's replication, "Range-based set reconciliation"; the messages of
earthstar-project/range-reconcile.
"""

from __future__ import annotations

from dataclasses import dataclass

from culm.reconcile.monoids import Fingerprint


@dataclass(frozen=True, slots=True)
class EmptySet:
    """The sender has no item; with `can_respond`, the receiver is to send all of its own."""

    can_respond: bool


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A round starts here."""

    bound: bytes


@dataclass(frozen=True, slots=True)
class Payload:
    """One of the sender's items; a range has several, and the last one carries its upper bound.

    With `can_respond` they are all the sender's items in it, and the receiver is to send its other
    ones.
    """

    item: bytes
    upper_bound: bytes | None = None
    can_respond: bool = False


@dataclass(frozen=True, slots=True)
class EmptyPayload:
    """The sender has no item in the range; the receiver is to send all of its own there."""

    upper_bound: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """The range is finished."""

    upper_bound: bytes


@dataclass(frozen=True, slots=True)
class RangeFingerprint:
    """The fingerprint of the sender's items in the range, its state cut to a digest."""

    fingerprint: Fingerprint
    upper_bound: bytes


@dataclass(frozen=True, slots=True)
class Terminal:
    """The round is over; it is the receiver's turn."""


Message = EmptySet | LowerBound | Payload | EmptyPayload | Done | RangeFingerprint | Terminal
