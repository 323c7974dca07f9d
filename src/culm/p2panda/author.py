"""Writing documents: operations in entries of one's own logs.

Sources: p2panda's handbook, "Bamboo" (BA1 to BA4), "Documents" (DO5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nacl.signing import SigningKey

from culm.arguments import UINT64_MAX, check_int, check_type
from culm.bamboo.author import publish
from culm.bamboo.entry import LogKey
from culm.p2panda.effects import LogState, NewOperation
from culm.p2panda.errors import InvalidOperation, Reason
from culm.p2panda.limits import Limits
from culm.p2panda.operation import Action, Operation, Value
from culm.p2panda.store import OperationStore
from culm.wire.multihash import YASMF

# The number of branches that an operation merges by default.  Anybody can begin branches, so an
# operation that named them all could be made arbitrarily large.
_MERGED_MAX = 1024


class Author:
    """Publishes operations into a store.

    An author has one log for each document, numbered from 0 on.  Only one author may use a key at a
    time: two that continue after the same entry fork the log.  So does one that begins with an
    older store than it has written to, as from a backup: give it a new key.

    operation_size_max: the size of an operation, in bytes.  It should not exceed the limit of
        other nodes (`Limits.operation_size_max`): they leave a larger one out, and nothing that
        follows it in the log reaches them.

    Each method raises `ValueError` for an operation that would be larger; nothing is stored then.
    """

    def __init__(
        self,
        key: SigningKey,
        store: OperationStore,
        *,
        operation_size_max: int = Limits().operation_size_max,
    ) -> None:
        check_type("key", key, SigningKey)
        check_int("operation_size_max", operation_size_max)
        self._key = key
        self._store = store
        self._operation_size_max = operation_size_max
        self._logs: dict[bytes, int] = {}  # the first of each document
        self._next_log = 0
        self._read_logs()

    @property
    def public_key(self) -> bytes:
        return bytes(self._key.verify_key)

    def create(self, schema_id: str, fields: Mapping[str, Value]) -> bytes:
        """Create a document; returns its id.  Raises `InvalidOperation`."""
        operation = Operation(action=Action.CREATE, schema_id=schema_id, fields=fields)
        return self._publish(operation, None)

    def update(
        self,
        document_id: bytes,
        fields: Mapping[str, Value],
        *,
        previous: Sequence[bytes] | None = None,
    ) -> bytes:
        """Change fields of a document; returns the id of the operation.

        previous: the operations that it follows; by default all the document's tips or, if there
            are very many, this author's last operation and some of them; beside the tips, an
            author's first operation in the document names the creation.

        Raises `InvalidOperation` (``UNKNOWN_PREVIOUS``, ``SEVERAL_DOCUMENTS``), `KeyError` if
        there is no such document, and `ValueError` if it was deleted.
        """
        return self._change(document_id, Action.UPDATE, fields, previous)

    def delete(self, document_id: bytes, *, previous: Sequence[bytes] | None = None) -> bytes:
        """Delete a document; otherwise as `update`."""
        return self._change(document_id, Action.DELETE, {}, previous)

    def _change(
        self,
        document_id: bytes,
        action: Action,
        fields: Mapping[str, Value],
        previous: Sequence[bytes] | None,
    ) -> bytes:
        document = self._store.state_of(document_id)
        if document is None:
            raise KeyError(document_id)
        if document.deleted:
            raise ValueError(f"document {document_id.hex()} was deleted")
        if previous is None:
            previous = self._merged(document_id, document.tips)
        elif not self._are_of(document_id, previous):
            raise InvalidOperation(Reason.UNKNOWN_PREVIOUS, "no operations of the document")
        changes: dict[str, Any] = {"fields": fields} if action is Action.UPDATE else {}
        operation = Operation(
            action=action, schema_id=document.schema_id, previous=tuple(sorted(previous)), **changes
        )
        return self._publish(operation, document_id)

    def _merged(self, document_id: bytes, tips: Sequence[bytes]) -> Sequence[bytes]:
        """The operations that a change follows by default.

        They include this author's earlier operations, directly or indirectly: otherwise the change
        would be taken for another branch, and the older one might win.  An author's first one says
        of which document it is, also to nodes that have other branches of the logs of the tips.
        """
        _, state = self._log_for(document_id)
        if state is not None and len(tips) <= _MERGED_MAX:
            return tips
        first = document_id if state is None else state.head.hash
        return list(dict.fromkeys([first, *tips]))[:_MERGED_MAX]

    def _are_of(self, document_id: bytes, operations: Sequence[bytes]) -> bool:
        """Whether all of these are operations of the document."""
        found = self._store.look_up([], operations).operations
        return all(each in found and found[each].document_id == document_id for each in operations)

    def _publish(self, operation: Operation, document_id: bytes | None) -> bytes:
        payload = operation.encode()
        if len(payload) > self._operation_size_max:
            raise ValueError(f"an operation of {len(payload)} bytes, which other nodes refuse")
        log, state = self._log_for(document_id)
        new = publish(
            self._key,
            family=YASMF,
            log_id=log.log_id,
            head=None if state is None else state.head,
            hashes={} if state is None else state.hashes,
            payload=payload,
        )
        operation_id = new.entry.hash()
        belongs_to = operation_id if document_id is None else document_id
        self._store.append([NewOperation(new.entry, operation, belongs_to)])
        self._logs[belongs_to] = log.log_id
        if log.log_id == self._next_log:
            self._next_log += 1
        return operation_id

    def _log_for(self, document_id: bytes | None) -> tuple[LogKey, LogState | None]:
        """The author's log of a document, or a new one, with its state."""
        while True:
            found = None if document_id is None else self._logs.get(document_id)
            if self._next_log > UINT64_MAX:
                self._read_logs()
            log_id = self._next_log if found is None else found
            log = LogKey(self.public_key, log_id)
            state = self._store.look_up([log], []).logs.get(log)
            if found is not None or state is None:
                return log, state
            # Other peers have returned logs of ours that we wrote before a restart.
            self._read_logs()

    def _read_logs(self) -> None:
        logs = self._store.logs_of(self.public_key)
        for log_id, document_id in logs.items():
            self._logs.setdefault(document_id, log_id)
        self._next_log = _number_after(logs)


def _number_after(log_ids: Iterable[int]) -> int:
    """The number for the next log: after all others or, if that is none of 64 bits, in a gap.

    Of the gaps it is the highest one, so that numbers used before and lost with an older store
    come up as late as can be.
    """
    end = UINT64_MAX + 1
    for log_id in sorted(log_ids, reverse=True):
        if log_id + 1 < end:
            return log_id + 1
        end = log_id
    return 0
