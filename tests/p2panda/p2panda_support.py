"""Two connections, and a peer made of bytes."""

from __future__ import annotations

from collections.abc import Iterator

from culm.bamboo import LogKey
from culm.machine import Event
from culm.p2panda import Connection, Dialect, Limits, Timing
from culm.p2panda.codec import Codec
from culm.p2panda.heights import encode_item
from culm.p2panda.messages import Announce, Message, SyncRequest
from culm.testing.link import MachinePair
from culm.wire import cbor

SCHEMAS = ("schema_definition_v1", "blob_v1", "blob_piece_v1")
LOW = encode_item(LogKey(bytes(32), 0), 1)
HIGH = encode_item(LogKey(b"\xff" * 32, 7), 9)


class Peer:
    """A connection, and its peer's side of the conversation.

    yields: our id is the lower one.
    """

    def __init__(
        self,
        *,
        yields: bool = True,
        dialect: Dialect = Dialect.SEED,
        limits: Limits | None = None,
        timing: Timing | None = None,
    ) -> None:
        ids = (b"a", b"b") if yields else (b"b", b"a")
        self.limits = limits or Limits()
        self.connection = Connection(
            local_peer=ids[0],
            remote_peer=ids[1],
            dialect=dialect,
            limits=self.limits,
            timing=timing or Timing(),
        )
        self.codec = Codec(dialect=dialect, limits=Limits())

    def tell(self, *messages: Message) -> list[Event]:
        """The events after these messages of the peer."""
        self.connection.receive_data(b"".join(map(self.codec.encode, messages)))
        return self.events()

    def events(self) -> list[Event]:
        return list(iter(self.connection.next_event, None))

    def said(self) -> list[Message]:
        """Messages sent to the peer since the last call."""
        return list(decoded(self.connection.data_to_send(), self.codec))

    def meet(self) -> None:
        """Both announce all schemas."""
        self.connection.announce(SCHEMAS, timestamp=1)
        self.tell(Announce(1, SCHEMAS))
        self.said()

    def accept(self, session_id: int = 0, mode: int = 1, *schema_ids: str) -> None:
        """The peer asks for a session, and gets it."""
        self.tell(SyncRequest(session_id, mode, schema_ids or SCHEMAS[1:2]))


def decoded(data: bytes, codec: Codec) -> Iterator[Message]:
    while data:
        scanner = cbor.Scanner(size_max=1 << 30)
        size = scanner.scan(data, len(data))
        assert size is not None
        yield codec.decode(data[:size])
        data = data[size:]


def link(left: Limits | None = None, right: Limits | None = None) -> MachinePair:
    """Two connections that have announced all schemas; the left one has the lower id."""
    found = MachinePair.of_machines(
        Connection(local_peer=b"a", remote_peer=b"b", limits=left or Limits()),
        Connection(local_peer=b"b", remote_peer=b"a", limits=right or Limits()),
    )
    for side in (found.left, found.right):
        side.machine.announce(SCHEMAS, timestamp=1)  # type: ignore[union-attr]
    found.run()
    return found
