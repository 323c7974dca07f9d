"""Captures as input of the line driver: the operations in them, one by one.

The line driver's lines and a capture are two spellings of one thing: the inputs of a machine,
in order.  A capture also has their outcomes and times, and the order in which a driver asked;
the line driver always asks in the same order (`culm.machines.driver`), and tells all answers
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from culm.capture.errors import CaptureError, ErrorCode
from culm.capture.links import link_of, note_links
from culm.capture.records import Capture, Step
from culm.capture.values import from_value, name_of
from culm.machines import UnknownMachineError, lookup
from culm.machines.driver import own_verbs
from culm.machines.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Fail,
    Operation,
    Receive,
    ReceiveDatagram,
    operation_from_json,
    operation_to_json,
)
from culm.machines.plain import JSON, from_plain
from culm.machines.signatures import signature_of

_LINKED = frozenset({"receive_data", "receive_eof"})


def lines(capture: Capture) -> Iterator[JSON]:
    """The lines, as JSON data.

    Raises `CaptureError` as `operations` does, and with ``OPAQUE`` for steps that no line can
    say: parts of other types, and an answer of the store that the line driver would read as
    another one.
    """
    effects: dict[object, str] = {}  # by ticket
    for operation in _operations(capture, effects):
        try:
            line = operation_to_json(operation)
            operation_from_json(line)
            effect = effects.get(operation.ticket, "") if isinstance(operation, Complete) else ""
        except (AttributeError, TypeError, ValueError) as error:  # parts of other types
            words = f"{type(operation).__name__} is no line: {error}"
            raise CaptureError(ErrorCode.OPAQUE, words) from None
        if isinstance(operation, Complete) and not _comes_back(
            operation.result, line["result"], capture, effect
        ):
            raise CaptureError(ErrorCode.OPAQUE, f"the answer to {effect} is no line")
        yield line


def _comes_back(result: object, written: JSON, capture: Capture, effect: str) -> bool:
    """Whether the line driver reads an answer as it was."""
    converters = lookup(capture.header.machine).codec.results
    convert = {name_of(kind): convert for kind, convert in converters.items()}.get(effect)
    try:
        found = from_plain(written)
        return bool((found if convert is None else convert(found)) == result)
    except (KeyError, TypeError, ValueError):
        return False


def operations(capture: Capture) -> Iterator[Operation]:
    """The operations that the machine was given.

    Raises `CaptureError`: ``NO_MACHINE`` if the registry does not know it, ``OPAQUE`` for
    omitted data, and for calls of a handle that is no link, which no operation can name.
    """
    return _operations(capture, {})


def _operations(capture: Capture, effects: dict[object, str]) -> Iterator[Operation]:
    """The same; notes the class of each effect, by its ticket."""
    try:
        machine = lookup(capture.header.machine)
    except UnknownMachineError as error:
        raise CaptureError(ErrorCode.NO_MACHINE, str(error)) from None
    kind = type(machine.make({}))
    verbs = frozenset(own_verbs(machine.make({})))
    links: dict[int, int] = {}
    for number, step in enumerate(capture, 1):
        note_links(step.result, links)
        if step.name == "next_effect" and isinstance(step.result, dict):
            fields, kind_of_it = step.result.get("fields"), step.result.get("")
            ticket = fields.get("ticket") if isinstance(fields, dict) else None
            if isinstance(ticket, int) and isinstance(kind_of_it, str):
                effects[ticket] = kind_of_it
        link = link_of(step.on, links)
        if step.on and link is None:
            raise CaptureError(ErrorCode.OPAQUE, f"step {number} calls a handle")
        if step.on and step.name not in _LINKED:
            continue  # an outcome
        told = _told(step, link, verbs, kind)
        if told is not None:
            yield told


def _told(step: Step, link: int | None, verbs: frozenset[str], kind: type) -> Operation | None:
    """The operation of a step; ``None`` for a query."""
    if step.name in _INPUTS:
        arguments = [_read(each) for each in step.arguments]
        keywords = {name: _read(each) for name, each in step.keywords.items()}
        try:
            return _INPUTS[step.name](link)(*arguments, **keywords)
        except TypeError as error:
            raise CaptureError(ErrorCode.BAD_RECORD, f"{step.name}: {error}") from None
    if step.name.startswith("!"):
        return Call(step.name[1:], {name: _read(each) for name, each in step.keywords.items()})
    if step.name not in verbs:
        return None
    names = list(signature_of(getattr(kind, step.name)).parameters)[1:]
    given = dict(zip(names, step.arguments, strict=False)) | step.keywords
    return Call(step.name, {name: _read(each) for name, each in given.items()})


def _read(value: Any) -> Any:
    return from_value(value, _no_handle)


def _no_handle(number: int) -> object:
    raise CaptureError(ErrorCode.OPAQUE, f"the handle {number} is no value of a line")


def _failed(ticket: int, error: object) -> Fail:
    """By the text of a store's error, the last part of a `RecordedError`."""
    return Fail(ticket, str(getattr(error, "args", ("", ""))[-1]))


_INPUTS: dict[str, Callable[[int | None], Callable[..., Operation]]] = {
    "receive_data": lambda link: partial(Receive, link=link),
    "receive_eof": lambda link: partial(Eof, link=link),
    "receive_datagram": lambda link: ReceiveDatagram,
    "advance": lambda link: Advance,
    "complete": lambda link: Complete,
    "fail": lambda link: _failed,
}
