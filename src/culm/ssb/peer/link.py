"""One connection of a peer: handshake, box stream, muxrpc."""

from __future__ import annotations

from collections.abc import Callable

from culm.buffer import Buffer, check_buffer, check_size_max
from culm.machine import (
    Closed,
    ContractErrorCode,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
    StreamMachine,
    Timed,
)
from culm.ssb.box_stream import BoxStream
from culm.ssb.ebt import SessionRole
from culm.ssb.events import Authenticated
from culm.ssb.muxrpc import Connection
from culm.ssb.peer.liveness import Liveness
from culm.stack import over, then

__all__ = ["PeerLink", "sealed"]


def sealed(handshake: StreamMachine, rpc: Connection, *, packets_max: int) -> StreamMachine:
    """`rpc` inside a box stream, after the handshake."""

    def build(event: Event) -> StreamMachine | None:
        if not isinstance(event, Authenticated):
            return None
        return over(BoxStream(keys=event.keys, packets_max=packets_max), rpc)

    return then(handshake, build)


class PeerLink:
    """A `culm.machine.Link`.

    role: whether we have dialled.
    rpc: the calls of this connection.
    liveness: tracks the peer's silence.
    """

    def __init__(
        self,
        *,
        number: int,
        role: SessionRole,
        rpc: Connection,
        machine: StreamMachine,
        liveness: Liveness,
        wake: Callable[[PeerLink], None],
        fill: Callable[[PeerLink], None],
        holds: Callable[[PeerLink], bool],
    ) -> None:
        self.number = number
        self.role = role
        self.rpc = rpc
        self.closed = False
        self.liveness = liveness
        self._machine = machine
        self._timed = machine if isinstance(machine, Timed) else None  # kept: the check is slow
        self._wake = wake  # called when there may be events
        self._fill = fill  # called when there is room for more to send
        self._holds = holds  # tells whether input of the peer has to wait for the store
        self._fault: RemoteProtocolError | None = None
        self._eof = False

    # Bytes

    def receive_data(self, data: Buffer) -> None:
        if self._eof:
            raise LocalProtocolError(ContractErrorCode.DATA_AFTER_EOF)
        check_buffer(data)
        if not self.closed:
            self._machine.receive_data(data)
            self.liveness.heard()
            self._wake(self)

    def receive_eof(self) -> None:
        self._eof = True
        self._machine.receive_eof()
        self._wake(self)

    def read_size(self) -> int:
        if self.closed or self._eof or self._holds(self):
            return 0
        return self._machine.read_size()

    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        parts: list[bytes] = []
        while size_max is None or size_max > 0:
            self._fill(self)
            data = self._machine.data_to_send(size_max)
            if not data:
                break
            parts.append(data)
            if size_max is not None:
                size_max -= len(data)
        if parts:
            self.liveness.left()
        return b"".join(parts)

    def close(self) -> None:
        """Say goodbye; the machine reports the end."""
        self._machine.close()
        self._wake(self)

    # For the peer

    @property
    def is_failing(self) -> bool:
        """Whether the link has failed, and waits for nothing more."""
        return self._fault is not None

    def next_event(self) -> Event | None:
        if self.closed:
            return None
        if self._fault is not None:
            self.closed = True
            return Closed(error=self._fault)
        event = self._machine.next_event()
        if isinstance(event, Closed):
            self.closed = True
        return event

    def fail(self, error: RemoteProtocolError) -> None:
        """End the link: the peer has sent well-formed packets against a rule, or nothing."""
        self._fault = error.detached()
        self._machine.close()
        self._wake(self)

    def next_deadline(self) -> float | None:
        """The deadline of the handshake."""
        return None if self._timed is None else self._timed.next_deadline()

    def advance(self, now: float) -> None:
        if self._timed is not None:
            self._timed.advance(now)
            self._wake(self)
