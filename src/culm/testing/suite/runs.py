"""Ways of running a story that the properties compare with each other."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from functools import wraps
from types import FrameType, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from culm.arguments import is_list
from culm.machine import Closed, Effect, Event, LocalProtocolError, RemoteProtocolError
from culm.machines.driver import Driver, EndlessError, Turn
from culm.machines.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Operation,
    Receive,
    operation_to_json,
)
from culm.machines.plain import to_plain
from culm.testing import record
from culm.testing.captures import Story, add_story
from culm.testing.spec import Conversation, MachineSpec

_DEADLINES_MAX = 1_000
SECONDS_MAX = 20.0


class PropertyError(AssertionError):
    """A machine does not keep the contract."""


def told_to(
    spec: MachineSpec, conversation: Conversation, story: Sequence[Operation]
) -> tuple[Driver, list[Turn]]:
    """Do `story` to a new machine with the config of `conversation`; its driver, and all turns."""
    driver = driver_for(spec, conversation)
    return driver, driver.tell(story)


def run_story(
    spec: MachineSpec,
    conversation: Conversation,
    story: Sequence[Operation],
    *,
    take: Callable[[Any], bytes] | None = None,
) -> list[Turn]:
    """Do `story` to a new machine with the config of `conversation`; returns all turns."""
    driver = driver_for(spec, conversation)
    driver.take_by(take)
    return driver.tell(story)


def merged(story: Sequence[Operation]) -> list[Operation]:
    """The story with adjacent bytes joined into one chunk."""
    result: list[Operation] = []
    for operation in story:
        last = result[-1] if result else None
        if (
            isinstance(operation, Receive)
            and isinstance(last, Receive)
            and operation.link == last.link
        ):
            result[-1] = replace(last, data=last.data + operation.data)
        else:
            result.append(operation)
    return result


def finish(driver: Driver) -> list[Turn]:
    """Do all that must end a machine: eof, close, answers, every deadline.

    Returns the turns; ``driver.closed`` is set in the end, unless the machine does not end.
    """
    turns = driver.answer()
    ends: list[Operation] = (
        [Eof()] if driver.is_stream else [Eof(link) for link in driver.open_links]
    )
    for operation in (*ends, Call("close")):
        done = driver.run(operation)
        if done[0].error is not None:
            raise PropertyError(f"{operation} is refused: {done[0].error}")
        turns += done
    for _ in range(_DEADLINES_MAX):
        deadline = driver.deadline()
        if driver.closed is not None or deadline is None:
            break
        turns += driver.run(Advance(deadline))
        check_past(deadline, driver.deadline())
    return turns


def end(driver: Driver) -> list[Turn]:
    """`finish`, and raise `PropertyError` if the machine does not end."""
    turns = finish(driver)
    if driver.closed is None:
        raise PropertyError("eof, close, answers and all deadlines past: still not Closed")
    return turns


def check_past(now: float, deadline: float | None) -> None:
    """Raise `PropertyError` if a machine that was told `now` waits for that time or earlier."""
    if deadline is not None and deadline <= now:
        raise PropertyError(f"told that it is {now}, the machine still waits for {deadline}")


def check_closed(driver: Driver, turns: Sequence[Turn]) -> None:
    """Check that `Closed` is the last event, and that a closed machine asks for nothing."""
    events = [event for turn in turns for event in turn.events]
    closings = [index for index, event in enumerate(events) if isinstance(event, Closed)]
    if closings and closings != [len(events) - 1]:
        raise PropertyError(f"Closed is not the last event or not the only: {to_plain(events)}")
    machine = driver.machine
    if driver.closed is None:
        if driver.is_stream and machine.trailing_data:
            raise PropertyError("there is trailing data before the end")
        return
    if any(machine.next_event() is not None for _ in range(3)):
        raise PropertyError("an event comes after Closed")
    if driver.deadline() is not None:
        raise PropertyError("a closed machine still waits for a deadline")
    if driver.is_stream and machine.read_size() != 0:
        raise PropertyError("a closed machine still asks for bytes")
    if driver.is_stream and driver.closed.error is not None and machine.trailing_data:
        raise PropertyError("there is trailing data after an error")
    if driver.open_links:
        raise PropertyError(f"a closed machine still has the links {driver.open_links}")
    if any(link.read_size() or not link.closed for link in driver.links.values()):
        raise PropertyError("a link of a closed machine is open or asks for bytes")


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


def expect_equal(what: str, expected: object, found: object) -> None:
    """Raise `PropertyError`, which shows the first difference, unless the two are equal."""
    if expected == found:
        return
    if is_list(expected) and is_list(found):
        for index, (left, right) in enumerate(zip(expected, found, strict=False)):
            if left != right:
                raise PropertyError(f"{what}, at {index}:\n  {left}\n  {right}")
        raise PropertyError(
            f"{what}: {len(expected)} and then {len(found)}; one has also\n"
            f"  {(expected + found[len(expected) :])[min(len(expected), len(found))]}"
        )
    raise PropertyError(f"{what}:\n  {expected}\n  {found}")


class _Witness:
    """Records the operations on the machines of an example, also those of the law itself.

    operations: those on the machine that was driven last.
    """

    def __init__(self, story: Sequence[Operation]) -> None:
        self.operations = story
        self._answers: Mapping[int, object] = {}  # of that machine's own store, by ticket

    def follow(self, driver: Driver) -> None:
        """Record the operations on the machine of `driver`, and the answers of its store."""
        done: list[Operation] = []
        answers: dict[int, object] = {}

        def hear(operation: Operation) -> None:
            self.operations, self._answers = done, answers
            done.append(operation)

        driver.listen(hear)
        if (respond := driver.respond) is not None:

            @wraps(respond)
            def answer(effect: Effect[Any]) -> object:
                answers[effect.ticket] = result = respond(effect)
                return result

            driver.answer_by(answer)

    def lines(self) -> Iterator[str]:
        """The story for the line driver, a line each, without operations that JSON cannot write."""
        answers = self._answers
        for operation in self.operations:
            match operation:
                case Complete(int(ticket), result) if answers.get(ticket, answers) is result:
                    yield json.dumps({"op": "respond", "ticket": ticket})
                case _:
                    with suppress(AttributeError, TypeError):  # a wrong argument
                        yield json.dumps(operation_to_json(operation))


NOTE_LINES_MAX = 400
"""The most lines of a note."""

_witnesses: list[_Witness] = []  # of the examples under way, one within the other


def _shortened(lines: list[str]) -> list[str]:
    """The lines of a note, without the middle of a flood too long to read."""
    if len(lines) <= NOTE_LINES_MAX:
        return lines
    ends = NOTE_LINES_MAX // 2
    left_out = f"({len(lines) - 2 * ends} lines left out; CULM_CAPTURES=DIRECTORY keeps all)"
    return [*lines[:ends], left_out, *lines[-ends:]]


@contextmanager
def retold(
    spec: MachineSpec, told: Conversation, story: Sequence[Operation] = ()
) -> Generator[None]:
    """Add the operations, as the line driver reads them, to an exception that leaves the block.

    They are those on the machine of the latest driver (of `driver_for`) in the block, or
    `story` if there is none.
    """
    witness = _Witness(story)
    _witnesses.append(witness)
    try:
        yield
    except Exception as error:
        config = json.dumps(to_plain(told.config))
        command = f"python -m culm.testing.drive {spec.name} --config '{config}'"
        lines = _shortened([*witness.lines()])
        error.add_note("\n".join([f"{told.name}, to be told to {command}", *lines]))
        add_story(error, Story(spec, told, tuple(witness.operations)))
        raise
    finally:
        _witnesses.remove(witness)


def driver_for(spec: MachineSpec, conversation: Conversation) -> Driver:
    """`record.driver_for`, with the operations recorded for `retold`."""
    driver = record.driver_for(spec.machine, conversation)
    for witness in _witnesses[-1:]:
        witness.follow(driver)
    return driver


@contextmanager
def watchdog(seconds: float = SECONDS_MAX) -> Generator[None]:
    """Raise `EndlessError` once the block has used `seconds` of processor time.

    Works in the main thread where the system has ``SIGVTALRM``; elsewhere does nothing.
    """
    if not hasattr(signal, "SIGVTALRM") or threading.current_thread() is not (
        threading.main_thread()
    ):
        yield
        return

    def bark(signum: int, frame: FrameType | None) -> None:
        raise EndlessError(f"not done after {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, bark)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def refused(driver: Driver, operation: Operation) -> LocalProtocolError | None:
    """Do `operation` without draining; returns the `LocalProtocolError`, if it is refused."""
    try:
        driver.apply(operation)
    except LocalProtocolError as error:
        return error
    return None


def visible(driver: Driver) -> dict[str, Any]:
    """The answers to all questions that do not change a machine."""
    machine = driver.machine
    seen = {"state": machine.state, "deadline": driver.deadline()}
    if driver.is_stream:
        seen |= {"read_size": machine.read_size(), "trailing_data": machine.trailing_data}
    if driver.is_linked:
        seen["open"] = driver.open_links
        seen["links"] = {n: (link.read_size(), link.closed) for n, link in driver.links.items()}
    return seen


def check_unchanged(what: str, driver: Driver, before: object) -> None:
    """Raise `PropertyError` if a refusal of `what` has changed what was `visible` before."""
    expect_equal(f"{what} was refused, yet it changed", before, visible(driver))
    try:
        turn = driver.drain(None)
    except Exception as error:
        raise PropertyError(f"{what} was refused, and then: {error!r}") from error
    check_idle(f"{what}, which was refused,", driver, turn)


def check_idle(what: str, driver: Driver, turn: Turn) -> None:
    """Raise `PropertyError` if `turn` has any output or refusal."""
    if turn.error or turn.events or turn.effects or turn.sent or turn.datagrams or turn.links:
        raise PropertyError(f"{what} had an effect: {turn}")
    if driver.is_stream and driver.machine.data_to_send(0) != b"":
        raise PropertyError(f"{what}: data_to_send(0) gave bytes")
