"""A machine with a fault planted in it: ``fickle.py write KIND FILE``, ``replay KIND FILE``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from culm.bymux import Connection, Role
from culm.capture import Recorder, read, replay
from culm.machine import Buffer


class BySet(Connection):
    """Opens streams in the order of a set of names."""

    def receive_eof(self) -> None:
        for name in {"north", "east", "south", "west", "up", "down"}:
            self.open_stream(len(name))
        super().receive_eof()

    def open_stream(self, credit: int) -> None:
        """A stream whose first credit tells its place in the order."""
        self._said += bytes([credit])

    _said = b""

    def data_to_send(self, size_max: int | None = None) -> bytes:
        said, self._said = self._said, b""
        return super().data_to_send(size_max) + said


class ByClock(BySet):
    """Looks at a clock after some bytes have come."""

    def receive_data(self, data: Buffer) -> None:
        super().receive_data(data)
        self._said += time.time_ns().to_bytes(8, "big")

    def receive_eof(self) -> None:
        super(BySet, self).receive_eof()


KINDS = {"set": BySet, "clock": ByClock}


def write(kind: str, path: Path) -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append)
    machine = recorder.stand_in(KINDS[kind](role=Role.REACTIVE))
    machine.data_to_send()
    machine.receive_data(b"\0")
    machine.data_to_send()
    machine.receive_eof()
    while machine.next_event() is not None:
        machine.data_to_send()
    recorder.flush()
    path.write_bytes(b"".join(pieces))


def replay_it(kind: str, path: Path) -> None:
    found = replay(read(path.read_bytes()), lambda *_: KINDS[kind](role=Role.REACTIVE))
    print("the same" if found is None else f"{found.number} {found.recorded.name}")


if __name__ == "__main__":
    {"write": write, "replay": replay_it}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
