"""Received entries: verified against the store, and written to it in batches.

Source: seed, "Validation"; decision 7.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar, cast

from culm.bamboo import LogVerifier
from culm.bamboo import Reason as LogReason
from culm.bamboo.bulk import decode_many, hash_many, signatures_are_valid, signatures_of
from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.entry import decode as decode_entry
from culm.effects import Place, StoreWork
from culm.machine import RemoteProtocolError
from culm.p2panda.codec import ENTRY_OVERHEAD
from culm.p2panda.effects import (
    AppendOperations,
    Conflict,
    Found,
    LogState,
    LookUp,
    NewOperation,
    OperationState,
)
from culm.p2panda.errors import InvalidOperation, Reason
from culm.p2panda.events import OperationLeftOut, OperationStored
from culm.p2panda.exchange import Exchange
from culm.p2panda.limits import ReplicatorLimits
from culm.p2panda.operation import Operation
from culm.p2panda.operation import decode as decode_operation
from culm.replication import Writes
from culm.signatures import Verification, asks
from culm.wire.errors import DecodeError
from culm.wire.multihash import YASMF

K = TypeVar("K")
V = TypeVar("V")

_REASONS = {
    LogReason.BAD_SIGNATURE: Reason.BAD_SIGNATURE,
    LogReason.GAP: Reason.GAP,
    LogReason.WRONG_BACKLINK: Reason.WRONG_LINK,
    LogReason.WRONG_LIPMAALINK: Reason.WRONG_LINK,
    LogReason.AFTER_END_OF_LOG: Reason.AFTER_END_OF_LOG,
}


class Arrival(Place):
    """An entry with its operation, and the place for the event about it.

    operation: the operation, or the reason why it cannot be stored.
    size: its share of the unwritten size until it is in the store.
    """

    __slots__ = ("entry", "log", "operation", "sender", "session_id", "signed", "size")

    single = True

    def __init__(
        self,
        sender: Exchange,
        session_id: int,
        entry: Entry,
        operation: Operation | InvalidOperation,
        size: int,
    ) -> None:
        self.events = None  # as in a Place, with one call less, for there are many
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


class _Blame(NamedTuple):
    """The sender is to blame for an entry, as soon as everything before it is in the store."""

    sender: Exchange
    error: RemoteProtocolError
    size: int


class _Log:
    """A log for which entries arrive: the state to verify them against, and its document.

    It also notes the session that has brought the last entries, by its number since ids are used
    again, and the first of these.
    """

    __slots__ = ("_first", "_session", "position", "state", "verifier")

    def __init__(self, log: LogKey, state: LogState | None) -> None:
        self._session: int | None = None
        self._first = 0
        head, known = (None, None) if state is None else (state.head, state.hashes)
        self.verifier = LogVerifier(log, family=YASMF, head=head, known=known)
        self.position = self.verifier.position  # of the last entry; read very often
        self.state = None if state is None else OperationState(state.document_id, state.schema_id)

    def take(self, entry: Entry, hash: bytes, state: OperationState, session: int) -> None:
        """Note that an entry with this hash has been verified, and belongs to this document."""
        self.position = seqnum = entry.seqnum
        self.verifier.skip(seqnum, hash, end_of_log=entry.end_of_log)
        self.state = state
        if session != self._session:
            self._session, self._first = session, seqnum

    def is_from(self, session: int, seqnum: int) -> bool:
        """Whether this session is known to have brought that entry."""
        return session == self._session and seqnum >= self._first


class Intake:
    """Takes the entries of all sessions, in the order in which they arrived.

    An invalid entry is left out, with all that depends on it; if its sender must have seen
    the fault, the session ends as well.  The rest of its log does not fit until another peer
    has brought the missing entries, and is passed over.  The unwritten size counts the bytes of
    entries and operations, and their overhead.
    """

    def __init__(self, *, work: StoreWork, limits: ReplicatorLimits) -> None:
        self._work = work
        self._limits = limits
        self._writes = Writes[Arrival | _Blame](
            size_max=limits.batch_size_max, count_max=limits.batch_count_max
        )
        self._batch: list[Arrival] = []  # which the store is working on
        self._logs: OrderedDict[LogKey, _Log] = OrderedDict()
        self._operations: OrderedDict[bytes, OperationState] = OrderedDict()
        # By session and log of which an entry was left out: our height of the log at that time.
        self._left_out: OrderedDict[tuple[int, LogKey], int] = OrderedDict()
        self._verification: Verification[Arrival | _Blame] | None = None
        if limits.verifying_max:
            self._verification = Verification(
                asks(work), count_max=limits.verifying_max, then=self._verified_elsewhere
            )

    def take(self, sender: Exchange, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Take entries with their operations, up to the first for which the sender is to blame."""
        decoded = decode_many([encoded for encoded, _ in entries], family=YASMF)
        hashes = hash_many([payload or b"" for _, payload in entries], family=YASMF)
        session_id, schema_ids = sender.session_id, sender.schema_ids
        taken: list[Arrival] = []
        blame: _Blame | None = None
        for (encoded, payload), entry, hash in zip(entries, decoded, hashes, strict=True):
            if entry is None or (payload is not None and not _belongs(payload, hash, entry)):
                blame = _Blame(sender, _fault_of(encoded, entry), ENTRY_OVERHEAD)
                break
            size = ENTRY_OVERHEAD + len(encoded)
            if payload is None:
                operation = self._missing_operation(entry)
            else:
                operation = _operation_in(payload, schema_ids)
                size += entry.payload_size
            taken.append(Arrival(sender, session_id, entry, operation, size))
        sizes = [each.size for each in taken]
        self._work.hold(sum(sizes))
        self._work.line_up(taken)
        sender.expect(len(taken))
        if blame is not None:
            self._work.hold(blame.size)
            sender.expect(1)
            sender.blame()
        if self._verification is None:
            self._writes.extend(taken, sizes)
            if blame is not None:
                self._add_blame(blame)
            self._lay_blame()
        else:
            self._have_verified(taken, blame, self._verification)

    def _have_verified(
        self,
        taken: Sequence[Arrival],
        blame: _Blame | None,
        verification: Verification[Arrival | _Blame],
    ) -> None:
        """Leave signatures to the driver, but those that are not likely to be needed."""
        signatures = signatures_of([each.entry for each in taken])
        for arrival, signed in zip(taken, signatures, strict=True):
            left_out = (arrival.sender.number, arrival.log) in self._left_out
            known = left_out or arrival.entry.hash() in self._operations
            verification.add(arrival, None if known else signed)
        if blame is not None:
            verification.add(blame, None)

    def _verified_elsewhere(self, items: Iterable[tuple[Arrival | _Blame, bool | None]]) -> None:
        for item, signed in items:
            if isinstance(item, _Blame):
                self._add_blame(item)
            else:
                if signed is not None:
                    item.verified(signed)
                self._writes.add(item, item.size)
        self._lay_blame()

    def _add_blame(self, blame: _Blame) -> None:
        self._writes.close()
        self._writes.add(blame, blame.size)
        self._writes.close()

    def _missing_operation(self, entry: Entry) -> Operation | InvalidOperation:
        """The reason why an entry has come without its operation."""
        too_large = entry.payload_size > self._limits.connection.operation_size_max
        return InvalidOperation(Reason.TOO_LARGE if too_large else Reason.MISSING_OPERATION)

    def _lay_blame(self) -> None:
        """End the session of a sender whose turn has come, unless the store is at work."""
        while isinstance(blame := self._writes.first, _Blame):
            self._writes.next()
            blame.sender.spoil(blame.error)
            self._work.release(blame.size)
            blame.sender.settle(None)
            self._writes.done()

    def ask(self) -> bool:
        """Ask for verdicts, and for the needs of the next entries; whether there was anything."""
        verifies = self._verification is not None and self._verification.ask()
        write = self._writes.next()
        if write is None:
            return verifies
        self._batch = cast("list[Arrival]", write.items)  # no blame here: see `_lay_blame`
        self._forget_outgrown()
        logs = {arrival.log: None for arrival in self._batch}
        # All later operations of a log belong to the document of the first.
        firsts = [arrival.operation for arrival in self._batch if arrival.entry.seqnum == 1]
        wanted = {
            each: None
            for operation in firsts
            if isinstance(operation, Operation)
            for each in operation.previous
        }
        self._work.ask(
            LookUp,
            self._looked_up,
            logs=tuple([log for log in logs if log not in self._logs]),
            operations=tuple([each for each in wanted if each not in self._operations]),
        )
        return True

    def _forget_outgrown(self) -> None:
        """Forget logs whose arriving entries do not follow ours.

        Others may have stored the entries between, so the peer may rightly leave them out.
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
        unknown = self._at_taken_places(logs)
        if unknown:
            self._work.ask(
                LookUp, lambda found: self._found_taken(logs, found), logs=(), operations=unknown
            )
        else:
            self._verify(logs)

    def _at_taken_places(self, logs: Sequence[_Log]) -> tuple[bytes, ...]:
        """Entries whose places are taken in the store, perhaps by themselves: it has to tell."""
        pairs = zip(self._batch, logs, strict=True)
        old = [(arrival, log) for arrival, log in pairs if arrival.entry.seqnum <= log.position]
        hashes = {each.entry.hash(): None for each, log in old if not self._passes_over(each, log)}
        return tuple([each for each in hashes if each not in self._operations])

    def _found_taken(self, logs: Sequence[_Log], found: Found) -> None:
        self._operations.update(found.operations)
        self._verify(logs)

    def _verify(self, logs: Sequence[_Log]) -> None:
        """Verify the batch, whose entries belong to these logs, and store the valid ones."""
        self._check_signatures(logs)
        valid: dict[Arrival, NewOperation] = {}
        for place, (arrival, log) in enumerate(zip(self._batch, logs, strict=True), 1):
            try:
                new = self._verified(arrival, log)
            except InvalidOperation as error:
                self._leave_out(arrival, error.reason, log.position)
                continue
            except RemoteProtocolError as error:
                self._put_back(self._batch[place:])
                blame = _Blame(arrival.sender, error.detached(), arrival.size)
                self._writes.put_back([blame], blame.size)
                arrival.fill()
                break
            if new is None:
                self._drop(arrival)
            else:
                valid[arrival] = new
        self._batch = list(valid)
        if not valid:
            self._rest()
            return
        operations = tuple(valid.values())
        self._work.ask(
            AppendOperations,
            lambda result: self._appended(operations, result),
            operations=operations,
        )

    def _check_signatures(self, logs: Sequence[_Log]) -> None:
        """Verify together all signatures that the batch needs; `logs` are those of its entries."""
        asked = [
            arrival
            for arrival, log in zip(self._batch, logs, strict=True)
            if arrival.signed is None
            and not self._passes_over(arrival, log)
            and not self._is_repeated(arrival.entry, log)
        ]
        signed = signatures_are_valid([arrival.entry for arrival in asked])
        for arrival, each in zip(asked, signed, strict=True):
            arrival.verified(each)

    def _passes_over(self, arrival: Arrival, log: _Log) -> bool:
        """Whether no more entries are taken from the session, or none of this log."""
        sender = arrival.sender
        if not self._left_out:
            return sender.broken
        return sender.broken or self._left_out.get((sender.number, arrival.log)) == log.position

    def _is_repeated(self, entry: Entry, log: _Log) -> bool:
        """Whether the entry is in the store, or will be with this batch."""
        return entry.seqnum <= log.position and entry.hash() in self._operations

    def _verified(self, arrival: Arrival, log: _Log) -> NewOperation | None:
        """The entry in the form to be stored; ``None`` if it is not new, or not of interest.

        Raises `InvalidOperation` if it must be left out, and `RemoteProtocolError` if the sender
        is to blame.
        """
        entry, sender, operation = arrival.entry, arrival.sender, arrival.operation
        if self._passes_over(arrival, log):
            return None
        if self._is_repeated(entry, log):
            again = log.is_from(sender.number, entry.seqnum)
            sender.repeat(arrival.log, entry.seqnum, again=again)
            return None
        if arrival.signed is None:  # its log was being passed over when the batch began
            arrival.verified(signatures_are_valid([entry])[0])
        if not arrival.signed:
            raise RemoteProtocolError(Reason.BAD_SIGNATURE, f"entry {entry.seqnum}")
        if entry.seqnum <= log.position:
            raise InvalidOperation(Reason.FORK, f"entry {entry.seqnum}")
        if isinstance(operation, InvalidOperation):
            raise operation
        if faults := log.verifier.faults(entry, signed=True):
            raise InvalidOperation(_REASONS[faults[0]], f"entry {entry.seqnum}")
        state = self._state_of(entry, operation, log)
        hash = entry.hash()
        log.take(entry, hash, state, sender.number)
        self._operations[hash] = state
        return NewOperation(entry, operation, state.document_id)

    def _state_of(self, entry: Entry, operation: Operation, log: _Log) -> OperationState:
        """The document to which the operation belongs, and its schema.

        It is the same object for all successive operations of a document.
        Raises `InvalidOperation`.
        """
        if not operation.previous:  # that is a creation
            if log.state is not None:
                raise InvalidOperation(Reason.OTHER_DOCUMENT, "a creation in the midst of a log")
            return OperationState(entry.hash(), operation.schema_id)
        state = log.state or self._followed(operation)
        if state.schema_id != operation.schema_id:
            raise InvalidOperation(Reason.OTHER_SCHEMA, operation.schema_id)
        return state

    def _followed(self, operation: Operation) -> OperationState:
        """The document of the operations that the first one of a log follows.

        It need not be here whole: its author could not know of which other logs we have another
        branch.  A creation that it names counts more than operations that others have put there.
        Raises `InvalidOperation`.
        """
        known = self._operations
        states = {each: known[each] for each in operation.previous if each in known}
        created = [state for each, state in states.items() if each == state.document_id]
        found = {state.document_id: state for state in created or states.values()}
        if not found:
            raise InvalidOperation(Reason.UNKNOWN_PREVIOUS, operation.previous[0].hex())
        if len(found) > 1:
            raise InvalidOperation(Reason.SEVERAL_DOCUMENTS, operation.previous[0].hex())
        return next(iter(found.values()))

    def _put_back(self, arrivals: Sequence[Arrival]) -> None:
        """Let these have their turn again when the rest of the batch is in the store."""
        self._writes.put_back(arrivals, sum(each.size for each in arrivals))

    def _leave_out(self, arrival: Arrival, reason: Reason, position: int) -> None:
        """Leave out an entry of a log of this height; the session's next ones are passed over."""
        log = (arrival.sender.number, arrival.log)
        self._left_out[log] = position
        self._left_out.move_to_end(log)
        _trim(self._left_out, self._limits.left_out_max)
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
            if arrival.log == conflict.log and entry.seqnum == conflict.seqnum:
                self._leave_out(arrival, Reason.FORK, entry.seqnum)
            else:
                again.append(arrival)
        self._put_back(again)
        self._rest()

    def _drop(self, arrival: Arrival, *events: OperationLeftOut) -> None:
        arrival.fill(events)
        self._work.release(arrival.size)
        arrival.sender.settle(None)

    def _rest(self) -> None:
        """Finish the batch."""
        self._writes.done()
        self._batch = []
        _trim(self._logs, self._limits.logs_known_max)
        _trim(self._operations, self._limits.operations_known_max)
        self._lay_blame()


