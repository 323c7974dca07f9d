"""A driver's sends overlap with other events: each report of a send is accepted, whatever has
ended.

A send is under way from taking `outgoing` to reporting `sent`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from culm.machine import Event
from culm.pump import LinkedPump, Pump, StreamPump, Timing
from toy_links import Chat
from toy_machines import Lines

TEXT = b"a long line to send"
LINE = TEXT + b"\n"
TIMING = Timing(linger_s=3.0, linger_after_error_s=2.0)


class Sending:
    """A connection with `LINE` to send, and ways in which it may end."""

    link: StreamPump
    pump: Any
    machine: Any

    def __init__(self) -> None:
        self.raises = False

    def take(self, event: Event) -> None:
        if self.raises:
            raise OSError("a handler has failed")

    def fault(self) -> None:
        """The peer breaks a rule, and takes nothing from then on."""
        self.link.receive_data(b"x" * 100, 1.0)

    def expire(self) -> None:
        self.fault()
        self.pump.advance(100.0)

    def handler_fails(self) -> None:
        self.raises = True
        self.link.receive_data(b"hello\n", 1.0)

    def vanish(self) -> None:
        """The end in several steps, each of them reported."""
        self.link.send_failed(1.0)
        self.link.connection_lost(1.0)
        self.link.connection_lost(2.0)
        self.pump.abort()


class OneStream(Sending):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Lines()
        self.pump = self.link = Pump(self.machine, on_event=self.take, timing=TIMING)
        self.pump.connection_made(0.0)
        self.pump.call(0.0, self.machine.say, TEXT)


class OneOfSeveral(Sending):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Chat()
        self.pump = LinkedPump(self.machine, on_event=self.take, timing=TIMING)
        links = [self.pump.call(0.0, self.machine.accepted) for _ in range(2)]
        self.link, self.other = (self.pump.attach(link, 0.0) for link in links)
        self.pump.call(0.0, self.machine.say, TEXT)


ENDS: dict[str, Callable[[Sending], object]] = {
    "nothing": lambda sending: None,
    "connection lost": lambda sending: sending.link.connection_lost(1.0),
    "send failed": lambda sending: sending.link.send_failed(1.0),
    "aborted": lambda sending: sending.pump.abort(),
    "peer's end": lambda sending: sending.link.receive_eof(1.0),
    "machine closed": lambda sending: sending.pump.call(1.0, sending.machine.close),
    "peer's fault": Sending.fault,
    "lingered": Sending.expire,
    "handler fails": Sending.handler_fails,
    "one after the other": Sending.vanish,
}
KINDS = [OneStream, OneOfSeveral]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_send_under_way_is_reported_after_any_end(kind: type[Sending], end: str) -> None:
    size = len(LINE)
    for before, reported in product([0, 5], [0, 1, size - 5]):
        sending = kind()
        sending.link.sent(before, 0.5)
        piece = sending.link.outgoing
        ENDS[end](sending)
        assert bytes(piece) == LINE[before:]
        assert sending.link.outgoing in (piece, b"")
        sending.link.sent(reported, 100.0)
        assert sending.link.bytes_sent == before + reported
        rest = sending.link.outgoing
        assert not rest or bytes(rest).startswith(LINE[before + reported :])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_more_than_was_taken_is_refused_after_any_end(kind: type[Sending], end: str) -> None:
    sending = kind()
    size = len(sending.link.outgoing)
    ENDS[end](sending)
    before = bytes(sending.link.outgoing)
    for wrong in (-1, size + 1):
        with pytest.raises(ValueError, match="size must be in"):
            sending.link.sent(wrong, 100.0)
    assert (bytes(sending.link.outgoing), sending.link.bytes_sent) == (before, 0)
    sending.link.sent(size, 100.0)
    assert sending.link.bytes_sent == size


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_to_be_sent_where_nobody_takes_it(kind: type[Sending]) -> None:
    """Whatever part of the last piece was under way, and whatever the machine says afterwards."""
    for end in ("connection lost", "send failed", "aborted"):
        sending = kind()
        ENDS[end](sending)
        assert bytes(sending.link.outgoing) == b""
        sending.link.sent(3, 1.0)
        assert bytes(sending.link.outgoing) == b""
