"""Rebuilding a whole entry from what metadata packets leave out."""

from __future__ import annotations

from typing import NamedTuple

from culm.bamboo.entry import Entry, decode, verify_signature
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.point2point.candidates import Possible
from culm.point2point.data_codec import Metadata
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.requests import RequestRecord
from culm.wire import varu64
from culm.wire.multihash import HashFamily

__all__ = ["HashMissing", "Rebuilt", "rebuild_one"]


class Rebuilt(NamedTuple):
    """An entry, and whether its author has signed it.

    linked: its links are those that the request knows.
    """

    entry: Entry
    signed: bool
    linked: bool


class HashMissing(Exception):
    """The hash of entry `seqnum` is needed, and the request does not tell it."""

    def __init__(self, seqnum: int) -> None:
        super().__init__(seqnum)
        self.seqnum = seqnum


def rebuild_one(
    record: RequestRecord, possible: Possible, metadata: Metadata, *, family: HashFamily
) -> Rebuilt:
    """Of the entries that may be due, rebuild the one for which it works.

    There is more than one candidate only after an adjustment of the range.  Raises
    `HashMissing`, or `Violation` if the sender should (not) have sent the backlink.
    """
    found: Rebuilt | None = None
    missing: HashMissing | None = None
    violation: Violation | None = None
    candidates = (cursor.piece.seqnum for cursor in possible.cursors if cursor.piece)
    for seqnum in dict.fromkeys(candidates):
        try:
            rebuilt = _rebuild(record, seqnum, metadata, family=family)
        except HashMissing as error:
            missing = missing or error
        except Violation as error:
            violation = violation or error
        else:
            if rebuilt.signed:
                return rebuilt
            found = found or rebuilt
    if missing is not None:
        raise missing
    if found is None:
        assert violation is not None
        raise violation
    return found


def _rebuild(
    record: RequestRecord, seqnum: int, metadata: Metadata, *, family: HashFamily
) -> Rebuilt:
    """Rebuild entry `seqnum`."""
    log, incoming = record.proposal.log, record.incoming
    distinct = has_lipmaalink(seqnum)
    if metadata.backlink is not None and not distinct:
        raise Violation(ErrorCode.BACKLINK_REDUNDANT, f"entry {seqnum} has one link")
    backlink = known_backlink = incoming.link(seqnum - 1)
    if distinct:
        backlink = _backlink(record, seqnum, metadata.backlink, known_backlink)
    elif seqnum > 1 and backlink is None:
        raise HashMissing(seqnum - 1)
    lipmaalink = b""
    if distinct:
        lipmaalink = incoming.link(lipmaa(seqnum)) or b""
        if not lipmaalink:
            raise HashMissing(lipmaa(seqnum))
    encoded = b"".join(
        (
            b"\1" if metadata.end_of_log else b"\0",
            log.author,
            varu64.encode(log.log_id),
            varu64.encode(seqnum),
            lipmaalink,
            (backlink or b"") if seqnum > 1 else b"",
            metadata.tail,
        )
    )
    entry = decode(encoded, family=family)
    linked = known_backlink is None or entry.backlink in (None, known_backlink)
    return Rebuilt(entry, verify_signature(entry), linked)


def _backlink(record: RequestRecord, seqnum: int, sent: bytes | None, known: bytes | None) -> bytes:
    """The backlink of an entry that has both links."""
    before = seqnum - 1
    received = before in record.incoming.metadata
    if sent is not None:
        # We may have transmitted the entry before while this packet was on its way, but
        # the sender knows what it has transmitted itself.
        if received:
            raise Violation(ErrorCode.BACKLINK_REDUNDANT, f"metadata {before} was sent before")
        return sent
    if not record.incoming.tells_metadata(before):
        raise Violation(ErrorCode.BACKLINK_MISSING, f"of entry {seqnum}")
    if known is None:
        raise HashMissing(before)
    return known