def _stored(arrival: Arrival, new: NewOperation) -> OperationStored:
    """The event for an operation that is in the store."""
    entry, operation, document_id = new
    return OperationStored(
        session_id=arrival.session_id,
        log=arrival.log,
        seqnum=entry.seqnum,
        operation_id=entry.hash(),
        document_id=document_id,
        schema_id=operation.schema_id,
    )


def _belongs(payload: bytes, hash: bytes, entry: Entry) -> bool:
    """Whether the payload, which has this hash, is that of the entry."""
    return hash == entry.payload_hash and len(payload) == entry.payload_size


def _operation_in(payload: bytes, schema_ids: Sequence[str]) -> Operation | InvalidOperation:
    """The operation of an entry, or why it is not to be stored."""
    try:
        operation = decode_operation(payload)
    except InvalidOperation as error:
        return error.with_traceback(None)
    if operation.schema_id not in schema_ids:
        return InvalidOperation(Reason.NOT_REQUESTED, operation.schema_id)
    return operation


def _fault_of(encoded: bytes, entry: Entry | None) -> RemoteProtocolError:
    """The fault of an entry that its sender must have seen."""
    if entry is None:
        return RemoteProtocolError(Reason.MALFORMED_ENTRY, _fault_in(encoded))
    return RemoteProtocolError(Reason.WRONG_PAYLOAD, f"of entry {entry.seqnum}")


def _fault_in(encoded: bytes) -> str:
    """The fault in the encoding of an entry."""
    try:
        decode_entry(encoded, family=YASMF)
    except DecodeError as error:
        return str(error)
    return ""


def _trim(known: OrderedDict[K, V], count_max: int) -> None:
    """Forget the items that were learnt first."""
    while len(known) > count_max:
        known.popitem(last=False)
