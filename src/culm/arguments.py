"""Arguments that are wrong in any state: of another type, or out of range.

Each `check_` function raises `TypeError` or `ValueError`, which name the argument; call it
before anything has changed.  `is_list` and its like are for values that may be of any type: the
answers of a store, and the results of a decoder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import fields
from typing import Any, TypeGuard

from culm.buffer import Buffer

UINT64_MAX = (1 << 64) - 1


def is_buffer(value: object) -> TypeGuard[Buffer]:
    """`value` is bytes, or a view of some."""
    return isinstance(value, (bytes, bytearray, memoryview))


def is_list(value: object) -> TypeGuard[list[Any]]:
    """`value` is a list, of anything."""
    return isinstance(value, list)


def is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    """`value` is a tuple, of anything."""
    return isinstance(value, tuple)


def is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    """`value` is a sequence, of anything."""
    return isinstance(value, Sequence)


def is_set(value: object) -> TypeGuard[Set[Any]]:
    """`value` is a set, of anything."""
    return isinstance(value, Set)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """`value` is a mapping, of anything."""
    return isinstance(value, Mapping)


def is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    """`value` is a dictionary, of anything."""
    return isinstance(value, dict)


def check_type(name: str, value: object, *kinds: type) -> None:
    """`value` is of one of `kinds`."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


def check_int(name: str, value: object, low: int = 0, high: int = UINT64_MAX) -> None:
    """`value` is an int from `low` to `high`."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be in [{low}, {high}], not {value}")


def check_bytes(name: str, value: bytes, size: int) -> None:
    """`value` is `size` bytes."""
    check_type(name, value, bytes)
    if len(value) != size:
        raise ValueError(f"{name} must be {size} bytes, not {len(value)}")


def check_text(name: str, value: str) -> None:
    """`value` is text that can be encoded: it has no halves of surrogate pairs."""
    check_type(name, value, str)
    if not is_encodable(value):
        raise ValueError(f"{name} must not have half a surrogate pair: {value!a:.100}")


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode `text`, which in Python may have halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_buffers(name: str, values: Sequence[Buffer]) -> list[bytes]:
    """The bytes of each of `values`, which must not be a buffer itself."""
    if not isinstance(values, list):
        check_type(name, values, Sequence)
        if isinstance(values, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"{name} must be a sequence of buffers, not {type(values).__name__}")
    return [each if type(each) is bytes else bytes(memoryview(each)) for each in values]


def check_seconds(name: str, value: float) -> None:
    """`value` is a duration: 0 or more, infinity included."""
    check_type(name, value, int, float)
    if not value >= 0:
        raise ValueError(f"{name} must be at least 0, not {value}")


def check_fields(
    record: object, *names: str, low: int = 0, high: int = UINT64_MAX, optional: bool = False
) -> None:
    """The attributes of these names are ints from `low` to `high`, or ``None`` if `optional`."""
    for name in names:
        value: Any = getattr(record, name)
        if not (optional and value is None):
            check_int(name, value, low, high)


def check_numbers(record: Any, *, low: int = 0, optional: Collection[str] = ()) -> None:
    """The int fields of a dataclass are `low` or more, and its float fields are durations.

    Those named in `optional` may be 0, too.

    Their annotations have to be written in words (``from __future__ import annotations``).
    """
    for field in fields(record):
        value = getattr(record, field.name)
        if field.type == "int":
            check_int(field.name, value, 0 if field.name in optional else low)
        elif field.type == "float":
            check_seconds(field.name, value)
