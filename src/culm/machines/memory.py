"""The memory that a machine retains, summed over the objects reachable from it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, GetSetDescriptorType, MappingProxyType, ModuleType
from typing import Any

# PyPy has no `sys.getsizeof`, and another function in its place.
_size_of: Callable[[object], int] = getattr(gc, "get_rpy_memory_usage", sys.getsizeof)

# Code and its surroundings belong to the program, not to one machine.
_PROGRAM = (type, ModuleType, CodeType, GetSetDescriptorType, MappingProxyType)


def retained_size(machine: object) -> int:
    """Bytes of all objects reachable from `machine`, each counted once.

    Follows the references that the garbage collector follows, including buffers under memoryviews
    and variables captured by closures, but not classes, modules and globals.  Memory that a
    compiled class allocates itself counts as far as its ``__sizeof__`` reports it.
    """
    seen = {id(machine)}
    pending: list[object] = [machine]
    size = 0
    while pending:
        found = pending.pop()
        size += _size_of(found)
        for referent in _referents(found):
            if id(referent) not in seen and not isinstance(referent, _PROGRAM):
                seen.add(id(referent))
                pending.append(referent)
    return size


def _referents(found: object) -> list[Any]:
    if isinstance(found, FunctionType):
        return [found.__closure__, found.__defaults__, found.__kwdefaults__]
    return gc.get_referents(found)
