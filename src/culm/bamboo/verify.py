"""Verification of entries as parts of their log, and of payloads.

An entry counts as verified ("Links and Entry Verification" of the specification) if its
author signed it, its links are the hashes of the entries of the expected numbers, and a
path of links leads to entry 1 through entries verified before.  Because links do not
cross, every path to entry 1 goes through the target of the lipmaalink: in a subset of a
log an entry can be verified exactly if that target is.  The backlink is checked if its
target is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from culm.bamboo.anchors import Anchors
from culm.bamboo.entry import Entry, LogKey, decode, verify_signature
from culm.bamboo.errors import Reason, VerificationError
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa
from culm.bamboo.records import Head
from culm.buffer import Buffer
from culm.wire.errors import DecodeError
from culm.wire.multihash import HashFamily


class LogVerifier:
    """Verifies the entries of one log, or a subset of them, as they come in ascending order.

    By default entries have to follow each other without a gap, from the one after `head` on.
    With `sparse`, entries may be left out as long as the certificate pools are there.

    Knowledge from earlier work is given in one of these ways:

    - `head`, the entry after which to go on, and `known`, hashes of verified entries up
      to there.  Only those of ``open_targets(head.seqnum)`` matter; unless `sparse`, all
      of them are needed.  A sparse log without an unbroken run from entry 1 has no head;
      then the newest of `known` stands for it.
    - `skip`, for verified entries that come between those to verify.
    - `expected`, the hashes by which verified later entries link to entries to come.
    - `newest`, the sequence number of the newest verified entry.
    - `invalid_from`, where a known fork makes the log invalid.

    Memory is bounded by ``O(log n)`` hashes (`culm.bamboo.anchors`), besides `expected`.

    Raises `ValueError` if hashes are missing that the next entries need.
    """

    __slots__ = (
        "_anchors",
        "_author",
        "_end",
        "_expected",
        "_family",
        "_invalid_from",
        "_last",
        "_log_id",
        "_newest",
        "_sparse",
    )

    def __init__(
        self,
        log: LogKey,
        *,
        family: HashFamily,
        head: Head | None = None,
        known: Mapping[int, bytes] | None = None,
        expected: Mapping[int, bytes] | None = None,
        newest: int = 0,
        invalid_from: int | None = None,
        sparse: bool = False,
    ) -> None:
        hashes = dict(known or {})
        if head is not None:
            hashes[head.seqnum] = head.hash
        position = head.seqnum if head is not None else max(hashes, default=0)
        self._author, self._log_id = log
        self._family = family
        self._anchors: Anchors[bytes] = Anchors(position, hashes)
        if not sparse:
            self._anchors.require_complete()
        self._expected = dict(expected or {})
        self._newest = newest
        self._invalid_from = invalid_from
        self._sparse = sparse
        self._end = head.seqnum if head is not None and head.end_of_log else None
        self._last: Entry | None = None

    @property
    def log(self) -> LogKey:
        return LogKey(self._author, self._log_id)

    @property
    def position(self) -> int:
        """Sequence number of the entry verified or skipped last; 0 before the first."""
        return self._anchors.position

    def hash_of(self, seqnum: int) -> bytes | None:
        """The hash of a verified entry to which later entries can still link."""
        return self._anchors.get(seqnum)

    def known(self) -> dict[int, bytes]:
        """All hashes that are kept: another verifier can go on from here with them."""
        return self._anchors.snapshot()

    def verify(self, entry: Entry) -> bool:
        """Verify the next entry; whether it is new (else it was verified before).

        Raises `VerificationError` with the first of `faults`.  The entry is not taken
        then, and better data may follow, except that from a fork on nothing verifies.
        """
        if faults := self.faults(entry):
            raise self._error(faults[0], entry)
        seqnum = entry.seqnum
        if seqnum <= self._anchors.position:
            return False
        self.skip(seqnum, entry.hash(), end_of_log=entry.end_of_log)
        self._last = entry
        return True

    def skip(self, seqnum: int, hash: bytes, *, end_of_log: bool = False) -> None:
        """Pass over an entry that was verified before.

        Raises `ValueError` unless it is after `position`, directly so if not sparse.
        """
        anchors = self._anchors
        if seqnum != anchors.position + 1 and not (self._sparse and seqnum > anchors.position):
            raise ValueError(f"entry {seqnum} cannot be passed over from {anchors.position}")
        anchors.add(seqnum, hash)
        if self._expected:
            self._expected.pop(seqnum, None)
        if end_of_log:
            self._end = seqnum

    def faults(self, entry: Entry, *, signed: bool | None = None) -> tuple[Reason, ...]:
        """All that is wrong with `entry` as the next one, the weightiest first.

        Changes nothing.  Of an entry that its author did not sign nothing else is said.

        signed: whether its author did, if that is known already.
        """
        if (
            entry.log_id != self._log_id
            or entry.author != self._author
            or entry.family is not self._family
        ):
            return (Reason.WRONG_LOG,)
        seqnum, anchors = entry.seqnum, self._anchors
        if seqnum <= anchors.position:
            return self._faults_of_earlier(entry)
        if not (verify_signature(entry) if signed is None else signed):
            return (Reason.BAD_SIGNATURE,)
        reasons: list[Reason] = []
        if self._invalid_from is not None and seqnum >= self._invalid_from:
            reasons.append(Reason.INVALID_LOG)
        if self._end is not None:
            reasons.append(Reason.AFTER_END_OF_LOG)
        if entry.end_of_log and seqnum < self._newest:
            reasons.append(Reason.EARLY_END_OF_LOG)
        if self._expected and self._expected.get(seqnum, entry.hash()) != entry.hash():
            reasons.append(Reason.CONTRADICTED)
        if seqnum > 1:
            previous = target = anchors.get(seqnum - 1)
            if previous is not None and previous != entry.backlink:
                reasons.append(Reason.WRONG_BACKLINK)
            if entry.lipmaalink is not None:  # else its target is that of the backlink
                target = anchors.get(lipmaa(seqnum))
                if target is not None and target != entry.lipmaalink:
                    reasons.append(Reason.WRONG_LIPMAALINK)
            if target is None or not (self._sparse or seqnum == anchors.position + 1):
                reasons.append(Reason.GAP)
        return tuple(reasons)

    def _faults_of_earlier(self, entry: Entry) -> tuple[Reason, ...]:
        known = self._anchors.get(entry.seqnum)
        if known is None:
            return (Reason.OUT_OF_ORDER,)
        if known == entry.hash():
            return (Reason.INVALID_LOG,) if self._is_invalid(entry.seqnum) else ()
        return (Reason.FORK if verify_signature(entry) else Reason.BAD_SIGNATURE,)

    def _is_invalid(self, seqnum: int) -> bool:
        return self._invalid_from is not None and seqnum >= self._invalid_from

    def _error(self, reason: Reason, entry: Entry) -> VerificationError:
        proof = None
        if reason is Reason.FORK:
            if self._last is not None and self._last.seqnum == entry.seqnum:
                proof = ForkProof(self._last, entry)
            if not self._is_invalid(entry.seqnum):
                self._invalid_from = entry.seqnum
        return VerificationError(reason, entry.seqnum, proof=proof)


class PayloadVerifier:
    """Verifies the payload of `entry` while it comes in, at any size."""

    __slots__ = ("_hasher", "entry", "size")

    entry: Entry
    """The entry whose payload it is."""
    size: int
    """Number of bytes so far."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._hasher = entry.family.hasher()
        self.size = 0

    def copy(self) -> PayloadVerifier:
        """Another one that has seen the same bytes."""
        other = PayloadVerifier(self.entry)
        other._hasher, other.size = self._hasher.copy(), self.size
        return other

    def update(self, data: Buffer) -> None:
        """Take the next bytes of the payload."""
        self._hasher.update(data)
        self.size += memoryview(data).nbytes

    def fault(self) -> Reason | None:
        """The fault of the payload if it ends here, as `payload_fault`."""
        return _payload_fault(self.entry, self.size, self._hasher.hash())

    def finish(self) -> None:
        """The payload ends here.  Raises `VerificationError` if anything is wrong with it."""
        if (fault := self.fault()) is not None:
            raise VerificationError(fault, self.entry.seqnum)


