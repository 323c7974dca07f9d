"""The peer's actions.  The last event is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.machine import Closed, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCreated(Event):
    """The peer has created a stream."""

    stream_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamData(Event):
    """A piece of the data of a Write, never empty.

    The pieces of a Write have `Limits.piece_size_max` bytes; the last one has the rest, or as much
    of it as has come if the connection ends in the middle.  They are larger, and views, only if
    ``as_it_comes`` was asked for.
    """

    stream_id: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCredit(Event):
    """The peer lets us send `amount` more bytes; `INFINITE` means any amount from now on."""

    stream_id: int
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationCredit(Event):
    """The peer lets us create `amount` more streams."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PingReceived(Event):
    """A Ping, of a stream or (``None``) global.  The Pong is on its way."""

    stream_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PongReceived(Event):
    """A Pong, of a stream or (``None``) global, asked for or not."""

    stream_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseReceived(Event):
    """The peer will write no more on a stream, or (``None``) create no more streams.

    The StopRead that answers is on its way, unless we have sent one.
    """

    stream_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReadReceived(Event):
    """The peer will grant no more credit to a stream, or (``None``) for creations.

    The Close that answers is on its way, unless we have sent one.  `unsent_size` bytes
    that were queued on the stream will not be sent.
    """

    stream_id: int | None = None
    unsent_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded(Event):
    """Both endpoints have sent both Close and StopRead; the id is free again."""

    stream_id: int


ConnectionEvent: TypeAlias = (
    StreamCreated
    | StreamData
    | StreamCredit
    | CreationCredit
    | PingReceived
    | PongReceived
    | CloseReceived
    | StopReadReceived
    | StreamEnded
    | Closed
)
