"""Whether a history of reads and writes of registers is linearizable.

Values written are unique, so each read can be traced to its write.  A write and the
reads of its value stand together in any order that fits (Gibbons and Korach, "Testing
shared memories", 1997): such a group comes before another one if one of its calls ended
before one of the other's began, and the history fits if no two come before each other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations


@dataclass(slots=True)
class Operation:
    """One call of a client; `end` is infinite if its outcome is unknown.

    `value` was written, or read (``None``: there was nothing).  Values written are unique.
    """

    key: str
    write: bool
    start: float
    value: str | None = None
    end: float = math.inf


def find_violation(history: list[Operation]) -> str | None:
    """The key whose operations fit no order, if there is one."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    for key, operations in by_key.items():
        if not _fits(operations):
            return key
    return None


def _fits(operations: list[Operation]) -> bool:
    """Whether the operations of one register have an order."""
    # The register is empty at first, as if that had been written before everything.
    writes: dict[str | None, Operation] = {None: Operation("", True, -math.inf, end=-math.inf)}
    writes.update({op.value: op for op in operations if op.write})
    reads: dict[str | None, list[Operation]] = defaultdict(list)
    for op in operations:
        if not op.write and op.end < math.inf:
            if op.value not in writes or op.end < writes[op.value].start:
                return False  # it has seen a value from the future
            reads[op.value].append(op)
    # A write of unknown outcome that was never read need not have happened.
    groups = [
        _span((write, *reads[value]))
        for value, write in writes.items()
        if write.end < math.inf or reads[value]
    ]
    return not any(
        first_end < second_start and second_end < first_start
        for (first_end, first_start), (second_end, second_start) in combinations(groups, 2)
    )


def _span(group: Iterable[Operation]) -> tuple[float, float]:
    """When the first call of a group ended, and when the last one began."""
    calls = tuple(group)
    return min(call.end for call in calls), max(call.start for call in calls)
