"""The events and effects that a machine's annotations declare, and a check for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from culm.machine import Effect, Event, RemoteProtocolError
from culm.machines.driver import Turn
from culm.testing.suite.runs import PropertyError


def check_declared(machine: object, turns: Sequence[Turn]) -> None:
    """Raise `PropertyError` if a machine gave an event or an effect that it does not declare.

    Or an error of the peer's with its traceback, which keeps frames and all that is in them alive.
    """
    events, effects = declared_events(type(machine)), declared_effects(type(machine))
    for turn in turns:
        for event in turn.events:
            if not isinstance(event, events):
                raise PropertyError(f"next_event does not declare {type(event).__name__}")
            for field in fields(event):
                if _is_attached(getattr(event, field.name)):
                    raise PropertyError(f"{type(event).__name__}.{field.name} is not detached")
        for effect in turn.effects:
            if not isinstance(effect, effects):
                raise PropertyError(f"next_effect does not declare {type(effect).__name__}")


def _is_attached(value: object) -> bool:
    return isinstance(value, RemoteProtocolError) and any(
        each is not None for each in (value.__traceback__, value.__cause__, value.__context__)
    )


def declared_events(machine: type[Any]) -> tuple[type[Any], ...]:
    """The types that the class declares for ``next_event``."""
    return _returned(machine, "next_event") or (Event,)


def declared_effects(machine: type[Any]) -> tuple[type[Any], ...]:
    """The types that the class declares for ``next_effect``; none without that method."""
    return (
        (_returned(machine, "next_effect") or (Effect,)) if hasattr(machine, "next_effect") else ()
    )


def _returned(machine: type[Any], method: str) -> tuple[type[Any], ...]:
    try:
        returned = get_type_hints(getattr(machine, method)).get("return", NoneType)
    except NameError:  # imported only for type checkers
        return ()
    given = {
        parameter: argument
        for base in _bases(machine)
        for parameter, argument in zip(
            getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False
        )
        if argument is not parameter  # which a base only hands on
    }
    found = dict.fromkeys(_members(returned, given))
    return tuple(each for each in found if each is not NoneType)


def _bases(machine: type[Any]) -> Iterator[Any]:
    """The generic bases with the arguments for their parameters, those of the class first."""
    for cls in reversed(machine.__mro__):
        yield from cls.__dict__.get("__orig_bases__", ())


def _members(declared: Any, given: dict[Any, Any]) -> Iterator[type[Any]]:
    if isinstance(declared, TypeVar):
        yield from _members(given.get(declared, declared.__bound__), given)
    elif get_origin(declared) in (Union, UnionType):
        for each in get_args(declared):
            yield from _members(each, given)
    else:
        yield get_origin(declared) or declared
