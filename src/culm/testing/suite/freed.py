"""Ids that a user may use again as soon as an event says so."""

from __future__ import annotations

from typing import Any

from culm.machine import Event, LocalProtocolError
from culm.machines.driver import Driver
from culm.machines.operations import Operation
from culm.testing.record import conversations
from culm.testing.spec import Conversation, Free, MachineSpec
from culm.testing.suite.runs import PropertyError, driver_for, retold, watchdog
from culm.testing.suite.strategies import Draw, conversation, pick, variant

_BYTES_TAKEN = (0, 1, 64, None)


def every_freed(spec: MachineSpec) -> None:
    """The law of `freed` for unchanged conversations: each event, and at least one of them."""
    count = 0
    for told in conversations(spec):
        with watchdog(), retold(spec, told):
            number = 0
            while _uses(spec, told, list(told.operations), number):
                number += 1
            count += number
    if not count:
        raise PropertyError("no conversation has an event that says that an id is free")


def freed(spec: MachineSpec, draw: Draw) -> None:
    """An id that an event calls free can be used at once, before anything else is done.

    `Usage.frees` says which event calls which id free, and the call that uses it.  That may be
    refused for other reasons.  Conversations are varied, and bytes are taken in small pieces or
    not at all.
    """
    told = conversation(spec, draw)
    story = variant(told.operations, draw)
    size = pick(_BYTES_TAKEN, draw)
    with retold(spec, told):
        number = 0
        while _uses(spec, told, story, number, size_max=size):
            number += 1


class _Tried(Exception):
    """The id was tried: the story ends here."""


def _uses(
    spec: MachineSpec,
    told: Conversation,
    story: list[Operation],
    number: int,
    *,
    size_max: int | None = None,
) -> bool:
    """Use the id that the event with that number calls free; whether there is such an event.

    size_max: bytes that are taken each time.
    """
    driver = driver_for(spec, told)
    assert spec.usage.frees is not None
    driver.wrap(_Watched(driver, driver.machine, spec.usage.frees, number))
    if size_max is not None:
        driver.take_by(lambda machine: machine.data_to_send(size_max))
    try:
        driver.tell(story)
    except _Tried:
        return True
    return False


class _Watched:
    """A machine whose ids are used as soon as they are free, or the one of that number."""

    def __init__(self, driver: Driver, machine: Any, frees: Free, number: int) -> None:
        self._driver, self._machine, self._frees, self._left = driver, machine, frees, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def next_event(self) -> Event | None:
        event: Event | None = self._machine.next_event()
        call = None if event is None else self._frees.again(event)
        if call is None:
            return event
        if self._left:
            self._left -= 1
            return event
        try:
            self._driver.apply(call)
        except LocalProtocolError as error:
            if error.code in self._frees.taken:
                raise PropertyError(f"after {event}, {call} is refused: {error}") from error
        raise _Tried
