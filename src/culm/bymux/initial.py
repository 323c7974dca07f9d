"""The state that both endpoints agree on before the first byte (spec, "Initial State")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from culm.arguments import check_int, check_type


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialStream:
    """A stream that exists from the start.  Credit is in bytes, or `INFINITE`.

    `urgent`: its queued data leaves before that of all other streams.
    """

    send_credit: int = 0
    receive_credit: int = 0
    urgent: bool = False

    def __post_init__(self) -> None:
        check_int("send_credit", self.send_credit)
        check_int("receive_credit", self.receive_credit)

    def mirrored(self) -> InitialStream:
        """The same stream as the peer sees it."""
        return InitialStream(
            send_credit=self.receive_credit, receive_credit=self.send_credit, urgent=self.urgent
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """Where a connection starts, as one endpoint sees it.

    Raises `ValueError` for an id or a credit that is not a 64-bit unsigned int.

    streams
        Streams that exist from the start, by id (of either parity).
    local_creation_credit
        How many streams we may create.
    remote_creation_credit
        How many streams the peer may create.
    local_creator_credit
        Bytes that we may send at once on a stream that we create, or `INFINITE`.
    remote_creator_credit
        Bytes that the peer may send at once on a stream that it creates, or `INFINITE`.
    creation_closed
        Global Close and StopRead count as sent by both: the set of streams is fixed.
    """

    streams: Mapping[int, InitialStream] = field(
        default_factory=dict[int, InitialStream], hash=False
    )
    local_creation_credit: int = 0
    remote_creation_credit: int = 0
    local_creator_credit: int = 0
    remote_creator_credit: int = 0
    creation_closed: bool = False

    def __post_init__(self) -> None:
        check_type("streams", self.streams, Mapping)
        for stream_id, stream in self.streams.items():
            check_int("stream id", stream_id)
            check_type("stream", stream, InitialStream)
        check_int("local_creation_credit", self.local_creation_credit)
        check_int("remote_creation_credit", self.remote_creation_credit)
        check_int("local_creator_credit", self.local_creator_credit)
        check_int("remote_creator_credit", self.remote_creator_credit)

    def mirrored(self) -> InitialState:
        """The same state as the peer sees it."""
        return InitialState(
            streams={stream_id: stream.mirrored() for stream_id, stream in self.streams.items()},
            local_creation_credit=self.remote_creation_credit,
            remote_creation_credit=self.local_creation_credit,
            local_creator_credit=self.remote_creator_credit,
            remote_creator_credit=self.local_creator_credit,
            creation_closed=self.creation_closed,
        )


VANILLA: Final = InitialState()
"""No streams, no credit, nothing closed."""
