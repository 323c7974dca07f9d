"""Whether a history of reads and writes of registers is linearizable (Wing and Gong)."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass


@dataclass(slots=True)
class Operation:
    """One call of a client; `end` is infinite if its outcome is not known.

    `value` is what was written, or what was read (``None``: nothing was there).  Values
    written are unique.
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
    read = {op.value for op in operations if not op.write and op.end < math.inf}
    # What is not known to have happened, and was not seen, need not have happened.
    kept = [op for op in operations if op.end < math.inf or (op.write and op.value in read)]
    kept.sort(key=lambda op: op.start)
    must = sum(1 << at for at, op in enumerate(kept) if op.end < math.inf)
    seen: set[tuple[int, str | None]] = set()
    stack: list[tuple[int, str | None]] = [(0, None)]
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        done, value = state
        if done & must == must:
            return True
        stack += _next_states(kept, done, value)
    return False


def _next_states(
    kept: list[Operation], done: int, value: str | None
) -> list[tuple[int, str | None]]:
    """Where one more operation leads; a read that fits now may always come now."""
    left = [(at, op) for at, op in enumerate(kept) if not done >> at & 1]
    # What starts after something pending has ended cannot come before it.
    first_end = min(op.end for _, op in left)
    possible = [(at, op) for at, op in left if op.start <= first_end]
    for at, op in possible:
        if not op.write and op.value == value:
            return [(done | 1 << at, value)]
    return [(done | 1 << at, op.value) for at, op in possible if op.write]