def payload_fault(entry: Entry, payload: Buffer) -> Reason | None:
    """The fault of `payload` as that of `entry`, if any.

    ``PAYLOAD_SIZE_LIE`` makes the log invalid from this entry on; ``PAYLOAD_HASH`` and
    ``PAYLOAD_SIZE`` only say that this is not the payload.
    """
    return _payload_fault(entry, memoryview(payload).nbytes, entry.family.hash(payload))


def _payload_fault(entry: Entry, size: int, hash: bytes) -> Reason | None:
    if hash == entry.payload_hash:
        return None if size == entry.payload_size else Reason.PAYLOAD_SIZE_LIE
    return Reason.PAYLOAD_HASH if size == entry.payload_size else Reason.PAYLOAD_SIZE


def verify_log(
    log: LogKey, encodings: Iterable[Buffer], *, family: HashFamily, sparse: bool = False
) -> Head | None:
    """Verify the encoded entries of a whole log, or of a verifiable subset, ascending.

    Returns the newest entry.  Raises `VerificationError` at the first that does not
    verify; `culm.bamboo.audit` goes on and finds everything.
    """
    verifier = LogVerifier(log, family=family, sparse=sparse)
    newest: Head | None = None
    for encoded in encodings:
        try:
            entry = decode(encoded, family=family)
        except DecodeError as error:
            raise VerificationError(Reason.MALFORMED, None) from error
        if verifier.verify(entry):
            newest = Head(entry.seqnum, entry.hash(), entry.end_of_log)
    return newest
