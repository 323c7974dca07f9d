"""The property that all bytes of a frame cost alike, whatever they are."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace

from culm.testing.contents import Content
from culm.testing.driver import Driver
from culm.testing.operations import Receive, ReceiveDatagram
from culm.testing.record import conversations, driver_for
from culm.testing.spec import Frame, MachineSpec
from culm.testing.suite.floods import NOTHING_TOLD, welcome
from culm.testing.suite.meter import Meter
from culm.testing.suite.runs import PropertyError, watchdog

__all__ = ["alike"]

_MEMORY_PER_STEP = 16  # bytes


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a frame costs: steps, and the most memory that was taken meanwhile."""

    steps: int
    memory: int
    size: int

    def __float__(self) -> float:
        """Steps for a byte, memory among them."""
        return (self.steps + self.memory / _MEMORY_PER_STEP) / self.size


def alike(spec: MachineSpec) -> None:
    """Every content of a frame costs about as much for each byte as a flat one.

    Counted are the steps of `work`, and for each 16 bytes of the memory that is taken at most
    meanwhile another one, which is how objects are seen that a reader in C makes.  The
    factor is `MachineSpec.alike_max`; what is flat counts as at least a step for each 8 bytes.
    """
    for frame in spec.frames:
        contents = iter(frame.contents.items())
        _, flat = next(contents)
        floor = max(1 / 8, float(_cost(spec, frame, flat)))
        for name, content in contents:
            cost = _cost(spec, frame, content)
            if cost.size and float(cost) > spec.alike_max * floor:
                raise PropertyError(
                    f"{frame.name}, {name}: {float(cost):.2f} steps for a byte ({cost}), over"
                    f" {spec.alike_max} times the {floor:.2f} of flat ones"
                )


def _cost(spec: MachineSpec, frame: Frame, content: Content) -> _Cost:
    told = {each.name: each for each in conversations(spec)}
    before = told[frame.after] if frame.after is not None else NOTHING_TOLD
    before = replace(before, config={**before.config, **frame.config})
    data = frame.wrap(content(frame.size))
    with watchdog():
        driver = driver_for(spec, before)
        driver.start()
        for operation in before.operations:
            driver.run(operation)
        return _counted(driver, frame, data)


def _counted(driver: Driver, frame: Frame, data: bytes) -> _Cost:
    operation = Receive(data, frame.link)
    meter = Meter()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        if hasattr(driver.machine, "receive_datagram"):
            meter.count(lambda: driver.run(ReceiveDatagram(data, frame.source)))
        else:
            for part in welcome(driver, operation):
                meter.count(lambda part=part: driver.run(part))  # type: ignore[misc]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return _Cost(meter.steps, max(0, peak - before), len(data))
