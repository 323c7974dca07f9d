"""The audit of a whole log: every row's verdict, and every reason for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from culm.bamboo.anchors import Anchors
from culm.bamboo.entry import Entry, LogKey, decode, verify_signature
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa
from culm.bamboo.verify import payload_fault
from culm.wire.errors import DecodeError
from culm.wire.multihash import HashFamily

_PAYLOAD_ONLY = frozenset({Reason.PAYLOAD_SIZE, Reason.PAYLOAD_HASH})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The audit's verdict on row `index` (counted from 0).

    `seqnum` is ``None`` if the row is ``MALFORMED``.  `verified` is about the entry:
    ``PAYLOAD_HASH`` and ``PAYLOAD_SIZE`` among the `reasons` say that the row's payload
    is not the entry's, and leave the entry verified.
    """

    index: int
    seqnum: int | None
    reasons: tuple[Reason, ...] = ()
    verified: bool = True
    proof: ForkProof | None = None


def audit_log(
    log: LogKey,
    rows: Iterable[tuple[bytes, bytes | None]],
    *,
    family: HashFamily,
    sparse: bool = False,
) -> Iterator[Verdict]:
    """Judge every row, an encoded entry and its payload (``None``: not on hand).

    Rows ascend by sequence number; several of one number are a fork or repetitions.
    Unless `sparse`, an entry needs all entries before it, else the path of links to entry
    1 and, where they are there, the targets of its links.

    Unlike a `LogVerifier`, which takes only verified entries, the audit goes on and checks links
    against all that the author has signed: one bad entry does not hide the faults of the next,
    nor does it make the next one wrong.  A later entry that is not verified because of it gets
    ``GAP`` (its links lead through an entry that is not verified) or ``INVALID_LOG`` (after a fork
    or a payload size lie).

    A verdict on an entry comes when the next sequence number has come, for a fork may show
    up until then; others come at once.  Memory is that of ``O(log n)`` hashes and of the
    author's rows of one sequence number.
    """
    auditor = _Auditor(log, family, sparse)
    for index, (encoded, payload) in enumerate(rows):
        yield from auditor.take(index, encoded, payload)
    yield from auditor.close_place()


class _Seen(NamedTuple):
    """The entry that the author signed under one sequence number, and whether it is verified."""

    hashes: frozenset[bytes]
    verified: bool


class _Auditor:
    def __init__(self, log: LogKey, family: HashFamily, sparse: bool) -> None:
        self._log = log
        self._family = family
        self._sparse = sparse
        self._anchors: Anchors[_Seen] = Anchors()
        self._invalid = False
        self._ended = False
        # The author's rows of the sequence number at which the audit is.
        self._seqnum = 0
        self._place: list[tuple[Entry, Verdict]] = []

    def take(self, index: int, encoded: bytes, payload: bytes | None) -> Iterator[Verdict]:
        try:
            entry = decode(encoded, family=self._family)
        except DecodeError:
            yield Verdict(index, None, (Reason.MALFORMED,), False)
            return
        if (refused := self._refused(entry)) is not None:
            yield Verdict(index, entry.seqnum, (refused,), False)
            return
        if entry.seqnum != self._seqnum:
            yield from self.close_place()
            self._seqnum = entry.seqnum
        self._place.append((entry, self._judge(index, entry, payload)))

    def close_place(self) -> Iterator[Verdict]:
        """Give the verdicts on the current sequence number and remember it for later links."""
        place, self._place = self._place, []
        if not place:
            return
        variants = {entry.hash(): entry for entry, _ in place}
        forked = len(variants) > 1
        lied = any(Reason.PAYLOAD_SIZE_LIE in verdict.reasons for _, verdict in place)
        for entry, verdict in place:
            if forked:
                other = next(each for each in variants.values() if each != entry)
                yield replace(
                    verdict,
                    reasons=(Reason.FORK, *verdict.reasons),
                    verified=False,
                    proof=ForkProof(entry, other),
                )
            else:
                yield replace(verdict, verified=False) if lied else verdict
        verified = not (forked or lied) and place[0][1].verified
        self._anchors.add(self._seqnum, _Seen(frozenset(variants), verified))
        if forked or lied:
            self._invalid = True
        if any(entry.end_of_log for entry in variants.values()):
            self._ended = True

    def _refused(self, entry: Entry) -> Reason | None:
        """Why the row says nothing of this log, if so."""
        if entry.log != self._log:
            return Reason.WRONG_LOG
        if not verify_signature(entry):
            return Reason.BAD_SIGNATURE
        return Reason.OUT_OF_ORDER if entry.seqnum < self._seqnum else None

    def _judge(self, index: int, entry: Entry, payload: bytes | None) -> Verdict:
        """The verdict, but for a fork at the same sequence number."""
        reasons: list[Reason] = []
        if self._invalid:
            reasons.append(Reason.INVALID_LOG)
        if self._ended:
            reasons.append(Reason.AFTER_END_OF_LOG)
        if entry.seqnum > 1:
            reasons += self._link_faults(entry)
        verified = not reasons
        if payload is not None and (fault := payload_fault(entry, payload)) is not None:
            reasons.append(fault)
            verified = verified and fault in _PAYLOAD_ONLY
        return Verdict(index, entry.seqnum, tuple(reasons), verified)

    def _link_faults(self, entry: Entry) -> Iterator[Reason]:
        previous = self._anchors.get(entry.seqnum - 1)
        target = self._anchors.get(lipmaa(entry.seqnum))
        if previous is not None and entry.backlink not in previous.hashes:
            yield Reason.WRONG_BACKLINK
        if entry.lipmaalink is not None and target and entry.lipmaalink not in target.hashes:
            yield Reason.WRONG_LIPMAALINK
        needed = (target,) if self._sparse else (target, previous)
        if not all(seen is not None and seen.verified for seen in needed):
            yield Reason.GAP
