"""The pump of a machine over datagrams."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Generic, Unpack

from culm.buffer import Buffer
from culm.machine import A, DatagramMachine, E_co, check_time
from culm.pump.engine import Engine, Handlers


class DatagramPump(Engine[DatagramMachine[E_co, A], E_co], Generic[E_co, A]):
    """Drives a machine over datagrams; see `Handlers` for its other arguments.

    Datagrams are taken from the machine when all that were taken before have gone, so that the
    rest stays within the machine's limits.
    """

    def __init__(
        self, machine: DatagramMachine[E_co, A], **handlers: Unpack[Handlers[E_co]]
    ) -> None:
        super().__init__(machine, **handlers)
        self._outgoing: deque[tuple[A, bytes]] = deque()

    def receive_datagram(self, data: Buffer, now: float, *, source: A) -> None:
        """A datagram has come from the address `source`."""
        self._input(now, partial(self.machine.receive_datagram, data, source=source))

    def next_datagram(self, now: float) -> tuple[A, bytes] | None:
        """Take a datagram to send, with its destination; ``None`` if there is none.

        A driver that cannot send it at once may drop it, as the network may.
        """
        check_time(now, None)
        if not self._outgoing:
            return None
        datagram = self._outgoing.popleft()
        if not self._outgoing and self._may_have_more():
            self._input(now, lambda: None)
        return datagram

    def _may_have_more(self) -> bool:
        """Whether a drain may bring more datagrams.

        In `wake` the last drain has told the time and left nothing to do: the machine is asked
        for datagrams alone.
        """
        if not self._waking or self._draining or self._unfinished or self._error is not None:
            return True
        try:
            return self._take_bytes()
        except Exception as error:
            self._stop(error)
            self._give_up()
            return True

    def _take_bytes(self) -> bool:
        if self._outgoing:
            return False
        self._outgoing.extend(self.machine.datagrams_to_send())
        return len(self._outgoing) > 0

    def _is_hung_up(self) -> bool:
        return not self._outgoing

    def _hang_up(self) -> None:
        self._outgoing.clear()
