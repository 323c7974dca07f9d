"""A conversation as data of JSON, for the page: steps, messages with their fields, members."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from culm.bymux import INFINITE
from culm.capture.dissect import dissect
from culm.capture.shown import fault_row, field_rows, label_of
from culm.capture.text import bytes_words
from culm.machine import ProtocolError
from playground.changes import CAN, parse
from playground.scenarios import SCENARIOS
from playground.world import Message, Scenario, Step, Try, World

__all__ = ["catalogue", "history", "told"]

_LONG = 120  # characters of a part of an event


def told(name: str, changes: Sequence[str] = ()) -> str:
    """The history of a scenario with changes, as JSON.  Raises `KeyError`, `ValueError`."""
    return json.dumps(history(name, changes), separators=(",", ":"), ensure_ascii=False)


def catalogue() -> list[dict[str, Any]]:
    """What there is to choose from, for the page."""
    return [
        {
            "name": each.name,
            "title": each.title,
            "story": each.story,
            "room": each.room.title,
            "page": each.room.page,
        }
        for each in SCENARIOS.values()
    ]


def history(name: str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The same as data."""
    scenario = SCENARIOS[name]
    world = World(scenario, [parse(each) for each in changes])
    world.run()
    messages = [_message(scenario, each) for each in world.messages]
    found: dict[str, Any] = {
        "name": name,
        "members": list(scenario.members),
        "deeds": {deed: words for deed, (words, _) in scenario.room.deeds.items()},
        "restarts": scenario.room.restarts,
        "can": CAN,
        "steps": [_step(each, messages) for each in world.steps],
        "messages": messages,
        "refused": world.refused,
        "changes": list(changes),
    }
    if not changes:
        found["tries"] = [made for each in scenario.tries for made in _try(each, world, messages)]
    return found


def _try(proposed: Try, world: World, messages: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """A proposed change as the page has it, with the step to look at then."""
    if proposed.label:
        for message in messages:
            if message["at"] < proposed.after or proposed.label not in message["label"]:
                continue
            change = f"{proposed.verb}-{message['number']}"
            if proposed.verb == "byte":
                change += f"-{proposed.offset}-{proposed.value}"
            yield {"words": proposed.words, "change": change, "step": message["sent"]}
            return
        return
    step = next(each.number for each in world.steps if each.at >= proposed.after)
    who = proposed.who
    if who == "leader":
        who = world.steps[step].leader
    parts = [proposed.verb, who, proposed.deed, str(step)]
    yield {"words": proposed.words, "change": "-".join(filter(None, parts)), "step": step}


def _step(step: Step, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "at": round(step.at, 4),
        "kind": step.kind,
        "words": step.words,
        "node": step.node,
        "call": step.call,
        "message": step.message,
        "label": "" if step.message is None else messages[step.message]["label"],
        "error": step.error,
        "events": [_said(each) for each in step.events],
        "effects": [[_said(effect), _said(answer)] for effect, answer in step.effects],
        "sent": step.sent,
        "views": {
            name: [view.alive, view.state, view.due, [list(each) for each in view.facts]]
            for name, view in step.views.items()
        },
        "apart": [list(pair) for pair in step.apart],
    }
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def _message(scenario: Scenario, message: Message) -> dict[str, Any]:
    if message.carrier == "end":
        found, label = [], "end of the stream"
        fault = None
    else:
        dissected = dissect(scenario.room.protocol, message.data, **scenario.room.options)
        found, fault = field_rows(dissected.fields, _words, len(message.data)), dissected.fault
        label = label_of(dissected.fields)
    return {
        "number": message.number,
        "from": message.source,
        "to": message.target,
        "carrier": message.carrier,
        "sent": message.sent,
        "step": message.step,
        "at": round(message.sent_at, 4),
        "due": round(message.due_at, 4),
        "fate": message.fate,
        "changes": message.changes,
        "label": label or "bytes",
        "size": len(message.data),
        "data": b64encode(message.data).decode(),
        "fields": found,
        "fault": None if fault is None else fault_row(fault),
    }


# Events in words: the values of captures need libraries that are not in a browser.


def _said(value: object) -> list[Any]:
    """The name of an event, and its parts in words."""
    if not is_dataclass(value) or isinstance(value, type):
        return ["nothing" if value is None else _words(value), []]
    parts = [[each.name, getattr(value, each.name)] for each in fields(value)]
    return [
        type(value).__name__,
        [[name, _cut(_words(part), _LONG)] for name, part in parts if name != "ticket"],
    ]


def _words(value: object) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_words(bytes(value))
    if isinstance(value, ProtocolError):
        return f"{value.code.name}: {value.message}" if value.message else value.code.name
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({', '.join(map(_words, value))})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_words, value))}]" if value else "nothing"
    if is_dataclass(value) and not isinstance(value, type):
        name, parts = _said(value)
        return f"{name}({', '.join(f'{part}={words}' for part, words in parts)})"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_words(each)}" for key, each in value.items()) or "nothing"
    if value == INFINITE:
        return "infinite"
    return "nothing" if value is None else str(value)


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"
