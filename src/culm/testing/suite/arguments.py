"""Wrong arguments of a user's calls, and their effect on a machine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from culm.arguments import is_buffer, is_dict, is_list, is_tuple
from culm.machine import ContractErrorCode, LocalProtocolError
from culm.machines.config import read_config
from culm.machines.driver import Driver
from culm.machines.operations import Advance, Call, Complete, Operation, Receive, ReceiveDatagram
from culm.machines.signatures import signature_of
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.runs import (
    PropertyError,
    check_unchanged,
    driver_for,
    expect_equal,
    finish,
    retold,
    told_to,
    visible,
    watchdog,
)
from culm.testing.suite.strategies import Draw, conversation, pick

_DEPTH_MAX = 3  # of values within values
_TRIES_MAX = 32
_REFUSALS = (LocalProtocolError, TypeError, ValueError)

# Values of the wrong type in most places, and numbers beyond most ranges.
_ODD: tuple[Any, ...] = (None, object(), "nonsense", b"nonsense", [], [object()], 0.5, float("nan"))
_NUMBERS: tuple[Any, ...] = (-1, 0, 1 << 31, 1 << 32, 1 << 63, 1 << 64)
_NO_BYTES = (int, float, str, list)  # must not stand for bytes
_LONG = 1 << 17
_HALF = "\ud800"  # half a surrogate pair: text in Python, and in no encoding


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong argument, or part of one, in one call that an operation makes of the machine.

    number: index of the call; path: the argument, and the path to the part.
    harmful: whether the machine, if it takes the value, does something else than was meant.
    """

    number: int
    path: tuple[Any, ...]
    value: Any
    harmful: bool = False

    def __str__(self) -> str:
        words = ".".join(map(str, self.path))
        return f"{words} = {self.value!r:.80} in its call {self.number}"


def every_argument(spec: MachineSpec) -> None:
    """The law of `arguments` for the first occurrence of each argument of each call."""
    _check_configs(spec)
    met: set[Any] = set()
    for told in conversations(spec):
        with retold(spec, told):
            for at, wrongs in list(_places(spec, told, met)):
                with watchdog():
                    for taken in _try(spec, told, at, wrongs):
                        _go_on(spec, told, at, taken)


def arguments(spec: MachineSpec, draw: Draw) -> None:
    """A wrong argument is refused at once, or does no harm.

    Each argument of each call, and each part of it, is made wrong at some moment: of another
    type, a number out of range, or text that has no encoding.  The call raises
    `LocalProtocolError`, `TypeError` or `ValueError` (but no codec's, which names no argument),
    and has changed nothing; or it is taken, and then later calls raise only for their own
    arguments.  The same holds for the config of a machine.
    """
    told = conversation(spec, draw)
    with retold(spec, told):
        places = list(_places(spec, told))
        if not places:
            return
        at, wrongs = pick(places, draw)
        start = draw(st.integers(0, len(wrongs) - 1))
        for taken in _try(spec, told, at, wrongs[start : start + _TRIES_MAX]):
            _go_on(spec, told, at, taken)
            return


# Recording of calls, one of which may be made wrong.


