"""Received entries: verified against what is in the store, and written to it in batches.

Source: seed, "Validation"; decision 7.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from enum import Enum
from itertools import islice
from typing import Protocol, TypeVar

from culm.bamboo import LogVerifier
from culm.bamboo import Reason as LogReason
from culm.bamboo.bulk import decode_many, hash_many, signatures_are_valid
from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.entry import decode as decode_entry
from culm.effects import Place, StoreWork
from culm.machine import RemoteProtocolError
from culm.p2panda.effects import AppendOperations, LookUp
from culm.p2panda.errors import ErrorCode, InvalidOperation, Reason
from culm.p2panda.limits import ReplicatorLimits
from culm.p2panda.operation import Operation
from culm.p2panda.operation import decode as decode_operation
from culm.p2panda.replication_events import OperationLeftOut, OperationStored
from culm.p2panda.store import Conflict, Found, LogState, NewOperation, OperationState
from culm.wire.errors import DecodeError
from culm.wire.multihash import YASMF

__all__ = ["Arrival", "Intake", "Sender"]

K = TypeVar("K")
V = TypeVar("V")

# What an entry takes besides its bytes, which are kept as they came, and decoded.
_ENTRY_SIZE = 1500

_REASONS = {
    LogReason.BAD_SIGNATURE: Reason.BAD_SIGNATURE,
    LogReason.GAP: Reason.GAP,
    LogReason.WRONG_BACKLINK: Reason.WRONG_LINK,
    LogReason.WRONG_LIPMAALINK: Reason.WRONG_LINK,
    LogReason.AFTER_END_OF_LOG: Reason.AFTER_END_OF_LOG,
}

# Why an entry may contradict ours although it is valid where it comes from: its author has signed
# two branches.
_MISFITS = frozenset(
    {Reason.WRONG_LINK, Reason.GAP, Reason.AFTER_END_OF_LOG, Reason.UNKNOWN_PREVIOUS}
)


class Sender(Protocol):
    """The session that brings entries."""

    @property
    def session_id(self) -> int: ...

    @property
    def schema_ids(self) -> tuple[str, ...]: ...

    @property
    def broken(self) -> bool:
        """Whether an entry was invalid; no more are taken then."""
        ...

    def expect(self, count: int) -> None:
        """Note that this many entries have arrived."""
        ...

    def spoil(self, error: RemoteProtocolError) -> None:
        """Note that an entry was invalid."""
        ...

    def repeat(self, log: LogKey, seqnum: int, *, again: bool) -> None:
        """We already had an entry; `again`: because this session had brought it before."""
        ...

    def settle(self, position: int | None) -> None:
        """An entry was processed and, if stored, is at this position."""
        ...


class Arrival(Place):
    """An entry with its operation, and the place for the event about it.

    size: what it counts for until it is in the store.
    """

    __slots__ = ("entry", "log", "operation", "sender", "session_id", "signed", "size")

    single = True

    def __init__(
        self, sender: Sender, session_id: int, entry: Entry, operation: Operation, size: int
    ) -> None:
        self.events = None  # as in a Place; a call less, for there are many
        self.sender = sender
        self.session_id = session_id
        self.log = entry.log
        self.signed: bool | None = None  # whether the author did sign it, once that is known
        self.entry = entry
        self.operation = operation
        self.size = size

    def verified(self, signed: bool) -> None:
        """Note whether the author has signed it."""
        self.signed = signed


class _Log:
    """A log that entries arrive for: what they are verified against, and its document.

    It also notes which session has brought the last entries, and from which number on.
    """

    __slots__ = ("_first", "_session_id", "document_id", "position", "verifier")

    def __init__(self, log: LogKey, state: LogState | None) -> None:
        self._session_id: int | None = None
        self._first = 0
        head, known = (None, None) if state is None else (state.head, state.hashes)
        self.verifier = LogVerifier(log, family=YASMF, head=head, known=known)
        self.position = self.verifier.position  # of the last entry; asked for again and again
        self.document_id = None if state is None else state.document_id

    def take(self, entry: Entry, hash: bytes, document_id: bytes, session_id: int) -> None:
        """Note that an entry with this hash has been verified, and belongs to this document."""
        self.position = seqnum = entry.seqnum
        self.verifier.skip(seqnum, hash, end_of_log=entry.end_of_log)
        self.document_id = document_id
        if session_id != self._session_id:
            self._session_id, self._first = session_id, seqnum

    def is_from(self, session_id: int, seqnum: int) -> bool:
        """Whether this session is known to have brought that entry."""
        return session_id == self._session_id and seqnum >= self._first


class _Doing(Enum):
    """What the store is working on for us."""

    NOTHING = "nothing"
    LOOKING_UP = "looking up"
    WRITING = "writing"


class Intake:
    """Takes the entries of all sessions, in the order in which they arrived.

    The unwritten size counts their bytes and their overhead.
    """

    def __init__(self, *, work: StoreWork, limits: ReplicatorLimits) -> None:
        self._work = work
        self._limits = limits
        self._queue: deque[Arrival] = deque()
        self._doing = _Doing.NOTHING
        self._batch: list[Arrival] = []  # which the store is working on
        self._logs: OrderedDict[LogKey, _Log] = OrderedDict()
        self._operations: OrderedDict[bytes, OperationState] = OrderedDict()

    def take(self, sender: Sender, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Take entries with their operations.

        Raises `RemoteProtocolError` if one of them is invalid by itself; those before it have been
        taken.
        """
        decoded = decode_many([encoded for encoded, _ in entries], family=YASMF)
        hashes = hash_many([payload or b"" for _, payload in entries], family=YASMF)
        session_id, schema_ids = sender.session_id, sender.schema_ids
        taken: list[Arrival] = []
        try:
            for (encoded, payload), entry, hash in zip(entries, decoded, hashes, strict=True):
                if (
                    entry is None
                    or payload is None
                    or hash != entry.payload_hash
                    or len(payload) != entry.payload_size
                ):
                    raise _fault_of(encoded, payload, entry)
                operation = decode_operation(payload)
                if operation.schema_id not in schema_ids:
                    raise RemoteProtocolError(ErrorCode.NOT_REQUESTED, operation.schema_id)
                size = _ENTRY_SIZE + len(encoded) + entry.payload_size
                taken.append(Arrival(sender, session_id, entry, operation, size))
        except InvalidOperation as error:
            raise RemoteProtocolError(error.reason, error.message) from None
        finally:
            self._work.hold(sum([arrival.size for arrival in taken]))
            self._work.line_up(taken)
            sender.expect(len(taken))
            self._queue.extend(taken)

    def ask(self) -> bool:
        """Ask the store for what the next entries need; returns whether anything was asked."""
        if self._doing is not _Doing.NOTHING or not self._queue:
            return False
        self._batch = self._next_batch()
        self._forget_outgrown()
        logs = {arrival.log: None for arrival in self._batch}
        wanted = {each: None for arrival in self._batch for each in arrival.operation.previous}
        self._doing = _Doing.LOOKING_UP
        self._work.ask(
            LookUp,
            self._looked_up,
            logs=tuple([log for log in logs if log not in self._logs]),
            operations=tuple([each for each in wanted if each not in self._operations]),
        )
        return True

    def _next_batch(self) -> list[Arrival]:
        batch: list[Arrival] = []
        left, queue = self._limits.batch_size_max, self._queue
        for arrival in islice(queue, self._limits.batch_count_max):
            left -= arrival.size
            if batch and left < 0:
                break
            batch.append(arrival)
        for _ in batch:
            queue.popleft()
        return batch

    def _forget_outgrown(self) -> None:
        """Forget logs whose arriving entries do not follow what we know.

        Somebody else may have stored the entries between, so the peer may rightly leave them out.
        """
        heads: dict[LogKey, int] = {}
        for arrival in self._batch:
            key, seqnum = arrival.log, arrival.entry.seqnum
            log = self._logs.get(key)
            if log is None:
                continue
            head = heads.get(key) or log.position
            if seqnum == head + 1:
                heads[key] = seqnum
            elif seqnum > head:
                del self._logs[key]

    # Verification.

    def _looked_up(self, found: Found) -> None:
        self._operations.update(found.operations)
        for key in {arrival.log: None for arrival in self._batch}:
            if key not in self._logs:
                self._logs[key] = _Log(key, found.logs.get(key))
        logs = [self._logs[arrival.log] for arrival in self._batch]
        self._check_signatures(logs)
        valid: list[Arrival] = []
        news: list[NewOperation] = []
        for arrival, log in zip(self._batch, logs, strict=True):
            try:
                new = self._verified(arrival, log)
            except InvalidOperation as error:
                self._refuse(arrival, error)
                continue
            if new is None:
                self._drop(arrival)
            else:
                valid.append(arrival)
                news.append(new)
        self._batch = valid
        if not valid:
            self._rest()
            return
        self._doing = _Doing.WRITING
        operations = tuple(news)
        self._work.ask(
            AppendOperations,
            lambda result: self._appended(operations, result),
            operations=operations,
        )

    def _check_signatures(self, logs: Sequence[_Log]) -> None:
        """Verify together the signatures of the batch that will be asked about, in these logs."""
        asked = [
            arrival
            for arrival, log in zip(self._batch, logs, strict=True)
            if arrival.signed is None
            and not arrival.sender.broken
            and arrival.entry.seqnum > log.position
        ]
        signed = signatures_are_valid([arrival.entry for arrival in asked])
        for arrival, each in zip(asked, signed, strict=True):
            arrival.verified(each)

    def _verified(self, arrival: Arrival, log: _Log) -> NewOperation | None:
        """The entry in the form to be stored; ``None`` if it is not new, or not of interest.

        Raises `InvalidOperation`.
        """
        entry, sender = arrival.entry, arrival.sender
        if sender.broken:
            return None
        if entry.seqnum <= log.position:
            again = log.is_from(arrival.session_id, entry.seqnum)
            sender.repeat(arrival.log, entry.seqnum, again=again)
            return None
        if faults := log.verifier.faults(entry, signed=arrival.signed):
            raise InvalidOperation(_REASONS[faults[0]], f"entry {entry.seqnum}")
        state = self._state_of(arrival, log)
        document_id, hash = state.document_id, entry.hash()
        log.take(entry, hash, document_id, arrival.session_id)
        self._operations[hash] = state
        return NewOperation(entry, arrival.operation, document_id)

    def _state_of(self, arrival: Arrival, log: _Log) -> OperationState:
        """The document to which the operation belongs, and its schema.

        It is the same object for all successive operations of a document.
        Raises `InvalidOperation`.
        """
        entry, operation = arrival.entry, arrival.operation
        if not operation.previous:  # that is a creation
            if log.document_id is not None:
                raise InvalidOperation(Reason.OTHER_DOCUMENT, "a creation in the midst of a log")
            return OperationState(entry.hash(), operation.schema_id)
        document_id, state = log.document_id, None
        for each in operation.previous:
            state = self._operations.get(each)
            if state is None:
                raise InvalidOperation(Reason.UNKNOWN_PREVIOUS, each.hex())
            if state.schema_id != operation.schema_id:
                raise InvalidOperation(Reason.OTHER_SCHEMA, operation.schema_id)
            if document_id is None:
                document_id = state.document_id
            elif document_id != state.document_id:
                of_log = log.document_id is not None
                reason = Reason.OTHER_DOCUMENT if of_log else Reason.SEVERAL_DOCUMENTS
                raise InvalidOperation(reason, each.hex())
        assert state is not None
        return state

    def _refuse(self, arrival: Arrival, error: InvalidOperation) -> None:
        """An entry is not stored: blame its sender, unless the sender could not know why."""
        if error.reason in _MISFITS:
            self._leave_out(arrival, error.reason)
        else:
            arrival.sender.spoil(RemoteProtocolError(error.reason, error.message))
            self._drop(arrival)

    def _leave_out(self, arrival: Arrival, reason: Reason) -> None:
        left_out = OperationLeftOut(
            session_id=arrival.session_id,
            log=arrival.log,
            seqnum=arrival.entry.seqnum,
            reason=reason,
        )
        self._drop(arrival, left_out)

    # Writing.

    def _appended(self, operations: tuple[NewOperation, ...], result: list[int] | Conflict) -> None:
        if isinstance(result, Conflict):
            self._conflict(result)
            return
        stored = map(_stored, self._batch, operations)  # told in this order, one at each place
        for arrival, position in zip(self._batch, result, strict=True):
            arrival.fill(stored)
            arrival.sender.settle(position)
        self._work.release(sum([arrival.size for arrival in self._batch]))
        self._rest()

    def _conflict(self, conflict: Conflict) -> None:
        """Nothing of the batch was stored: try again without the entry in conflict."""
        again: list[Arrival] = []
        for arrival in self._batch:
            entry = arrival.entry
            self._logs.pop(arrival.log, None)
            self._operations.pop(entry.hash(), None)
            if arrival.sender.broken:
                self._drop(arrival)
            elif arrival.log == conflict.log and entry.seqnum == conflict.seqnum:
                self._leave_out(arrival, Reason.FORK)
            else:
                again.append(arrival)
        self._queue.extendleft(reversed(again))
        self._rest()

    def _drop(self, arrival: Arrival, *events: OperationLeftOut) -> None:
        arrival.fill(events)
        self._work.release(arrival.size)
        arrival.sender.settle(None)

    def _rest(self) -> None:
        """Finish the batch."""
        self._doing = _Doing.NOTHING
        self._batch = []
        _trim(self._logs, self._limits.logs_known_max)
        _trim(self._operations, self._limits.operations_known_max)


