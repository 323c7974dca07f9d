"""Documents: operations in order, and the fields that result.

An operation follows those that its ``previous`` names.  All nodes that have the same operations of
a document put them into the same order, and so arrive at the same fields.

Sources: p2panda's handbook, "Documents" (DO1 to D11); for the order of siblings p2panda-rs 0.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from culm.p2panda.operation import Action, Operation, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The state of a document.

    document_id: the id of the operation that created it.
    order: the ids of all its operations, in the order in which they were applied.
    tips: the ids of those that no other follows, ascending: the document's view.
    fields: the resulting fields; ``None`` if the document was deleted.
    """

    document_id: bytes
    schema_id: str
    order: tuple[bytes, ...]
    tips: tuple[bytes, ...]
    fields: Mapping[str, Value] | None

    @property
    def deleted(self) -> bool:
        return self.fields is None

    @property
    def view_id(self) -> str:
        return view_id(self.tips)


class Tips:
    """The tips of a document (operations that no other follows), updated as operations arrive.

    count: the number of operations that have arrived.
    deleted: whether one of them deletes the document.
    """

    __slots__ = ("_followed", "_ids", "count", "deleted")

    def __init__(self) -> None:
        self._ids: set[bytes] = set()
        # Operations that others follow and that were no tips at that time: either they had been
        # followed before, or they are still to come.
        self._followed: set[bytes] = set()
        self.count = 0
        self.deleted = False

    def add(self, id: bytes, operation: Operation) -> None:
        """Add an operation, whether those that it follows have been added before or not."""
        followed = self._ids.intersection(operation.previous)
        self._followed.update(operation.previous)
        self._followed -= followed
        self._ids -= followed
        if id not in self._followed:
            self._ids.add(id)
        self.count += 1
        self.deleted |= operation.action is Action.DELETE

    def ascending(self) -> tuple[bytes, ...]:
        return tuple(sorted(self._ids))


def view_id(tips: Iterable[bytes]) -> str:
    """The id of a view as text: operation ids in hex, ascending, joined by underscores."""
    return "_".join(each.hex() for each in sorted(tips))


def sort_operations(previous: Mapping[bytes, Iterable[bytes]]) -> list[bytes]:
    """The order of a document's operations; `previous` maps each to those that it follows.

    Depth first from the creation on.  Of the operations that follow the last visited one, the one
    with the smallest id is next, and the others wait on a stack, the largest on top.  An operation
    with several ``previous`` is visited once all of them have been.

    Raises `ValueError` unless exactly one follows no other, and all can be reached from it.
    """
    followers: dict[bytes, list[bytes]] = {each: [] for each in previous}
    missing: dict[bytes, int] = {}  # the number of its `previous` not yet visited
    for each, before in previous.items():
        parents = set(before)
        missing[each] = len(parents)
        for parent in parents:
            if parent not in followers:
                raise ValueError(f"{parent.hex()} is missing")
            followers[parent].append(each)
    stack = [each for each, count in missing.items() if not count]
    if len(stack) != 1:
        raise ValueError(f"{len(stack)} operations create the document")
    order: list[bytes] = []
    visited: set[bytes] = set()
    while stack:
        at = stack.pop()
        if missing[at] or at in visited:
            continue  # it comes, or came, when the last one before it was visited
        visited.add(at)
        order.append(at)
        children = sorted(followers[at])
        for child in children:
            missing[child] -= 1
        waiting = [child for child in children if child not in visited]
        stack += waiting[1:] + waiting[:1]
    if len(order) != len(previous):
        raise ValueError("operations follow each other in a circle")
    return order


def materialise(
    operations: Mapping[bytes, Operation], *, backlinks: Mapping[bytes, bytes] | None = None
) -> Document:
    """Apply all operations of a document, given by their ids.

    backlinks: of each operation that is not the first one in its log, the one before it there
        (`OperationStore.backlinks`).  It stands in for operations in ``previous`` that are not
        here; without any, an operation comes after the creation.

    If one of them deletes the document, it is deleted, whatever was done concurrently.  Raises
    `ValueError` unless they are one document, as `sort_operations` does, and of one schema.
    """
    order = sort_operations(_parents(operations, backlinks or {}))
    document_id = order[0]
    create = operations[document_id]
    fields: dict[str, Value] | None = {}
    inner: set[bytes] = set()
    for each in order:
        operation = operations[each]
        if operation.schema_id != create.schema_id:
            raise ValueError(f"operations of {operation.schema_id} and {create.schema_id}")
        inner.update(operation.previous)
        if operation.action is Action.DELETE:
            fields = None
        if fields is not None:
            fields.update(operation.fields)
    return Document(
        document_id=document_id,
        schema_id=create.schema_id,
        order=tuple(order),
        tips=tuple(sorted(set(order) - inner)),
        fields=fields,
    )


def _parents(
    operations: Mapping[bytes, Operation], backlinks: Mapping[bytes, bytes]
) -> dict[bytes, Sequence[bytes]]:
    """The operations after which each one comes.

    Some that it follows may be in another branch of a forked log than the one that is here.
    """
    creations = [each for each, operation in operations.items() if not operation.previous]
    found: dict[bytes, Sequence[bytes]] = {}
    for each, operation in operations.items():
        parents: Sequence[bytes] = operation.previous
        if not operations.keys() >= set(parents):
            known = [parent for parent in parents if parent in operations]
            before = [backlinks[each]] if backlinks.get(each) in operations else []
            parents = [*known, *before] or creations
        found[each] = parents
    return found
