"""Why an entry, a payload or a log does not verify."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from culm.bamboo.forks import ForkProof


class Reason(IntEnum):
    """The fault, as precisely as it can be known."""

    MALFORMED = 1
    """The bytes are not the encoding of an entry."""
    WRONG_LOG = 2
    """The entry is of another author or log id."""
    BAD_SIGNATURE = 3
    """The author did not sign these bytes; nothing else that they say counts."""
    OUT_OF_ORDER = 4
    """Entries have to come in ascending order, and a later one came before."""
    GAP = 5
    """No path of links leads to entry 1 through verified entries: a target is missing."""
    FORK = 6
    """Another validly signed entry of the same log has the same sequence number."""
    CONTRADICTED = 7
    """A verified later entry links to a different entry of this sequence number."""
    INVALID_LOG = 8
    """The log is invalid from this entry or an earlier one on: a fork or a size lie is known."""
    AFTER_END_OF_LOG = 9
    """The author ended the log before this entry."""
    EARLY_END_OF_LOG = 10
    """The entry ends the log, but a later entry is verified already."""
    WRONG_BACKLINK = 11
    """The backlink is not the hash of the entry before."""
    WRONG_LIPMAALINK = 12
    """The lipmaalink is not the hash of the entry to which it has to point."""
    PAYLOAD_SIZE = 13
    """The payload has neither the size nor the hash that the entry claims."""
    PAYLOAD_HASH = 14
    """The payload has the size that the entry claims, but not the hash."""
    PAYLOAD_SIZE_LIE = 15
    """The payload has the hash that the entry claims, but not the size: the author lied."""


AUTHOR_FAULTS = frozenset(
    {
        Reason.FORK,
        Reason.CONTRADICTED,
        Reason.AFTER_END_OF_LOG,
        Reason.EARLY_END_OF_LOG,
        Reason.WRONG_BACKLINK,
        Reason.WRONG_LIPMAALINK,
        Reason.PAYLOAD_SIZE_LIE,
    }
)
"""Reasons that only the author, by signing, can bring about.

The others blame the peer that passed the data on, or none: correct data may still come.
"""


class VerificationError(Exception):
    """Entry `seqnum` or its payload does not verify, for `reason`.

    `proof` holds the two entries of a fork, where both are at hand.  `seqnum` is ``None``
    if the bytes do not even tell it (``MALFORMED``).
    """

    def __init__(
        self, reason: Reason, seqnum: int | None, *, proof: ForkProof | None = None
    ) -> None:
        super().__init__(reason, seqnum)
        self.reason = reason
        self.seqnum = seqnum
        self.proof = proof

    def __str__(self) -> str:
        name = self.reason.name.lower().replace("_", " ")
        return name if self.seqnum is None else f"entry {self.seqnum}: {name}"
