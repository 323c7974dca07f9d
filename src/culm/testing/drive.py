"""The line driver: any registered machine, driven by lines of JSON.

``python -m culm.testing.drive NAME [--config JSON] [--respond]`` reads an operation a
line (see `culm.testing.operations`) and writes what comes of it, one JSON object a line:
first for the new machine, then for every line read.  ``--list`` names the machines;
``--help NAME`` says what a config of that one may hold, and what verbs it has.
Every answer ends with the line that has the key ``deadline``, so that another process
knows when it may go on; each line is flushed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from culm.arguments import is_dict
from culm.machine import Effect
from culm.testing.arguments import call_words, json_can_write
from culm.testing.driver import Driver, Turn, own_verbs
from culm.testing.ending import end_with
from culm.testing.machines import lookup, names
from culm.testing.operations import Complete, Operation, operation_from_json
from culm.testing.plain import JSON, from_plain, plain_error, plain_fields, to_plain
from culm.testing.spec import MachineSpec
from culm.wire.json import read_json

__all__ = ["LineDriver", "describe", "main", "verb_words"]


class LineDriver:
    """Drives one machine of `spec`; JSON values in, JSON values out."""

    def __init__(self, spec: MachineSpec, config: dict[str, Any], *, respond: bool = False) -> None:
        self._spec = spec
        self._driver = Driver.of(spec, config)
        self._store = self._driver.respond
        if not respond:
            self._driver.answer_by(None)

    def start(self) -> Iterator[JSON]:
        """What the machine has to say before any input."""
        yield from self._answer(self._driver.start)

    def do(self, value: JSON) -> Iterator[JSON]:
        """Do the operation that `value` describes; returns what comes of it."""
        yield from self._answer(lambda: self._driver.run(self._read(value)))

    def refuse(self, error: Exception) -> Iterator[JSON]:
        """The answer to a line that is not JSON."""
        yield {"error": plain_error(error)}
        yield self._status()

    def _answer(self, run: Callable[[], list[Turn]]) -> Iterator[JSON]:
        try:
            turns = run()
        except Exception as error:  # whatever the caller or a verb got wrong
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
                if effect.ticket == operation.ticket and type(effect) in self._spec.results:
                    convert = self._spec.results[type(effect)]
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


def main(arguments: list[str] | None = None) -> int:
    """Run the line driver on stdin and stdout; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        for name in names():
            print(name)
        return 0
    if options.help == "":
        parser.print_help()
        return 0
    try:
        if options.help is not None:
            print("\n".join(describe(lookup(options.help))))
            return 0
        config = from_plain(read_json(options.config))
        if not is_dict(config):
            raise ValueError("the config must be a JSON object")
        driver = LineDriver(lookup(options.name), config, respond=options.respond)
    except Exception as error:  # no such machine, no such config
        _write(sys.stdout, {"error": plain_error(error)})
        return 2
    for value in driver.start():
        _write(sys.stdout, value)
    for line in sys.stdin.buffer:  # bytes: a line that is not UTF-8 is not JSON either
        if line.strip():
            _drive_line(driver, line)
    return 0


def describe(spec: MachineSpec) -> Iterator[str]:
    """The keys of a config of `spec` and its verbs, a paragraph each, for people."""
    yield f"{spec.name}, config:"
    for key in spec.keys:
        yield f"  {key.name}: {key.type_words} (default {json.dumps(to_plain(key.default))})"
        yield f"      {key.meaning}"
    yield f"{spec.name}, verbs:"
    for words in verb_words(spec):
        yield f"  {words}"


def verb_words(spec: MachineSpec) -> list[str]:
    """How to call each verb: those of `spec`, and the machine's methods that JSON can call."""
    machine = spec.make({})
    verbs = dict(spec.verbs)
    for name in own_verbs(machine):
        if json_can_write(method := getattr(type(machine), name)):
            verbs.setdefault(name, method)
    return [call_words(name, verbs[name], skip=1) for name in sorted(verbs)]


def _drive_line(driver: LineDriver, line: bytes) -> None:
    try:
        value = read_json(line)
    except ValueError as error:
        answer = driver.refuse(error)
    else:
        answer = driver.do(value)
    for said in answer:
        _write(sys.stdout, said)


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


def _write(stream: IO[str], value: JSON) -> None:
    stream.write(json.dumps(value, ensure_ascii=True) + "\n")
    stream.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m culm.testing.drive",
        description="Drive a machine by lines of JSON.",
        add_help=False,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("name", nargs="?", help="the machine, as --list names it")
    which.add_argument("--list", action="store_true", help="name the machines and stop")
    which.add_argument(
        "-h",
        "--help",
        nargs="?",
        const="",
        metavar="NAME",
        help="print this, or the config keys and the verbs of a machine, and stop",
    )
    parser.add_argument(
        "--config", default="{}", metavar="JSON", help="how the machine is built (default: {})"
    )
    parser.add_argument(
        "--respond",
        action="store_true",
        help="let the machine's own in-memory store answer the effects",
    )
    return parser


if __name__ == "__main__":
    end_with(main)
