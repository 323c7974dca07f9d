"""Values to answer effects with, and a check of whether an effect's type allows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from culm.arguments import is_dict, is_list
from culm.machine import Effect
from culm.machines.operations import StoreFault
from culm.testing.suite.runs import PropertyError

_FIELDS: tuple[Any, ...] = (None, object(), -1, b"", "", True)


def answer_type(kind: type[Effect[Any]]) -> Any:
    """The ``R`` that the class `kind` declares as an ``Effect[R]``.

    Raises `PropertyError` if it declares none.
    """
    found = _declared(kind)
    if found is None or isinstance(found, TypeVar):
        raise PropertyError(f"{kind.__name__} is no Effect[R]: it does not say what answers it")
    return found


def _declared(kind: type) -> Any:
    """The argument of `Effect` in the bases of a class: a type, a variable or none."""
    bases: tuple[Any, ...] = kind.__dict__.get("__orig_bases__", kind.__bases__)
    for base in bases:
        origin = get_origin(base) or base
        if Effect not in origin.__mro__:
            continue
        given = get_args(base)
        found = _declared(origin) if origin is not Effect else None
        if origin is Effect or isinstance(found, TypeVar):
            return given[0] if given else None
        return found
    return None


def conforms(value: object, declared: Any) -> bool:
    """Whether `value` is of the declared type; a bool is no int here."""
    origin, given = get_origin(declared), get_args(declared)
    if declared is Any or declared is object:
        return True
    if declared is None or declared is NoneType:
        return value is None
    if origin in (Union, UnionType):
        return any(conforms(value, each) for each in given)
    if origin is not None and is_dict(value):
        pairs = len(given) == 2 and issubclass(dict, origin)
        return pairs and all(
            conforms(k, given[0]) and conforms(v, given[1]) for k, v in value.items()
        )
    if origin is not None:
        if not isinstance(value, Iterable) or not isinstance(value, origin):
            return False
        return all(conforms(each, given[0]) for each in cast("Iterable[object]", value))
    return isinstance(value, declared) and not (declared is int and isinstance(value, bool))


def values(right: object) -> Iterator[object]:
    """Values of all kinds, and some that are nearly `right`."""
    yield from (None, False, True, 0, 1, -1, 1 << 64, 0.5, float("nan"), "", "text", b"nonsense")
    yield from ((), [], {}, set(), [None], [object()], {0: None}, {0: b""}, object(), type(right))
    yield from (OSError("disk full"), StoreFault(), lambda: right, iter(()), str(right))
    yield from _near(right)


def _near(right: Any) -> Iterator[object]:
    if isinstance(right, bytes):
        yield from (right + bytes(1 << 17), bytearray(right), memoryview(right), right[:-1])
    elif is_list(right):
        yield from (tuple(right), [*right, object()], [*right, None], [*right, *right], right[::-1])
        yield from ([each] for item in right[:2] for each in _near(item))
    elif is_dict(right):
        yield from ({**right, -1: b""}, {**right, "": b""}, list(right), dict.fromkeys(right))
        yield from (dict.fromkeys(right, each) for each in (b"", "", 0))
    elif hasattr(right, "_fields"):  # a named tuple
        yield tuple(right)
        yield from (right._replace(**{name: each}) for name in right._fields for each in _FIELDS)
    elif is_dataclass(right) and not isinstance(right, type):
        for field in fields(right):
            for each in _FIELDS:
                try:
                    yield replace(right, **{field.name: each})
                except Exception:  # its constructor rightly checks its fields
                    continue
