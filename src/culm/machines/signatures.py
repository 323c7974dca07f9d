"""Values from JSON, converted to the types in a signature.

JSON has no enums: a member is given by its name, as culm writes it everywhere.  The functions
here rely on annotations alone, so that verbs and constructors state their arguments only once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

_FROM_JSON: tuple[object, ...] = (
    bool,
    int,
    float,
    str,
    bytes,
    NoneType,
    list,
    dict,
    Sequence,
    Mapping,
    Hashable,
    Any,
)


@lru_cache(maxsize=1024)
def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """The signature of `function`, its annotations as types where they can be found."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:  # a name that only type checkers know
        return inspect.signature(function)


def by_name(name: str, annotation: object, value: Any) -> Any:
    """`value`, or the member that it names if `annotation` is or includes an enum.

    Names may be in upper or lower case.  Raises `ValueError`, which lists the names.
    """
    kinds = _alternatives(annotation)
    enums = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum)]
    if not isinstance(value, str) or str in kinds or not enums:
        return value
    known = {member.name: member for kind in enums for member in kind}
    if value.upper() not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return known[value.upper()]


def is_one_of(annotation: object, value: object) -> bool:
    """Whether `value` is of the type `annotation`; an int is a float, and a bool is no int."""
    kinds = _alternatives(annotation)
    if isinstance(value, bool):
        return bool in kinds
    return any(
        not isinstance(kind, type)
        or isinstance(value, kind)
        or (kind is float and isinstance(value, int))
        for kind in kinds
    )


def named_arguments(function: Callable[..., object], args: Mapping[str, Any]) -> dict[str, Any]:
    """`args` for `function`, with members of enums in place of their names."""
    if not any(isinstance(value, str) for value in args.values()):
        return dict(args)
    parameters = signature_of(getattr(function, "__func__", function)).parameters
    return {
        name: by_name(name, parameters[name].annotation, value) if name in parameters else value
        for name, value in args.items()
    }


def type_words(annotation: object) -> str:
    """The JSON values for `annotation`, in words for people: ``int``, ``A | B``, ``null``."""
    words: list[str] = []
    for kind in _alternatives(annotation):
        if isinstance(kind, type) and issubclass(kind, Enum):
            words += kind.__members__
        elif kind is NoneType:
            words.append("null")
        elif kind not in (bytearray, memoryview):  # which JSON does not tell from bytes
            words.append(kind.__name__ if isinstance(kind, type) else str(kind))
    return " | ".join(words)


def json_can_write(function: Callable[..., object]) -> bool:
    """Whether all arguments that `function` requires can be written in JSON."""
    return all(
        any(_comes_from_json(kind) for kind in _alternatives(parameter.annotation))
        for parameter in signature_of(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    )


def call_words(name: str, function: Callable[..., object], *, skip: int = 0) -> str:
    """The signature of `function` without its first `skip` parameters, in words for people.

    For example ``send(stream: int, data: bytes = ...)``.
    """
    words: list[str] = []
    for parameter in list(signature_of(function).parameters.values())[skip:]:
        word = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        if parameter.annotation not in (parameter.empty, Any, "Any"):
            word += f": {type_words(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            default = parameter.default
            word += f" = {default.name}" if isinstance(default, Enum) else f" = {default!r}"
        words.append(word)
    return f"{name}({', '.join(words)})"


def on_handle(
    handle: str, find: Callable[[Any, int], object], method: Callable[..., object]
) -> Callable[..., object]:
    """`method` of a handle as a verb of the machine, which takes the handle's number.

    handle: the name of that argument; find: the machine's method that returns the handle
        with that number, or raises a local error.
    """

    def verb(machine: Any, /, **args: Any) -> object:
        # By their names, so that a wrapper around the machine is asked.
        found = getattr(machine, find.__name__)(args.pop(handle))
        return getattr(found, method.__name__)(**args)

    signature = signature_of(method)
    own, *rest = signature.parameters.values()
    number = inspect.Parameter(handle, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=int)
    verb.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[own.replace(name="machine"), number, *rest]
    )
    return verb


def _alternatives(annotation: object) -> tuple[object, ...]:
    """The parts of a union, or the single type; ``list`` stands for ``list[int]``."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return tuple(part for each in get_args(annotation) for part in _alternatives(each))
    return (NoneType if annotation is None else origin or annotation,)


def _comes_from_json(kind: object) -> bool:
    return (
        kind is inspect.Parameter.empty
        or kind in _FROM_JSON
        or (isinstance(kind, type) and issubclass(kind, Enum))
    )
