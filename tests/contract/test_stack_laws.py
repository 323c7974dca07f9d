"""Stacks of toys keep every law of the contract, as any machine does."""

from __future__ import annotations

from typing import Any

import pytest

from culm.machine import Event, LocalProtocolError, StreamMachine
from culm.machines import Advance, MachineType, VerbErrorCode, call, keys_of
from culm.stack import Stacked, over, then
from culm.testing.spec import Bounds, MachineSpec, Scenario, Usage
from culm.testing.suite import PROPERTIES, Property, check_machine
from toy_machines import (
    Frames,
    Keeper,
    LineReceived,
    Lines,
    ToyErrorCode,
    ToyState,
    count_up,
)


def lines_in_frames(config: Any) -> Stacked:
    return over(Frames(greeting=config["greeting"]), Lines())


def keeper_in_frames(config: Any) -> Stacked:
    return over(Frames(greeting=True), Keeper(idle=config["idle"]))


def frames_after_lines(config: Any) -> Stacked:
    def build(event: Event) -> StreamMachine | None:
        return Frames(greeting=True) if event == LineReceived(text=b"frames") else None

    return then(Lines(), build)


def three_stages(config: Any) -> Stacked:
    """Lines, then lines in frames, then a keeper on the bare bytes."""
    keeper = Keeper(idle=config["idle"])
    inner = then(lines_in_frames({"greeting": False}), lambda event: keeper)
    return then(Lines(), lambda event: inner)


def layer(machine: Any) -> Any:
    """The layer that speaks at the moment."""
    while hasattr(machine, "_current") or hasattr(machine, "_upper"):
        machine = machine._current if hasattr(machine, "_current") else machine._upper
    return machine


def say(machine: Any, text: bytes) -> None:
    spoken = layer(machine)
    if not hasattr(spoken, "say"):
        raise LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE)
    spoken.say(text)


def send(machine: Any, data: bytes) -> None:
    spoken = layer(machine)
    if not hasattr(spoken, "send_data"):
        raise LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE)
    spoken.send_data(data)


def leave(machine: Any) -> None:
    """Say this stage's goodbye, so that the next one follows; `close` would end all."""
    spoken = layer(machine)
    if spoken.state is not ToyState.OPEN:
        raise LocalProtocolError(ToyErrorCode.CLOSING)
    spoken._goodbye()


SPECS = [
    MachineSpec(
        machine=MachineType(
            name="lines in frames",
            build=lines_in_frames,
            keys=keys_of(Frames, without=["receive_max"]),
            verbs={"say": say},
        ),
        bounds=Bounds(retained_max=16384),
        usage=Usage(
            scenarios=[
                Scenario(
                    name="talk",
                    left={"greeting": True},
                    right={"greeting": True},
                    script=[
                        ("left", call("say", text=b"hello")),
                        ("right", call("say", text=b"x" * 60)),
                        ("left", call("close")),
                    ],
                ),
            ],
            bad_calls=[call("say", text=b"\n")],
        ),
    ),
    MachineSpec(
        machine=MachineType(
            name="keeper in frames",
            build=keeper_in_frames,
            keys=keys_of(Keeper, without=["line_max", "effects_max"]),
            verbs={"say": say},
            respond=count_up,
        ),
        bounds=Bounds(retained_max=24576),
        usage=Usage(
            scenarios=[
                Scenario(
                    name="kept",
                    left={"idle": 10},
                    script=[
                        ("left", call("say", text=b"one")),
                        ("right", call("say", text=b"two")),
                        ("left", Advance(40)),
                    ],
                )
            ],
        ),
    ),
    MachineSpec(
        machine=MachineType(
            name="frames after lines",
            build=frames_after_lines,
            verbs={"say": say, "send": send, "leave": leave},
        ),
        bounds=Bounds(retained_max=16384),
        usage=Usage(
            scenarios=[
                Scenario(
                    name="upgrade",
                    script=[
                        ("left", call("say", text=b"frames")),
                        ("right", call("say", text=b"frames")),
                        ("left", call("leave")),
                        ("right", call("send", data=b"x" * 600)),
                        ("left", call("send", data=b"y")),
                        ("right", call("close")),
                    ],
                ),
                Scenario(
                    name="no upgrade",
                    script=[("left", call("say", text=b"no frames")), ("left", call("leave"))],
                ),
            ],
            bad_calls=[call("send", data=b""), call("leave")],
        ),
    ),
    MachineSpec(
        machine=MachineType(
            name="three stages",
            build=three_stages,
            keys=keys_of(Keeper, without=["line_max", "effects_max"]),
            verbs={"say": say, "leave": leave},
            respond=count_up,
        ),
        bounds=Bounds(retained_max=24576),
        usage=Usage(
            scenarios=[
                Scenario(
                    name="all of them",
                    left={"idle": 50},
                    right={"idle": 60},
                    script=[
                        ("left", Advance(5)),
                        ("left", call("say", text=b"bare")),
                        ("right", call("leave")),
                        ("right", call("say", text=b"framed")),
                        ("left", call("leave")),
                        ("left", call("say", text=b"kept")),
                        ("left", Advance(58)),
                    ],
                )
            ],
            bad_calls=[call("leave")],
        ),
    ),
]


@pytest.mark.costly
@pytest.mark.parametrize("law", PROPERTIES, ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_stacks_keep_every_law(spec: MachineSpec, law: Property) -> None:
    check_machine(spec, [law])
