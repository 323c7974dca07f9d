"""Calls in every form that the contract allows are forwarded, recorded and replayed alike."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest

from culm.capture import Recorder, read, replay
from culm.machines import lookup

WIDE = memoryview(array("H", [1, 2, 3]))  # three items, six bytes

CALLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a size by its name": ("bymux", lambda machine: machine.data_to_send(size_max=5)),
    "no size by its name": ("bymux", lambda machine: machine.data_to_send(size_max=None)),
    "no size": ("bymux", lambda machine: machine.data_to_send(None)),
    "size 0": ("bymux", lambda machine: machine.data_to_send(0)),
    "no size at all": ("bymux", lambda machine: machine.data_to_send("all")),
    "data by their name": ("bymux", lambda machine: machine.receive_data(data=b"\x00")),
    "a view of wide items": ("bymux", lambda machine: machine.receive_data(WIDE)),
    "a datagram in wide items": (
        "oxen",
        lambda machine: machine.receive_datagram(WIDE, source=b"peer"),
    ),
    "a datagram by its name": (
        "oxen",
        lambda machine: machine.receive_datagram(source=b"peer", data=b"parcel"),
    ),
    "a time by its name": ("oxen", lambda machine: machine.advance(now=2.5)),
    "a whole number of seconds": ("oxen", lambda machine: machine.advance(3)),
}


def outcome(call: Callable[[Any], Any], machine: Any) -> object:
    try:
        return call(machine)
    except (TypeError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("name", CALLS)
def test_a_recorded_machine_takes_calls_in_every_form(name: str) -> None:
    kind, call = CALLS[name]
    blocks: list[bytes] = []
    bare, recorder = lookup(kind).make({}), Recorder(blocks.append, machine=kind)
    shown = recorder.stand_in(lookup(kind).make({}))
    for each in (lambda machine: None, call, call):
        assert outcome(each, shown) == outcome(each, bare)
        while (event := shown.next_event()) is not None:
            assert event == bare.next_event()
        assert bare.next_event() is None
    recorder.flush()
    assert replay(read(b"".join(blocks))) is None
