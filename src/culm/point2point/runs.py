"""Many entries at a time on the data channel.

Nearly all data is a row of entries, each with its whole payload, for a request that wants
everything, between endpoints that verify before they send.  Anything that stands in the way of a
run (an adjustment whose effect is open, a certificate pool, a payload that is too large, the end of
the log, ...) is sent and received piece by piece; a run means the same as its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, count
from typing import Any, NamedTuple

from culm.bamboo.bulk import signatures_are_valid
from culm.bamboo.entry import LogKey, assemble
from culm.bamboo.store import NewEntry, StoredEntry
from culm.buffer import ReceiveBuffer
from culm.kernels import runs as kernel
from culm.point2point.data_codec import PacketType
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.payload_body import PayloadBody
from culm.point2point.requests import RequestRecord
from culm.wire import varu64
from culm.wire.multihash import HashFamily

__all__ = ["RunReader", "write_run"]

# How much is read at a time, on the wire and unpacked.
_RUN_SIZE_MAX = 1 << 17

# How many entries are read at least, if they are there.  No more than twice as many as could
# be used the time before: what comes after them would be read again and again.
_COUNT_MIN = 8

_RAW = bytes([PacketType.RAW])
_COMPRESSED = bytes([PacketType.COMPRESSED])


class _Fault(NamedTuple):
    """What is wrong with an entry of a request, which is the next `size` bytes."""

    violation: Violation
    record: RequestRecord
    size: int


class RunReader:
    """Takes runs from the `inbox` of the data channel.

    A fault in the payload after a run is remembered if reading it again would not show it, because
    it has been unpacked already.
    """

    def __init__(self, inbox: ReceiveBuffer, body: PayloadBody, *, family: HashFamily) -> None:
        self.fault: _Fault | None = None
        """What was found behind the last run."""
        self._count_max = _COUNT_MIN  # how many entries are read at a time
        self._inbox = inbox
        self._body = body
        self._family = family

    def check(self) -> None:
        """Raise the fault after the last run, or pass over it if that is wanted by now."""
        fault, self.fault = self.fault, None
        if fault is None:
            return
        history_is_good = fault.violation.code is ErrorCode.INVALID_DATA
        if not fault.record.incoming.discarding or (self._body.wanted and not history_is_good):
            raise fault.violation
        self._inbox.consume(fault.size)

    def take(self, record: RequestRecord) -> tuple[NewEntry, ...]:
        """Take what there is of a run, verified; nothing if it does not begin with an entry."""
        incoming, outgoing = record.incoming, record.outgoing
        due = incoming.run_due()
        if due is None or due.size_max < due.size_min:
            return ()
        log = record.proposal.log
        author, log_id = log
        records = kernel.read(
            self._inbox.peek(_RUN_SIZE_MAX),
            author + varu64.encode(log_id),
            due.seqnum,
            min(due.count_max, self._count_max),
            due.size_min,
            min(due.size_max, self._body.piece_size_max),
            {**outgoing.links, **incoming.links},
            self._family.prefix,
            self._family.encoded_size,
            self._family.hash,
        )
        entries, violation = self._verified(log, records)
        if len(entries) < len(records):
            self._count_max = max(_COUNT_MIN, 2 * len(entries))
        elif len(records) == self._count_max:
            self._count_max *= 2
        end = records[len(entries) - 1][-1] if entries else 0
        if violation is not None:
            self.fault = _Fault(violation, record, records[len(entries)][-1] - end)
        if entries:
            self._inbox.consume(end)
            incoming.take_run({read[0]: read[7] for read in records[: len(entries)]})
        return tuple(entries)

    def _verified(
        self, log: LogKey, records: Sequence[tuple[Any, ...]]
    ) -> tuple[list[NewEntry], Violation | None]:
        """The entries of `records` up to the first with which something is wrong.

        Also returns what is wrong, if it is with a payload that has been unpacked.
        """
        family = self._family
        # What is too much for one time is left for the next: nothing of it is verified twice.
        sizes = accumulate((read[3] for read in records), initial=0)
        taken = [
            read for read, before in zip(records, sizes, strict=False) if before <= _RUN_SIZE_MAX
        ]
        made = [assemble(family, log, False, *read[:8]) for read in taken]
        entries: list[NewEntry] = []
        for entry, signed, read in zip(made, signatures_are_valid(made), taken, strict=True):
            payload, compressed = read[8:10]
            if not signed:
                break
            if compressed:
                if not self._body.can_unpack:
                    break
                try:
                    payload = self._body.unpack(payload, entry.payload_size)
                except Violation as violation:
                    return entries, violation
            if family.hash(payload) != entry.payload_hash:
                if compressed:
                    why = f"payload of entry {entry.seqnum}"
                    return entries, Violation(ErrorCode.INVALID_DATA, why)
                break
            entries.append(NewEntry(entry, payload))
        return entries, None


def write_run(
    record: RequestRecord,
    stored: Iterable[StoredEntry],
    *,
    compress: Callable[[bytes], bytes | None],
    family: HashFamily,
    size_max: int,
) -> tuple[bytes, dict[int, bytes]]:
    """The packets of the first of `stored`, about `size_max` bytes, and their hashes.

    There are none if something stands in the way: a link, say, to an entry other than the one that
    the request knows.  `compress` is called for what is sent only.
    """
    sent, received, log = record.outgoing.links, record.incoming.links, record.proposal.log
    due = record.outgoing.run_due()
    if due is None or due.size_max < due.size_min:
        return b"", {}
    if any(seqnum >= due.seqnum for seqnum in (*sent, *received)):
        return b"", {}
    chosen = kernel.choose(
        stored,
        log.author + varu64.encode(log.log_id),
        due.seqnum,
        due.count_max,
        due.size_min,
        min(due.size_max, size_max),
        size_max,
        sent,
        received,
        family.encoded_size,
    )
    packets: list[bytes] = []
    for _, metadata, size, payload in chosen:
        packed = compress(payload)
        if packed is None:
            packets += metadata, _RAW, size, payload
        else:
            packets += metadata, _COMPRESSED, size, varu64.encode(len(packed)), packed
    hashes = (each[0] for each in chosen)
    return b"".join(packets), dict(zip(count(due.seqnum), hashes, strict=False))
