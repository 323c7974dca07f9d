"""Rebuilding a whole entry from what metadata packets leave out."""

from __future__ import annotations

from culm.bamboo.entry import Entry, decode, verify_signature
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.point2point.data_codec import Metadata
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.request import Request
from culm.wire import varu64
from culm.wire.multihash import HashFamily

__all__ = ["HashMissing", "rebuild", "rebuild_one"]


class HashMissing(Exception):
    """The hash of entry `seqnum` is needed, and the request does not tell it."""

    def __init__(self, seqnum: int) -> None:
        super().__init__(seqnum)
        self.seqnum = seqnum


def rebuild(
    request: Request, seqnum: int, metadata: Metadata, *, family: HashFamily
) -> tuple[Entry, bool, bool]:
    """Rebuild entry `seqnum` of a request.

    Also returns whether the author has signed it, and whether its links are those that
    this request knows.  Raises `HashMissing`, or `Violation` if the sender should (not)
    have sent the backlink.
    """
    log = request.proposal.log
    distinct = has_lipmaalink(seqnum)
    if metadata.backlink is not None and not distinct:
        raise Violation(ErrorCode.BACKLINK_REDUNDANT, f"entry {seqnum} has one link")
    backlink = known_backlink = request.incoming.link(seqnum - 1)
    if distinct:
        backlink = _backlink(request, seqnum, metadata.backlink, known_backlink)
    elif seqnum > 1 and backlink is None:
        raise HashMissing(seqnum - 1)
    lipmaalink = b""
    if distinct:
        lipmaalink = request.incoming.link(lipmaa(seqnum)) or b""
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
    return entry, verify_signature(entry), linked


def rebuild_one(
    request: Request, metadata: Metadata, *, family: HashFamily
) -> tuple[Entry, bool, bool]:
    """Rebuild, as `rebuild` does, that of the entries which may be due for which it works.

    There is more than one candidate only after an adjustment of the range.
    """
    found: tuple[Entry, bool, bool] | None = None
    missing: HashMissing | None = None
    violation: Violation | None = None
    candidates = (view.piece.seqnum for view in request.incoming.views if view.piece)
    for seqnum in dict.fromkeys(candidates):
        try:
            rebuilt = rebuild(request, seqnum, metadata, family=family)
        except HashMissing as error:
            missing = missing or error
        except Violation as error:
            violation = violation or error
        else:
            if rebuilt[1]:
                return rebuilt
            found = found or rebuilt
    if missing is not None:
        raise missing
    if found is None:
        assert violation is not None
        raise violation
    return found


def _backlink(request: Request, seqnum: int, sent: bytes | None, known: bytes | None) -> bytes:
    """The backlink of an entry that has both links."""
    before = seqnum - 1
    if sent is not None:
        # We may have transmitted the entry before while this packet was on its way, but
        # the sender knows what it has transmitted itself.
        if before in request.incoming.metadata:
            raise Violation(ErrorCode.BACKLINK_REDUNDANT, f"metadata {before} was sent before")
        return sent
    if before not in request.incoming.metadata and before not in request.outgoing.metadata:
        raise Violation(ErrorCode.BACKLINK_MISSING, f"of entry {seqnum}")
    if known is None:
        raise HashMissing(before)
    return known