# The slots of OperationStored, set without going through the __init__ of a frozen class, as for
# entries and operations.
_new = object.__new__
(_set_session_id, _set_log, _set_seqnum, _set_operation_id, _set_document_id, _set_schema_id) = (
    getattr(OperationStored, name).__set__ for name in OperationStored.__slots__
)


def _stored(arrival: Arrival, new: NewOperation) -> OperationStored:
    """The event for an operation that is in the store."""
    entry, operation, document_id = new
    event = _new(OperationStored)
    _set_session_id(event, arrival.session_id)
    _set_log(event, arrival.log)
    _set_seqnum(event, entry.seqnum)
    _set_operation_id(event, entry.hash())
    _set_document_id(event, document_id)
    _set_schema_id(event, operation.schema_id)
    return event


def _fault_of(encoded: bytes, payload: bytes | None, entry: Entry | None) -> InvalidOperation:
    """What is wrong with an entry, decoded if possible, together with its operation."""
    if entry is None:
        return InvalidOperation(Reason.MALFORMED_ENTRY, _fault_in(encoded))
    reason = Reason.MISSING_OPERATION if payload is None else Reason.WRONG_PAYLOAD
    return InvalidOperation(reason, f"of entry {entry.seqnum}")


def _fault_in(encoded: bytes) -> str:
    """What is wrong with the encoding of an entry."""
    try:
        decode_entry(encoded, family=YASMF)
    except DecodeError as error:
        return str(error)
    return ""


def _trim(known: OrderedDict[K, V], count_max: int) -> None:
    """Forget what was learnt first."""
    while len(known) > count_max:
        known.popitem(last=False)
