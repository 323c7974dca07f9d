"""Stacks of toys keep every law of the contract, as any machine does."""

from __future__ import annotations

from typing import Any

import pytest

from culm.machine import Buffer, Event, LocalProtocolError, StreamMachine
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


class LateFrames(Frames):
    """Frames that follow another machine, and begin with its trailing bytes."""

    begun = False

    def receive_data(self, data: Buffer) -> None:
        self.begun = True
        super().receive_data(data)


class LateKeeper(Keeper):
    """A keeper that follows another machine."""

    begun = False

    def receive_data(self, data: Buffer) -> None:
        self.begun = True
        super().receive_data(data)


Late = LateFrames | LateKeeper


def spoken(stack: Stacked, first: StreamMachine, *later: tuple[Late, StreamMachine]) -> Stacked:
    """Give `stack` its first speaking layer, and the later ones with the layers that begin them.

    As an attribute of the stack, where laws that wrap it can find them.
    """
    stack.layers = first, later  # type: ignore[attr-defined]
    return stack


def layer(machine: Any) -> Any:
    """The layer that speaks right now."""
    first, later = machine.layers
    return [first, *(speaks for begins, speaks in later if begins.begun)][-1]


def lines_in_frames(config: Any) -> Stacked:
    lines = Lines()
    return spoken(over(Frames(greeting=config["greeting"]), lines), lines)


def keeper_in_frames(config: Any) -> Stacked:
    keeper = Keeper(idle=config["idle"])
    return spoken(over(Frames(greeting=True), keeper), keeper)


def frames_after_lines(config: Any) -> Stacked:
    lines, frames = Lines(), LateFrames(greeting=True)

    def build(event: Event) -> StreamMachine | None:
        return frames if event == LineReceived(text=b"frames") else None

    return spoken(then(lines, build), lines, (frames, frames))


def three_stages(config: Any) -> Stacked:
    """Lines, then lines in frames, then a keeper on the bare bytes."""
    bare, frames, framed = Lines(), LateFrames(), Lines()
    keeper = LateKeeper(idle=config["idle"])
    inner = then(over(frames, framed), lambda event: keeper)
    return spoken(then(bare, lambda event: inner), bare, (frames, framed), (keeper, keeper))


def say(machine: Any, text: bytes) -> None:
    speaks = layer(machine)
    if not hasattr(speaks, "say"):
        raise LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE)
    speaks.say(text)


def send(machine: Any, data: bytes) -> None:
    speaks = layer(machine)
    if not hasattr(speaks, "send_data"):
        raise LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE)
    speaks.send_data(data)


def leave(machine: Any) -> None:
    """End this stage, so that the next one follows; closing the stack would end all."""
    speaks = layer(machine)
    if speaks.state is not ToyState.OPEN:
        raise LocalProtocolError(ToyErrorCode.CLOSING)
    speaks.close()


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
