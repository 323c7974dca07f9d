"""Forks: two entries where a log may have one.

A fork is two different encodings with valid signatures under one author, log id and sequence
number, even if they differ in nothing but the signature.  An entry's hash covers its signature,
so a later backlink can name only one of the two, and peers that hold different ones can never
agree on later entries.  It is also safe to blame the
author for it: Ed25519 signing is deterministic, and a signature cannot be reshaped into
another valid one without the key, because scalars at or above the group order are
refused (see `culm.bamboo.entry.verify_signature`).  Entries that are equal byte for byte
are one entry.
"""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_type
from culm.bamboo.entry import Entry, LogKey, decode_prefix, verify_signature
from culm.bamboo.links import lipmaa
from culm.buffer import Buffer
from culm.wire.errors import DecodeError, WireErrorCode
from culm.wire.multihash import HashFamily


def same_place(first: Entry, second: Entry) -> bool:
    """Whether both claim the same sequence number of the same log."""
    return (
        first.seqnum == second.seqnum
        and first.log_id == second.log_id
        and first.author == second.author
        and first.family is second.family
    )


def find_fork(first: Entry, second: Entry) -> ForkProof | None:
    """The proof that these two fork their log, if they do; checks both signatures."""
    if not same_place(first, second) or first.encode() == second.encode():
        return None
    proof = ForkProof(first, second)
    return proof if proof.verify() else None


@dataclass(frozen=True, slots=True)
class ForkProof:
    """Two different entries at one place of a log; a proof only if `verify` says so.

    The one with the lesser encoding becomes `first`, so that equal proofs compare equal
    whichever entry was found earlier.  Raises `ValueError` for entries of different
    places or for one entry twice.
    """

    first: Entry
    second: Entry

    def __post_init__(self) -> None:
        check_type("first", self.first, Entry)
        check_type("second", self.second, Entry)
        if not same_place(self.first, self.second):
            raise ValueError("the entries have different places")
        order = sorted((self.first, self.second), key=Entry.encode)
        if order[0].encode() == order[1].encode():
            raise ValueError("the entries are one entry")
        object.__setattr__(self, "first", order[0])
        object.__setattr__(self, "second", order[1])

    @property
    def log(self) -> LogKey:
        return self.first.log

    @property
    def links(self) -> list[tuple[int, bytes]]:
        """The links of both entries: the sequence number of each target, and its hash."""
        before, skipped = self.seqnum - 1, lipmaa(self.seqnum)
        return [
            (seqnum, link)
            for entry in (self.first, self.second)
            for seqnum, link in ((before, entry.backlink), (skipped, entry.lipmaalink))
            if link is not None
        ]

    @property
    def seqnum(self) -> int:
        """The log is invalid from this entry on."""
        return self.first.seqnum

    def verify(self) -> bool:
        """Whether the author signed both entries."""
        return verify_signature(self.first) and verify_signature(self.second)

    def encode(self) -> bytes:
        """Both encodings, one after the other."""
        return self.first.encode() + self.second.encode()

    @staticmethod
    def decode_prefix(
        data: Buffer, offset: int = 0, *, family: HashFamily
    ) -> tuple[ForkProof, int]:
        """Decode the two entries that start at `offset`; also return the index just after them.

        Raises as `culm.bamboo.entry.decode_prefix` does, and `DecodeError` with
        ``BAD_VALUE`` for entries that cannot prove a fork.
        """
        first, middle = decode_prefix(data, offset, family=family)
        second, end = decode_prefix(data, middle, family=family)
        try:
            return ForkProof(first, second), end
        except ValueError as error:
            raise DecodeError(WireErrorCode.BAD_VALUE, middle, str(error)) from None
