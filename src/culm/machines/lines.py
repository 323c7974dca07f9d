"""Machines driven by lines of JSON, as in the line driver and in recorded sessions.

A line is an operation (see `culm.machines.operations`); its results are one JSON object a
line.  Every answer ends with the object that has the key ``deadline``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from culm.machine import Effect
from culm.machines.driver import CallVerb, Driver, Turn, own_verbs
from culm.machines.machine_type import MachineType
from culm.machines.operations import Complete, Operation, operation_from_json
from culm.machines.plain import JSON, plain_error, plain_fields, to_plain
from culm.machines.signatures import call_words, json_can_write


class LineDriver:
    """Drives one machine of a type; JSON values in, JSON values out."""

    def __init__(
        self, machine: MachineType, config: dict[str, Any], *, respond: bool = False
    ) -> None:
        self._results = machine.codec.results
        self._driver = Driver.of(machine, config)
        self._store = self._driver.respond
        if not respond:
            self._driver.answer_by(None)

    def record_by(self, stand_in: Callable[[Any], Any], call: CallVerb) -> None:
        """Drive a stand-in for the machine, and call the registry's verbs through `call`."""
        self._driver.wrap(stand_in(self._driver.machine))
        self._driver.call_by(call)

    def start(self) -> Iterator[JSON]:
        """Start the machine; returns its output before any input."""
        yield from self._answer(self._driver.start)

    def do(self, value: JSON) -> Iterator[JSON]:
        """Do the operation that `value` describes; returns its results."""
        yield from self._answer(lambda: self._driver.run(self._read(value)))

    def do_operation(self, operation: Operation) -> Iterator[JSON]:
        """The same for an operation that is no line, as those of a capture."""
        yield from self._answer(lambda: self._driver.run(operation))

    def refuse(self, error: Exception) -> Iterator[JSON]:
        """The answer to a line that is not JSON."""
        yield {"error": plain_error(error)}
        yield self._status()

    def _answer(self, run: Callable[[], list[Turn]]) -> Iterator[JSON]:
        try:
            turns = run()
        except Exception as error:  # any mistake of the caller or of a verb
            yield {"error": plain_error(error)}
            turns = [self._driver.drain(None), *self._driver.answer()]
        for turn in turns:
            yield from _lines(turn)
        yield self._status()

    def _read(self, value: JSON) -> Operation:
        if isinstance(value, dict) and value.get("op") == "respond":
            return self._answer_of_store(value.get("ticket"))
        operation = operation_from_json(value)
        if isinstance(operation, Complete):
            for effect in self._driver.unanswered:
                if effect.ticket == operation.ticket and type(effect) in self._results:
                    convert = self._results[type(effect)]
                    return Complete(operation.ticket, convert(operation.result))
        return operation

    def _answer_of_store(self, ticket: JSON) -> Operation:
        waiting = [effect for effect in self._driver.unanswered if effect.ticket == ticket]
        if self._store is None or not waiting:
            raise LookupError(f"no effect of ticket {ticket!r} waits for a store")
        return Complete(waiting[0].ticket, self._store(waiting[0]))

    def _status(self) -> JSON:
        machine = self._driver.machine
        status: dict[str, JSON] = {
            "deadline": to_plain(self._driver.deadline()),
            "state": to_plain(machine.state),
        }
        if self._driver.is_stream:
            status["read_size"] = machine.read_size()
            status["trailing"] = machine.trailing_data.hex()
        if self._driver.is_linked:
            status["links"] = [
                {"link": link.number, "read_size": link.read_size()} for link in machine.links
            ]
        return status


def describe(machine: MachineType) -> Iterator[str]:
    """The keys of a config of `machine` and its verbs, a paragraph each, for people."""
    yield f"{machine.name}, config:"
    for key in machine.keys:
        yield f"  {key.name}: {key.type_words} (default {json.dumps(to_plain(key.default))})"
        yield f"      {key.meaning}"
    yield f"{machine.name}, verbs:"
    for words in verb_words(machine):
        yield f"  {words}"


def verb_words(machine: MachineType) -> list[str]:
    """Signatures of the verbs: those of the registry, and the methods that JSON can call."""
    made = machine.make({})
    verbs = dict(machine.verbs)
    for name in own_verbs(made):
        if json_can_write(method := getattr(type(made), name)):
            verbs.setdefault(name, method)
    return [call_words(name, verbs[name], skip=1) for name in sorted(verbs)]


def _lines(turn: Turn) -> Iterator[JSON]:
    if turn.error is not None:
        yield {"error": plain_error(turn.error)}
    if turn.result is not None:
        yield {"result": turn.result}
    for event in turn.events:
        yield {"event": type(event).__name__, "fields": plain_fields(event)}
    for effect in turn.effects:
        yield _effect(effect)
    if turn.sent:
        yield {"send": turn.sent.hex()}
    for destination, data in turn.datagrams:
        yield {"send": data.hex(), "destination": to_plain(destination)}
    for link, data in turn.links:
        yield {"send": data.hex(), "link": link}


def _effect(effect: Effect[Any]) -> JSON:
    fields = plain_fields(effect)
    return {"effect": type(effect).__name__, "ticket": fields.pop("ticket"), "fields": fields}
