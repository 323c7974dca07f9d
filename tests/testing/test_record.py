"""Recorded conversations, their transcripts, and a machine's memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from sys import getsizeof
from types import ModuleType
from typing import Any

import pytest

from culm.machine import LocalProtocolError
from culm.machines import VerbErrorCode, call, registry
from culm.machines.driver import Driver
from culm.machines.memory import retained_size
from culm.machines.operations import Complete, Eof, Receive
from culm.testing import transcript
from culm.testing.record import conversations, driver_for, play, record, replay
from culm.testing.spec import Conversation, MachineSpec, Scenario
from spec_changes import spec_with
from toy_machines import FRAMES, KEEPER, LINES, PINGER, Lines


def events(turns: list[Any]) -> list[Any]:
    return [event for turn in turns for event in turn.events]


@pytest.mark.parametrize("spec", [LINES, FRAMES, KEEPER], ids=str)
def test_a_recording_replays_what_the_link_saw(spec: MachineSpec) -> None:
    for scenario in spec.usage.scenarios:
        link = play(spec.machine, scenario)
        left, right = record(spec.machine, scenario)
        assert (left.name, right.name) == (f"{scenario.name}/left", f"{scenario.name}/right")
        for told, end in ((left, link.left), (right, link.right)):
            turns = replay(spec.machine, told)
            assert events(turns) == end.events
            assert b"".join(turn.sent for turn in turns) == end.sent


def test_a_script_that_is_refused_is_no_conversation() -> None:
    scenario = Scenario(name="bad", script=[("left", call("say", text=b"\n"))])
    with pytest.raises(AssertionError, match="scenario bad: left refused"):
        record(LINES.machine, scenario)


def test_the_other_side_may_be_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_types", {"keeper": KEEPER.machine})
    monkeypatch.setattr(registry, "_loaded", True)
    scenario = Scenario(
        name="mixed", script=[("left", call("say", text=b"x"))], right={"idle": 3}, peer="keeper"
    )
    spec = spec_with(LINES, scenarios=[scenario])
    link = play(spec.machine, scenario)
    assert link.left.sent == b"x\n"
    assert link.right.sent == b"ok\n"
    assert [told.name for told in conversations(spec)] == ["mixed/left"]


def test_conversations_are_the_specs_own_and_its_scenarios() -> None:
    own = Conversation(name="own", operations=[Eof()])
    spec = spec_with(LINES, conversations=lambda spec: [own])
    assert [told.name for told in conversations(spec)] == [
        "own",
        "talk/left",
        "talk/right",
        "cut/left",
        "cut/right",
    ]


def test_a_conversation_that_answers_effects_gets_no_store() -> None:
    operations = [Receive(b"x\n"), Complete(1, 77)]
    told = Conversation(name="answered", operations=operations)
    assert driver_for(KEEPER.machine, told).respond is None
    assert events(replay(KEEPER.machine, told))[-1].place == 77
    silent = replace(told, operations=operations[:1])
    assert events(replay(KEEPER.machine, silent))[-1].place == 0


# Transcripts


def test_transcripts_of_links_are_kept(same_transcript: Any) -> None:
    for spec in (FRAMES, KEEPER):
        for scenario in spec.usage.scenarios:
            same_transcript(
                f"toys/{spec.name}-{scenario.name}",
                transcript.of_link(play(spec.machine, scenario)),
            )


def test_transcripts_of_datagrams_and_refusals_are_kept(same_transcript: Any) -> None:
    (told, _) = conversations(PINGER)
    operations = [*told.operations, call("ping", peer="b")]
    turns = replay(PINGER.machine, replace(told, operations=operations))
    same_transcript("toys/pinger", transcript.of_turns(turns))


def test_long_bytes_are_shown_by_their_ends() -> None:
    driver = Driver(Lines(line_max=100))
    text = transcript.of_turns([driver.do(call("say", text=b"a" * 50 + b"z" * 50))])
    assert text == (
        "> call say(text=<'aaaaaaaaaaaaaaaaaaaaaaaa' .. 'zzzzzzzzzzzzzzzzzzzzzzzz' (100 bytes)>)\n"
        "< send 'aaaaaaaaaaaaaaaaaaaaaaaa' .. 'zzzzzzzzzzzzzzzzzzzzzzz\\n' (101 bytes)\n"
    )


def test_results_and_values_are_shown_in_a_stable_form() -> None:
    shown = {
        "mapping": {"key": [1, None, b"\xff"]},
        "many": frozenset({"b", "a"}),
        "opaque": object(),
        "error": LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE, "7"),
        "state": Lines().state,
    }
    driver = Driver(Lines(), verbs={"show": lambda machine, **args: {"size": len(args)}})
    assert transcript.of_turns([driver.do(call("show", **shown))]) == (
        "> call show(mapping={'key': [1, None, <ff>]}, many={'a', 'b'}, opaque=object,"
        " error=LocalProtocolError(no such handle: 7), state=OPEN)\n"
        "= {'size': 5}\n"
    )


def test_a_transcript_is_compared_and_rewritten_on_purpose(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "talk.txt"
    with pytest.raises(AssertionError, match="there is no transcript"):
        transcript.check("one\n", path)
    transcript.check("one\n", path, rewrite=True)
    transcript.check("one\n", path)
    with pytest.raises(AssertionError, match=r"-one\n\+two"):
        transcript.check("two\n", path)


# Memory


class Holder:
    __slots__ = ("__dict__", "slot")


@pytest.mark.parametrize(
    "keep",
    [
        lambda holder, data: setattr(holder, "attribute", data),
        lambda holder, data: setattr(holder, "slot", data),
        lambda holder, data: setattr(holder, "deep", {"a": [(1, {data})]}),
        lambda holder, data: setattr(holder, "view", memoryview(data)[1:2]),
        lambda holder, data: setattr(holder, "closure", lambda: data),
        lambda holder, data: setattr(holder, "default", lambda data=data: None),
        lambda holder, data: setattr(holder, "method", [data].append),
        lambda holder, data: setattr(holder, "iterator", iter([data])),
        lambda holder, data: setattr(holder, "error", ValueError(data)),
    ],
)
def test_what_is_held_is_found_wherever_it_is(keep: Any) -> None:
    holder = Holder()
    before = retained_size(holder)
    keep(holder, bytes(10_000))
    assert 10_000 <= retained_size(holder) - before < 12_000


def test_what_is_held_is_counted_once_and_the_program_not_at_all() -> None:
    holder = Holder()
    before = retained_size(holder)
    ring: list[object] = []
    ring.append(ring)
    assert retained_size(ring) == getsizeof(ring)
    data = bytes(10_000)
    setattr(holder, "twice", [data, data, holder])  # noqa: B010
    setattr(holder, "program", [ModuleType, pytest, Lines.say, len])  # noqa: B010
    assert 10_000 <= retained_size(holder) - before < 12_000
