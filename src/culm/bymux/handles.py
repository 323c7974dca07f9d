"""The caller's view of streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from culm.arguments import check_int
from culm.buffer import Buffer
from culm.bymux.packets import INFINITE, PacketType
from culm.bymux.states import StreamState
from culm.bymux.stream import StreamScope


class Stream:
    """A light handle on one stream of a `Connection`.

    Handles on the same stream are equal.  A handle outlives its stream: then its verbs
    raise, and a later stream with the same id has handles of its own.

    Every verb raises `LocalProtocolError` if a rule forbids the packet that it stands
    for (the code says which one), or if the connection has ended
    (``ContractErrorCode.ALREADY_CLOSED``); nothing has changed then.
    """

    __slots__ = ("_scope",)

    def __init__(self, scope: StreamScope) -> None:
        self._scope = scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._scope is self._scope

    def __hash__(self) -> int:
        return hash(self._scope)

    def __repr__(self) -> str:
        local, remote = self.state
        return f"<Stream {self.stream_id} local={local.name} remote={remote.name}>"

    @property
    def stream_id(self) -> int:
        return self._scope.stream_id

    @property
    def state(self) -> StreamState:
        """The Close and StopRead that each endpoint has sent.

        Ours count as sent as soon as they are due.  A Close that waits for unsent data
        is not due yet.
        """
        return StreamState(self._scope.local, self._scope.remote)

    @property
    def send_credit(self) -> int:
        """Bytes that we may put into Writes, or `INFINITE`."""
        return self._scope.send_credit

    @property
    def receive_credit(self) -> int:
        """Bytes that the peer may still send (and that have not been handed up), or `INFINITE`."""
        return self._scope.receive_credit

    @property
    def unsent_size(self) -> int:
        """Queued bytes that are in no Write yet."""
        return self._scope.unsent_size

    def send_data(self, data: Buffer) -> None:
        """Queue data of any size, to be sent as credit allows.

        It is not copied: the caller must not change it afterwards.
        """
        self._scope.send_data(data)

    def grant(self, credit: int) -> None:
        """Let the peer send `credit` more bytes, which we can handle at once.

        A sum of exactly ``2**64 - 1`` is infinite.  Raises `ValueError` for less than 1
        or more than ``2**64 - 1``.
        """
        check_int("credit", credit, 1)
        self._scope.grant(credit)

    def grant_infinite(self) -> None:
        """Let the peer send any number of bytes; this cannot be undone."""
        self._scope.grant_infinite()

    def set_window(self, size: int) -> None:
        """Keep the sum of the peer's credit and of bytes not yet `consumed` at `size`.

        From now on credit is granted whenever that can be restored and is urgent: the refill is
        at least the credit that the peer has left, and at least 1 (spec, appendix B).  Data
        that was handed up before counts as consumed.  Raises `ValueError` unless
        ``0 <= size < INFINITE``.
        """
        check_int("window", size, 0, INFINITE - 1)
        self._scope.set_window(size)

    def consumed(self, size: int) -> None:
        """Report that `size` bytes of this stream's data have been processed.

        Also allowed when no more credit may be granted, even after the end.  Raises
        `LocalProtocolError` (``CONSUMED_TOO_MUCH``) if fewer were handed up since `set_window`, and
        `ValueError` for less than 0.
        """
        check_int("size", size)
        self._scope.consumed(size)

    def withdraw_credit(self) -> None:
        """Withdraw the credit that waits to be sent: nothing more will be read."""
        self._scope.withdraw_credit()

    @property
    def ping_waits(self) -> bool:
        """Whether a Ping of this stream is still queued."""
        return self._scope.ping_waits

    def ping(self) -> None:
        """Ask for a `PongReceived` of this stream."""
        self._scope.send(PacketType.PING)

    def close(self) -> None:
        """Send a Close, after all queued data: no more data may be sent."""
        self._scope.send(PacketType.CLOSE)

    def stop_read(self) -> None:
        """Send a StopRead: no more credit will be granted.

        The peer may still use up the credit that it has; that data comes up as before.
        """
        self._scope.send(PacketType.STOP_READ)


class Streams(Mapping[int, Stream]):
    """The live streams, by id: a view that follows the connection."""

    __slots__ = ("_scopes",)

    def __init__(self, scopes: Mapping[int, StreamScope]) -> None:
        self._scopes = scopes

    def __getitem__(self, stream_id: int) -> Stream:
        return Stream(self._scopes[stream_id])

    def __iter__(self) -> Iterator[int]:
        return iter(self._scopes)

    def __len__(self) -> int:
        return len(self._scopes)