class _Seen:
    """A machine, or a handle of it, whose calls are recorded and one of which may be made wrong."""

    def __init__(self, inner: Any, seen: list[tuple[str, Mapping[str, Any]]], wrong: Wrong | None):
        self.__dict__.update(_inner=inner, _seen=seen, _wrong=wrong)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name.startswith("_") or not inspect.ismethod(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            bound = _bound(found, args, named)
            number = len(self._seen)
            self._seen.append((found.__qualname__, dict(bound.arguments)))
            wrong = self._wrong
            if wrong is not None and wrong.number == number:
                name, *inside = wrong.path
                bound.arguments[name] = _changed(bound.arguments[name], inside, wrong.value)
            result = found(*bound.args, **bound.kwargs)
            return _Seen(result, self._seen, wrong) if _is_handle(result) else result

        return call


def _bound(method: Callable[..., object], args: Any, named: Any) -> inspect.BoundArguments:
    signature = signature_of(method.__func__)  # type: ignore[attr-defined]
    _, *rest = signature.parameters.values()
    bound = signature.replace(parameters=rest).bind(*args, **named)
    bound.apply_defaults()
    return bound


def _is_handle(value: object) -> bool:
    """Whether `value` is an object with verbs, not a value."""
    kind = type(value)
    if isinstance(value, (Enum, tuple)) or is_dataclass(value):
        return False
    return kind.__module__ != "builtins" and not isinstance(value, (Mapping, Sequence))


def _apply(driver: Driver, operation: Operation, wrong: Wrong | None = None) -> list[Any]:
    """Do `operation` without draining; returns the calls that it made of the machine."""
    seen: list[Any] = []
    machine = driver.machine
    match operation, wrong:
        case Call(), _:
            driver.wrap(_Seen(machine, seen, wrong))
            try:
                driver.apply(operation)
            finally:
                driver.wrap(machine)
        case Advance(), Wrong():
            driver.apply(Advance(wrong.value))
        case Receive() | ReceiveDatagram(), Wrong():
            driver.apply(replace(operation, data=wrong.value))
        case _:
            driver.apply(operation)
    return seen


# Places of wrong values, and the values.


def _paths(value: Any, depth: int = 0) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The parts of a value, itself first, each after its path."""
    yield (), value
    if depth == _DEPTH_MAX:
        return
    inside: list[tuple[Any, Any]] = []
    if is_dataclass(value) and not isinstance(value, type):
        made_of = [field.name for field in fields(value) if field.init]
        # An instance with a private field is only made by its own module.
        if not any(name.startswith("_") for name in made_of):
            inside = [(name, getattr(value, name)) for name in made_of]
    elif is_tuple(value) and hasattr(value, "_fields"):
        inside = list(zip(getattr(value, "_fields", ()), value, strict=True))
    elif is_list(value) or is_tuple(value):
        inside = list(enumerate(value[:1]))
    elif is_dict(value):
        inside = [(key, value[key]) for key in list(value)[:1]]
    for name, part in inside:
        for path, each in _paths(part, depth + 1):
            yield (name, *path), each


def _changed(value: Any, path: Sequence[Any], wrong: Any) -> Any:
    """`value` with `wrong` at `path`, which its constructor may refuse."""
    if not path:
        return wrong
    name, *rest = path
    if is_dataclass(value):
        return replace(value, **{name: _changed(getattr(value, name), rest, wrong)})  # type: ignore[type-var]
    if hasattr(value, "_replace"):
        return value._replace(**{name: _changed(getattr(value, name), rest, wrong)})
    if is_dict(value):
        return {**value, name: _changed(value[name], rest, wrong)}
    changed = [*value]
    changed[name] = _changed(value[name], rest, wrong)
    return type(value)(changed)


def _wrong(right: Any) -> Iterator[Any]:
    """Values unlike `right`, or nearly like it."""
    yield from _ODD
    yield from _NUMBERS
    if isinstance(right, str):
        yield from (right.encode(), "x" * _LONG, [right], [[right]], right + _HALF)
    elif is_buffer(right):
        yield from (list(right), [[right]], b"", bytes(_LONG))
        yield from (bytearray(right), memoryview(bytes(right)))
    elif is_list(right) or is_tuple(right):
        yield from ([*right, object()], [*right, None], [*right, "a"], [*right, ["a"]])
        yield from ([*right, bytearray(b"a")], [*right, memoryview(b"a")], iter(right))
    elif isinstance(right, Enum):
        yield from (right.name, 99)
    elif is_dict(right):
        yield from ({None: None}, {-1: b""}, {1: ""}, {1: 1}, {"a": b""}, {_HALF: 1})
    elif type(right) is int:
        # The first is equal, and so is found wherever the right one is a key.
        yield from (float(right), right + 0.5, str(right), [right])


def _places(
    spec: MachineSpec, told: Conversation, met: set[Any] | None = None
) -> Iterator[tuple[int, list[Wrong]]]:
    """The wrong values for each operation's calls of the machine, if there are any.

    met: the parts of calls that are passed over; those that are not join them.
    """
    driver = driver_for(spec, told)
    driver.start()
    for at, operation in enumerate(told.operations):
        wrongs: list[Wrong] = []
        match operation:
            case Receive(data) | ReceiveDatagram(data):
                calls: list[tuple[str, Mapping[str, Any]]] = [
                    (type(operation).__name__, {"data": data})
                ]
            case Advance(now):
                calls = [("Advance", {"now": now})]
            case _:
                calls = []
        error = None
        try:
            calls += _apply(driver, operation)
        except LocalProtocolError as refusal:
            error = refusal
        for number, (name, given) in enumerate(calls):
            for argument, value in given.items():
                for path, part in _paths(value):
                    whole = (argument, *path)
                    if met is not None:
                        if (name, whole) in met:
                            continue
                        met.add((name, whole))
                    is_bytes = isinstance(part, bytes)
                    wrongs += [
                        Wrong(number, whole, each, is_bytes and isinstance(each, _NO_BYTES))
                        for each in _wrong(part)
                    ]
        driver.drain(operation, error=error)
        driver.answer()
        if wrongs:
            yield at, wrongs


# Trying.


def _try(
    spec: MachineSpec, told: Conversation, at: int, wrongs: Sequence[Wrong]
) -> Iterator[Wrong]:
    """Try each of `wrongs` in operation number `at`; yields those that are not refused."""
    story = list(told.operations)
    driver, turns, any_refused = *told_to(spec, told, story[:at]), False
    for wrong in wrongs:
        before = visible(driver)
        if not _refused(driver, story[at], wrong):
            if wrong.harmful and driver.closed is None:
                raise PropertyError(f"{story[at]} was taken with {wrong}")
            yield wrong
            driver, turns = told_to(spec, told, story[:at])
            continue
        check_unchanged(f"{wrong}", driver, before)
        any_refused = True
    if any_refused:
        without = told_to(spec, told, story)[1]
        for operation in story[at:]:
            turns += driver.run(operation)
        expect_equal(f"wrong arguments of {story[at]} made a difference", without, turns)


def _refused(driver: Driver, operation: Operation, wrong: Wrong | None) -> bool:
    try:
        _apply(driver, operation, wrong)
    except Exception as error:
        if _is_refusal(error):
            return True
        raise PropertyError(f"{operation} with {wrong} raised {error!r}") from error
    return False


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, _REFUSALS) and not isinstance(error, UnicodeError)


def _go_on(spec: MachineSpec, told: Conversation, at: int, wrong: Wrong) -> None:
    """Tell the rest of the story to a machine that has taken `wrong`, and end it."""
    story = list(told.operations)
    driver, _ = told_to(spec, told, story[:at])
    _refused(driver, story[at], wrong)
    try:
        turns = [driver.drain(None), *driver.answer()]
        for operation in story[at + 1 :]:
            if not isinstance(operation, Call):
                turns += driver.run(operation)
                continue
            _refused(driver, operation, None)
            turns += [driver.drain(None), *driver.answer()]
        for turn in [*turns, *finish(driver)]:
            code = None if turn.error is None else turn.error.code
            taken = code in (None, ContractErrorCode.UNKNOWN_TICKET)  # the latter was recorded
            if isinstance(turn.operation, Complete) and not taken:
                raise PropertyError(f"{turn.operation} is refused: {turn.error}")
    except Exception as error:
        raise PropertyError(f"{story[at]} was taken with {wrong}, and then: {error!r}") from error


# Configs.


def _check_configs(spec: MachineSpec) -> None:
    """Check that a wrong config is refused when the machine is made, or does no harm."""
    plain = read_config(spec.machine.keys, {})
    told = Conversation(name="made of wrong values", operations=[])
    for key in spec.machine.keys:
        for value in _wrong(plain[key.name]):
            what = f"made with {key.name} = {value!r:.80}"
            try:
                driver = Driver(
                    spec.machine.build({**plain, key.name: value}), verbs=spec.machine.verbs
                )
            except Exception as error:
                if _is_refusal(error):
                    continue
                raise PropertyError(f"{what}: {error!r}") from error
            with retold(spec, told), watchdog():
                try:
                    driver.start()
                    finish(driver)
                except Exception as error:
                    raise PropertyError(f"{what}, and then: {error!r}") from error
