"""Two replicators in one process, each with its store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from culm.machine import Durable, StreamMachine

__all__ = ["End", "exchange"]


class Replicator(StreamMachine, Durable, Protocol):
    """A machine over a store, of any protocol."""


@dataclass
class End:
    """A replicator, and its store.

    said: the bytes it has sent, if they are to be kept.
    """

    replicator: Replicator
    store: Any
    said: bytearray | None = None

    def drain(self) -> bool:
        """Take events and effects, in rounds; returns whether there were any."""
        replicator, moved, more = self.replicator, False, True
        while more:
            more = False
            while replicator.next_event() is not None:
                more = True
            while (effect := replicator.next_effect()) is not None:
                replicator.complete(effect.ticket, self.store.perform(effect))
                more = True
            moved |= more
        return moved

    def send_to(self, other: End, size_max: int) -> bool:
        """Pass on at most `size_max` bytes; returns whether there were any."""
        data = self.replicator.data_to_send(min(size_max, other.replicator.read_size()))
        if data:
            other.replicator.receive_data(data)
            if self.said is not None:
                self.said += data
        return bool(data)


def exchange(one: End, other: End, *, size_max: int) -> None:
    """Let both go on, passing on `size_max` bytes at a time, until nothing happens."""
    moved = True
    while moved:
        moved = False
        for here, there in ((one, other), (other, one)):
            moved |= here.drain()
            moved |= here.send_to(there, size_max)
