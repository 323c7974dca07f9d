"""The property that all contents of a frame cost alike."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace

from culm.machines.driver import Driver
from culm.machines.operations import Receive, ReceiveDatagram
from culm.testing.contents import Content
from culm.testing.record import driver_for
from culm.testing.spec import Frame, MachineSpec
from culm.testing.suite.floods import told_before, wanted, welcome
from culm.testing.suite.meter import Meter
from culm.testing.suite.runs import PropertyError, watchdog

_MEMORY_PER_STEP = 16  # bytes
_PIECES = 16  # pieces of a frame that shows how much of it is read


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of a frame: steps, and the peak of memory meanwhile."""

    steps: int
    memory: int
    size: int

    def __float__(self) -> float:
        """Steps for each byte, memory included."""
        return (self.steps + self.memory / _MEMORY_PER_STEP) / self.size


def alike(spec: MachineSpec) -> None:
    """Every content of a frame costs about as much for each byte as a flat one.

    Counted are the steps of `work`, and another one for each 16 bytes of peak memory, which
    reveals objects made by a reader in C.  The factor is `Bounds.alike_max`; a flat content
    counts as at least a step for each 8 bytes.  A frame that is refused at its first bytes costs
    nothing, and proves nothing: half of a flat one has to be read, unless `Frame.refused` is set.
    """
    for frame in spec.attacks.frames:
        contents = iter(frame.contents.items())
        _, flat = next(contents)
        _check_read(spec, frame, frame.wrap(flat(frame.size)))
        floor = max(1 / 8, float(_cost(spec, frame, flat)))
        for name, content in contents:
            cost = _cost(spec, frame, content)
            if cost.size and float(cost) > spec.bounds.alike_max * floor:
                raise PropertyError(
                    f"{frame.name}, {name}: {float(cost):.2f} steps for a byte ({cost}), over"
                    f" {spec.bounds.alike_max} times the {floor:.2f} of flat ones"
                )


def _check_read(spec: MachineSpec, frame: Frame, data: bytes) -> None:
    """Raise `PropertyError` for a frame whose content is not read."""
    with watchdog():
        driver = _before(spec, frame)
        if hasattr(driver.machine, "receive_datagram"):
            turns = driver.run(ReceiveDatagram(data, frame.source))
            comes = any(turn.events or turn.datagrams for turn in turns)
            if not (comes or frame.refused):
                raise PropertyError(f"{frame.name}: nothing comes of a flat one")
            return
        read = _bytes_read(driver, Receive(data, frame.link))
    if not read:
        raise PropertyError(f"{frame.name}: not a byte of it is welcome")
    if 2 * read < len(data) and not frame.refused:
        raise PropertyError(f"{frame.name}: a flat one is refused at byte {read} of {len(data)}")


def _bytes_read(driver: Driver, frame: Receive) -> int:
    """The approximate number of bytes of a frame that the machine reads."""
    step = -(-len(frame.data) // _PIECES)
    for at in range(0, len(frame.data), step):
        if driver.closed is not None or not wanted(driver, frame):
            return at
        for part in welcome(driver, replace(frame, data=frame.data[at : at + step])):
            driver.run(part)
    return len(frame.data)


def _before(spec: MachineSpec, frame: Frame) -> Driver:
    """A driver of a machine after the conversation that precedes the frame."""
    before = told_before(spec, frame)
    driver = driver_for(spec.machine, before)
    driver.tell(before.operations)
    return driver


def _cost(spec: MachineSpec, frame: Frame, content: Content) -> _Cost:
    data = frame.wrap(content(frame.size))
    with watchdog():
        return _counted(_before(spec, frame), frame, data)


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
