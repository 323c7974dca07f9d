"""Recorded conversations with foreign parts put in: replay refuses, and stays small."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields, is_dataclass, replace
from math import inf, nan
from random import Random
from typing import Any

import pytest
from capture_conversations import recorded
from test_capture_hostile import handle

from culm.capture import CaptureError, Header, Replay, Step, read
from culm.capture.values import class_of, name_of
from culm.machines import lookup
from culm.testing.record import conversations
from culm.testing.spec import MachineSpec
from specs import SPECS

MOST = (1 << 64) - 1
HUGE: list[Any] = [
    *(MOST, 1 << 63, 1 << 40, -(1 << 64), -1, 0, True, None, nan, inf, 1e300, 1e18, "", "x" * 3000),
    *(b"", bytes(5000), [], {}, [MOST] * 50, {"links_max": 1 << 62}, handle(MOST), handle(-1)),
    *({"": "range", "items": items} for items in ([0, 1 << 63, 1], [0, 5, 0], [1 << 40], [])),
    {"": "int", "hex": "0x" + "f" * 4000},
    {"": "set", "items": [[1]]},
    {"": "dict", "pairs": [[[1], 2]]},
    {"": "exception", "type": 5, "message": b""},
    {"": "key", "type": "SigningKey", "secret": b""},
    {"": "tree", "form": {"item_size": MOST}, "items": b""},
    {"": "tree", "form": {"item_size": 32, "varying": False, "monoid": "x"}, "items": bytes(33)},
    {"": "culm.machine:Closed", "fields": {"error": None}},
]
MEMORY_MAX = 1 << 26


def hostile(rng: Random, value: Any, seen: list[str]) -> Any:
    """A value with one part replaced: by a huge one, or by one of a class seen before."""
    if value and isinstance(value, dict) and rng.random() < 0.8:
        name = rng.choice(list(value))
        return value | {name: hostile(rng, value[name], seen)}
    if value and isinstance(value, list) and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], hostile(rng, value[at], seen), *value[at + 1 :]]
    if seen and rng.random() < 0.3:
        kind = class_of(rng.choice(seen))
        if is_dataclass(kind):
            return {
                "": name_of(kind),
                "fields": {each.name: rng.choice(HUGE) for each in fields(kind)},
            }
    return rng.choice(HUGE)


def classes_in(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(classes_in, value))
    if not isinstance(value, dict):
        return set()
    mark = value.get("")
    named = {mark} if isinstance(mark, str) and mark.startswith("culm.") else set[str]()
    return named.union(*map(classes_in, value.values()))


def change(rng: Random, steps: list[Step], seen: list[str]) -> None:
    """Change a step, or put one in: a copy of another, an answer, or a time."""
    at = rng.randrange(len(steps))
    given = [number for number, each in enumerate(steps) if each.arguments or each.keywords]
    match rng.randrange(6):
        case 0:
            steps.insert(at, rng.choice(steps))
        case 1:
            answer = [rng.randrange(4), hostile(rng, None, seen)]
            steps.insert(at, Step(0.0, 0, "complete", answer, {}, None))
        case 2:
            steps.insert(at, Step(1e12, 0, "advance", [rng.choice(HUGE)], {}, None))
        case 3:
            steps[at] = replace(steps[at], on=rng.choice([0, 1, 2, MOST]))
        case _:
            each = steps[at := rng.choice(given or [at])]
            arguments = hostile(rng, each.arguments, seen)
            keywords = {name: hostile(rng, value, seen) for name, value in each.keywords.items()}
            steps[at] = replace(
                each,
                arguments=arguments if isinstance(arguments, list) else [arguments],
                keywords=keywords,
            )


def replay_all(header: Header, steps: list[Step]) -> int:
    """Do all steps, even after a fault; the number of steps that were not refused."""
    player, done = Replay(header), 0
    for each in steps:
        try:
            player.do(each)
        except CaptureError:
            continue
        done += 1
    return done


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_changed_conversations_are_refused_or_done_in_little_memory(spec: MachineSpec) -> None:
    rng = Random(spec.name)
    done = 0
    tracemalloc.start()
    try:
        for told in conversations(spec)[:3]:
            capture = read(recorded(spec, told))
            steps = list(capture)[:80]
            seen = sorted(
                set().union(*(classes_in([*each.arguments, each.result]) for each in steps))
            )
            for _ in range(8):
                changed = list(steps)
                for _ in range(rng.randrange(1, 6)):
                    change(rng, changed, seen)
                done += replay_all(capture.header, changed)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()
    assert done > 0


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_settings_that_somebody_makes_up_build_a_small_machine_or_none(spec: MachineSpec) -> None:
    tracemalloc.start()
    try:
        for key in lookup(spec.name).keys:
            for value in HUGE:
                header = Header(machine=spec.name, config={key.name: value})
                replay_all(header, [Step(0.0, 0, "next_event", [], {}, None)])
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()
