"""The property that every limit may be as low as its machine accepts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from culm.machine import LocalProtocolError
from culm.machines import Config, Key, lookup
from culm.machines.driver import Driver
from culm.testing.record import meet, play
from culm.testing.spec import MachineSpec, Meeting, Stage
from culm.testing.suite.runs import PropertyError, end, watchdog

_DOUBLINGS_MAX = 20
_STAGES_MAX = 3  # for each limit, others for the next one
_REFUSALS = (LocalProtocolError, TypeError, ValueError)


def least(spec: MachineSpec) -> None:
    """With each limit at its least, all scenarios and meetings come to rest.

    Calls may be refused; nothing else is raised, and all members end when they are told to.
    A limit is a key for a whole number with a name that ends in ``_max``.
    """
    stages = spec.usage.stages
    limits = [key for key in spec.machine.keys if key.name.endswith("_max") and key.type is int]
    for number, key in enumerate(limits):
        first = number % len(stages)
        for stage in [*stages[first:], *stages[:first]][:_STAGES_MAX]:
            for value in _least(spec, key, stage):
                try:
                    with watchdog():
                        _check(spec, stage, {key.name: value})
                except Exception as error:
                    error.add_note(f"{stage.name}, with {key.name} = {value}")
                    raise


def _least(spec: MachineSpec, key: Key, stage: Stage) -> Iterator[int]:
    """The least power of two with which all machines of the stage can be made, if any."""
    configs = stage.members.values() if isinstance(stage, Meeting) else (stage.left, stage.right)
    for doublings in range(_DOUBLINGS_MAX):
        if all(_is_made(spec, {**config, key.name: 1 << doublings}) for config in configs):
            yield 1 << doublings
            return


def _is_made(spec: MachineSpec, config: Config) -> bool:
    try:
        spec.machine.make(config)
    except _REFUSALS:
        return False
    return True


def _check(spec: MachineSpec, stage: Stage, limit: Config) -> None:
    try:
        drivers = _played(spec, stage, limit)
    except LocalProtocolError as error:
        raise PropertyError(f"raised, though not by a call: {error}") from error
    except ValueError:
        return  # of a call that asks for more than the limit
    for driver in drivers:
        end(driver)


def _played(spec: MachineSpec, stage: Stage, limit: Config) -> list[Driver]:
    if isinstance(stage, Meeting):
        members = {name: {**config, **limit} for name, config in stage.members.items()}
        return [*meet(spec.machine, replace(stage, members=members)).members.values()]
    left, right = {**stage.left, **limit}, stage.right
    if stage.peer is None or lookup(stage.peer) is spec.machine:
        right = {**right, **limit}
    link = play(spec.machine, replace(stage, left=left, right=right))
    return [link.left.driver, link.right.driver]
