"""The property that a machine never waits for what it does not read."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from culm.machines.driver import Driver
from culm.machines.operations import Advance, Eof, Operation, Receive
from culm.testing.spec import MachineSpec
from culm.testing.suite.floods import welcome
from culm.testing.suite.runs import PropertyError, driver_for, refused, retold
from culm.testing.suite.strategies import (
    Draw,
    calls_in,
    conversation,
    cut_short,
    hostile,
    pick,
    tightened,
    ways_in,
)

_FILLERS = (b"\0", b"\1", b"1", b"x", b"\n", b"\xff")
_CHUNK_SIZE = 4096
_CHUNKS_MAX = 16
_WAITS_MAX = 16


def reads(spec: MachineSpec, draw: Draw) -> None:
    """A machine whose driver keeps up reads on, or ends, whatever a peer has said.

    The peer's story, which may be hostile, breaks off somewhere and goes on with one byte
    again and again.  Once events are taken, effects answered and bytes sent, a machine, or a link
    of one, may want no more bytes until a deadline has come, or until one of its users' calls;
    else it waits for ever, most likely for the rest of something larger than all that it reads.
    """
    told = tightened(spec, conversation(spec, draw), draw)
    ways = [way for way in ways_in(told) if isinstance(way, Receive)]
    if not ways:
        return
    way = pick(ways, draw)
    story = list(told.operations) if draw(st.booleans()) else hostile(spec, told, draw)
    story = [each for each in cut_short(story, draw) if not isinstance(each, Eof)]
    filler = replace(way, data=draw(st.sampled_from(_FILLERS)) * _CHUNK_SIZE)
    with retold(spec, told):
        driver = driver_for(spec, told)
        driver.start()
        for operation in [*story, *[filler] * _CHUNKS_MAX]:
            for part in welcome(driver, operation):
                _do(driver, part)
            if driver.closed is not None:
                return
            if isinstance(operation, Receive) and not _reads(driver, operation):
                _check_waits(spec, driver, operation)


def _do(driver: Driver, operation: Operation) -> None:
    """Do it, unless that is refused, and all that follows from it."""
    refused(driver, operation)
    driver.drain(operation)
    driver.answer()


def _reads(driver: Driver, way: Receive) -> bool:
    """Whether more is wanted on that way, or never will be."""
    link = None if way.link is None else driver.links.get(way.link)
    gone = driver.closed is not None or (way.link is not None and (link is None or link.closed))
    return gone or driver.read_size(way.link) > 0


def _check_waits(spec: MachineSpec, driver: Driver, way: Receive) -> None:
    """Raise `PropertyError` unless time, or its user, lets the machine read on."""
    for _ in range(_WAITS_MAX):
        if (deadline := driver.deadline()) is None:
            break
        _do(driver, Advance(deadline))
        if _reads(driver, way):
            return
    for call in calls_in(spec):
        _do(driver, call)
        if _reads(driver, way):
            return
    raise PropertyError("nothing waits to be done, and it reads no more, nor ends")
