"""A tape: a stand-in for a machine, which notes every call.

The stand-in has the machine's type for type checkers and `isinstance`.  It passes every call on,
and notes the call and its outcome.  Handles that the machine gives out (streams, requests, links)
are stood in for as well, so that their calls are noted.  Queries that change nothing (`state`,
`read_size` and other properties) are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from enum import Enum
from inspect import isfunction
from typing import Any, ParamSpec, TypeVar, cast

from culm.capture.chance import Chance
from culm.capture.errors import CaptureError, ErrorCode
from culm.capture.records import Step
from culm.capture.redaction import (
    SECRET_ARGUMENTS,
    SECRET_CALLS,
    Redact,
    Secret,
    without_keys,
    without_payloads,
)
from culm.capture.values import CHANCE, Hidden, marked, name_of, to_value
from culm.machine import Effect, Event, Link
from culm.machines import Verb

M = TypeVar("M")
P = ParamSpec("P")

# Queries: nothing depends on whether, or how often, they are asked.
_QUERIES = frozenset({"read_size"})
_NOTHING = object()


class Tape:
    """Turns the calls of one machine into steps, and gives each to `put`."""

    def __init__(self, *, redact: Set[Redact] = frozenset({Redact.KEYS})) -> None:
        self._keys_out = Redact.KEYS in redact
        self._payloads_out = Redact.PAYLOADS in redact
        self._handles = 0
        self._has_machine = False
        self._deadline: object = _NOTHING

    def micros(self) -> int:
        """Microseconds since the last step that has a time."""
        return 0

    def put(self, step: Step) -> None:
        """Take a step."""
        raise NotImplementedError

    def calls_of(self, machine: Any) -> dict[str, Callable[..., Any]]:
        """Calls of the machine that are noted in ways of their own, by name."""
        return {}

    def stand_in(self, machine: M) -> M:
        """The machine, with every call noted.

        One machine for each tape: raises `CaptureError` (``SECOND_MACHINE``) for another.
        """
        if self._has_machine:
            raise CaptureError(ErrorCode.SECOND_MACHINE, "a recorder is for one machine")
        self._has_machine = True
        return cast(M, _stand_in(machine, self, 0))

    def handle(self, behind: Any, number: int) -> Any:
        """The handle of that number again, for the object handed out as it."""
        return _stand_in(behind, self, number)

    def make(self, kind: Callable[P, M], /, *arguments: P.args, **keywords: P.kwargs) -> M:
        """An object of the class `kind`, with every call noted, and how it was made.

        So a replay makes it, too.  The first is the machine; other objects are for its calls, as
        `culm.garlic.handshake.Credentials` are.
        """
        name = MADE + name_of(cast(type, kind))
        given = {key: self._argument(key, value) for key, value in keywords.items()}
        build = cast(Callable[..., M], kind)
        try:
            made = build(*map(_behind, arguments), **{k: _behind(v) for k, v in keywords.items()})
        except Exception as error:
            self.note(0, name, arguments, given, None, error=error)
            raise
        self._handles += self._has_machine
        shown = _stand_in(made, self, self._handles)
        self._has_machine = True
        self.note(0, name, arguments, given, shown)
        return cast(M, shown)

    def _argument(self, name: str, value: object) -> object:
        secret = value and name in SECRET_ARGUMENTS and self._keys_out
        return Secret(value) if secret else value

    def note(
        self,
        on: int,
        name: str,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        result: object,
        *,
        error: BaseException | None = None,
        state: Enum | None = None,
    ) -> None:
        """Note one call; a deadline only if it has changed."""
        if name == "next_deadline":
            if result == self._deadline:
                return
            self._deadline = result
        given = self._mark if self._keys_out and name in SECRET_CALLS else self._written
        self.put(
            Step(
                self.micros() / 1e6,
                on,
                name,
                [given(each) for each in arguments],
                {key: given(each) for key, each in keywords.items()},
                self._written(result),
                None if error is None else to_value(error),
                None if state is None else state.name,
            )
        )

    def note_plain(self, on: int, name: str, arguments: tuple[Any, ...], result: object) -> None:
        """Note a call without keywords or state that raised nothing: most calls are such."""
        self.note(on, name, arguments, {}, result)

    def verb(self, name: str, verb: Verb, machine: Any, arguments: Mapping[str, Any]) -> Any:
        """Call a verb of the registry, and note it as one step: ``!`` and its name."""
        try:
            result = self.wrapped(verb(_behind(machine), **arguments))
        except Exception as error:
            self.note(0, f"!{name}", (), arguments, None, error=error)
            raise
        self.note(0, f"!{name}", (), arguments, result)
        return result

    def _written(self, value: object) -> Any:
        written = to_value(value, self._special)
        return without_payloads(written) if self._payloads_out else written

    def _mark(self, value: object) -> Any:
        return without_keys(Hidden(value))

    def _special(self, value: object) -> Any:
        if isinstance(value, Chance):
            return marked(CHANCE)
        if isinstance(value, _StandIn):
            behind = value.machine_behind
            link = {"link": behind.number} if isinstance(behind, Link) else {}
            return marked("object", number=value._number, **link)
        return without_keys(value) if self._keys_out else None

    def wrapped(self, result: Any) -> Any:
        """A result, with stand-ins for the handles in it: each gets a number of its own."""
        if type(result) in _SEQUENCES and any(map(_is_handle, result)):
            return type(result)(self.wrapped(each) for each in result)
        if not _is_handle(result):
            return result
        self._handles += 1
        return _stand_in(result, self, self._handles)


_SEQUENCES = frozenset({list, tuple})
_handles: dict[type, bool] = {}


def _is_handle(value: object) -> bool:
    """Whether a result is something to be called, and not data."""
    kind = type(value)
    known = _handles.get(kind)
    if known is None:
        known = _handles[kind] = _gives_handles(kind)
    return known


def _gives_handles(kind: type) -> bool:
    if kind.__module__ == "builtins" or issubclass(kind, (Event, Effect, Enum, tuple)):
        return False
    return not hasattr(kind, "__dataclass_fields__") and any(map(isfunction, _public(kind)))


def _public(kind: type) -> Iterator[Any]:
    return (getattr(kind, name, None) for name in dir(kind) if not name.startswith("_"))


class _StandIn:
    """The common part of all stand-ins: the real object, its recorder and its number."""

    __slots__ = ("__weakref__", "_number", "_shown", "_tape", "machine_behind")

    machine_behind: Any
    _tape: Tape
    _number: int
    _shown: dict[str, Any]  # the stand-ins for the last values of properties


def _stand_in(behind: Any, tape: Tape, number: int) -> Any:
    calls = {} if number else tape.calls_of(behind)
    made: Any = object.__new__(_class_for(type(behind), frozenset(calls)))
    for name, call in calls.items():
        object.__setattr__(made, name, call)
    object.__setattr__(made, "machine_behind", behind)
    object.__setattr__(made, "_tape", tape)
    object.__setattr__(made, "_number", number)
    object.__setattr__(made, "_shown", {})
    return made


_CLASSES: dict[tuple[type, Set[str]], type] = {}


def _class_for(kind: type, own: Set[str]) -> type:
    """The class of stand-ins for objects of `kind`, each of which has calls of its `own`."""
    made = _CLASSES.get((kind, own))
    if made is None:
        parts: dict[str, Any] = {
            "__slots__": tuple(own),
            "__class__": property(lambda _: kind),
            "__doc__": kind.__doc__,
            **{name: part for name, part in _forwarded(kind).items() if name not in own},
        }
        made = _CLASSES[kind, own] = type(f"Recorded{kind.__name__}", (_StandIn,), parts)
    return made


def _forwarded(kind: type) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name in dir(kind):
        part = getattr(kind, name, None)
        if name in _SPECIAL and part is not None:
            parts[name] = _special(name)
        elif name.startswith("_"):
            continue
        elif isfunction(part):
            parts[name] = _query(name) if name in _QUERIES else _call(name, part)
        else:
            parts[name] = property(_reader(name))
    parts["__getattr__"] = _attribute
    return parts


_SPECIAL = ("__eq__", "__hash__", "__repr__", "__len__", "__iter__", "__contains__", "__getitem__")


def _special(name: str) -> Any:
    def special(self: Any, *arguments: Any) -> Any:
        return getattr(self.machine_behind, name)(*map(_behind, arguments))

    return special


def _attribute(self: Any, name: str) -> Any:
    """An attribute that only this object has, and not its class."""
    return _reader(name)(self)


def _query(name: str) -> Any:
    def query(self: Any, *arguments: Any) -> Any:
        return getattr(self.machine_behind, name)(*arguments)

    return query


def _reader(name: str) -> Callable[[Any], Any]:
    """A property; one that gives handles is noted, for the replay to have them, too.

    One that gives the same again is not: programs ask for some many times a second.
    """

    def read(self: Any) -> Any:
        found = getattr(self.machine_behind, name)
        before = self._shown.get(name)
        if before is not None and before.machine_behind is found:
            return before
        shown = self._tape.wrapped(found)
        if shown is not found:
            self._tape.note(self._number, name, (), {}, shown)
            if isinstance(shown, _StandIn):
                self._shown[name] = shown
        return shown

    return read


def _call(name: str, method: Callable[..., Any]) -> Any:
    takes_event = name == "next_event"

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        behind, tape = self.machine_behind, self._tape
        plain = not keywords
        for each in arguments:
            plain = plain and type(each) in _DATA
        try:
            if plain:
                result = method(behind, *arguments)
            else:
                given = {key: _behind(each) for key, each in keywords.items()}
                result = method(behind, *map(_behind, arguments), **given)
        except Exception as error:
            tape.note(self._number, name, arguments, keywords, None, error=error)
            raise
        shown = result if type(result) in _DATA or takes_event else tape.wrapped(result)
        if keywords or (takes_event and result is not None):
            state = behind.state if takes_event else None
            tape.note(self._number, name, arguments, keywords, shown, state=state)
        else:
            tape.note_plain(self._number, name, arguments, shown)
        return shown

    return call


MADE = "+"
"""The first character of the names of steps that make an object; its class follows."""

_DATA = frozenset({type(None), bool, int, float, str, bytes})


def is_stand_in(value: object) -> bool:
    """Whether a tape has made it: for a machine, or for a handle that one has handed out."""
    return issubclass(type(value), _StandIn)


def tape_of(value: object) -> Tape | None:
    """The tape whose stand-in this is; ``None`` if it is none."""
    return value._tape if issubclass(type(value), _StandIn) else None  # type: ignore[attr-defined]


def _behind(value: Any) -> Any:
    return value.machine_behind if issubclass(type(value), _StandIn) else value
