"""Authoring: the next entry of one's own log."""

from __future__ import annotations

from collections.abc import Mapping

from nacl.signing import SigningKey

from culm.bamboo.anchors import Anchors
from culm.bamboo.entry import LogKey, sign
from culm.bamboo.errors import Reason, VerificationError
from culm.bamboo.links import has_lipmaalink, lipmaa, open_targets
from culm.bamboo.records import Head, NewEntry
from culm.bamboo.store import LogStore
from culm.buffer import Buffer
from culm.wire.multihash import HashFamily


def publish(
    key: SigningKey,
    *,
    family: HashFamily,
    log_id: int,
    head: Head | None,
    hashes: Mapping[int, bytes],
    payload: Buffer | None = None,
    payload_size: int | None = None,
    payload_hash: bytes | None = None,
    end_of_log: bool = False,
) -> NewEntry:
    """Make the entry after `head`, for a payload or the size and hash of one.

    `hashes` gives the hash of the entry to which the lipmaalink points, where the entry
    has one (``lipmaa(head.seqnum + 1)``); `LogStore.hashes` or a `LogVerifier` knows it.
    Nothing is stored: put the result into the store before anyone gets to see it, lest
    a crash make the next entry a fork.

    Raises `VerificationError` (``AFTER_END_OF_LOG``) if `head` ended the log, `KeyError`
    with the number of the entry whose hash is missing, and the errors of `sign`.
    """
    if head is not None and head.end_of_log:
        raise VerificationError(Reason.AFTER_END_OF_LOG, head.seqnum + 1)
    seqnum = 1 if head is None else head.seqnum + 1
    entry = sign(
        key,
        family=family,
        log_id=log_id,
        seqnum=seqnum,
        payload=payload,
        payload_size=payload_size,
        payload_hash=payload_hash,
        backlink=None if head is None else head.hash,
        lipmaalink=hashes[lipmaa(seqnum)] if has_lipmaalink(seqnum) else None,
        end_of_log=end_of_log,
    )
    return NewEntry(entry, None if payload is None else bytes(payload))


class LogAuthor:
    """Makes one entry after the other, remembering the hashes that their links need (O(log n)).

    Start after `head` with the hashes of ``open_targets(head.seqnum)``, or let `resume`
    read them from a store.  A log must have one author at a time: two that start after the same
    head fork it.

    Raises `ValueError` if hashes are missing.
    """

    def __init__(
        self,
        key: SigningKey,
        *,
        family: HashFamily,
        log_id: int = 0,
        head: Head | None = None,
        hashes: Mapping[int, bytes] | None = None,
    ) -> None:
        known = dict(hashes or {})
        if head is not None:
            known[head.seqnum] = head.hash
        self._anchors = Anchors(0 if head is None else head.seqnum, known)
        self._anchors.require_complete()
        self._key = key
        self._family = family
        self._log_id = log_id
        self._head = head

    @classmethod
    def resume(cls, key: SigningKey, store: LogStore, log_id: int = 0) -> LogAuthor:
        """Go on after the head of the log in `store`.

        Raises `VerificationError` (``INVALID_LOG``, with the proof) if the log is forked.
        """
        log = LogKey(bytes(key.verify_key), log_id)
        if (proof := store.fork(log)) is not None:
            raise VerificationError(Reason.INVALID_LOG, proof.seqnum, proof=proof)
        head = store.head(log)
        hashes = {} if head is None else store.hashes(log, open_targets(head.seqnum))
        return cls(key, family=store.family, log_id=log_id, head=head, hashes=hashes)

    @property
    def log(self) -> LogKey:
        return LogKey(bytes(self._key.verify_key), self._log_id)

    @property
    def head(self) -> Head | None:
        """The entry made last, or the one after which this author started."""
        return self._head

    def publish(
        self,
        payload: Buffer | None = None,
        *,
        payload_size: int | None = None,
        payload_hash: bytes | None = None,
        end_of_log: bool = False,
    ) -> NewEntry:
        """Make the next entry, for a payload or the size and hash of one.

        Raises `VerificationError` (``AFTER_END_OF_LOG``) if the log has ended, and whatever
        `culm.bamboo.entry.sign` raises.
        """
        new = publish(
            self._key,
            family=self._family,
            log_id=self._log_id,
            head=self._head,
            hashes=self._anchors.snapshot(),
            payload=payload,
            payload_size=payload_size,
            payload_hash=payload_hash,
            end_of_log=end_of_log,
        )
        entry = new.entry
        self._head = Head(entry.seqnum, entry.hash(), end_of_log)
        self._anchors.add(entry.seqnum, entry.hash())
        return new
