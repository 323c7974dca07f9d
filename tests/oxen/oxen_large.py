"""A node among puppets that send messages in pieces."""

from __future__ import annotations

from dataclasses import replace

from oxen_simulation import EPOCH
from oxen_support import DEFAULT_TIMING, ME, Table

from culm.oxen import (
    Delivery,
    Limits,
    MessageReceived,
    Node,
    Timing,
)
from culm.oxen.messages import (
    Message,
    MessageAck,
    MessageData,
    Piece,
    Position,
    Synchronize,
    read_message,
)

P, Q, R = b"P", b"Q", b"R"
FIRST, MIDDLE, LAST = Position
SIZE_MAX = 10_000
LIMITS = Limits(datagram_size_max=400, message_size_max=SIZE_MAX, queue_max=8)
ONE_PLACE = replace(LIMITS, assemblies_max=1)
ALONE = Node(me=ME, rng=Table().dice, epoch=EPOCH, limits=LIMITS).payload_size_max(
    Delivery.IN_ORDER
)


def one(sequence: int, position: Position, data: bytes) -> Piece:
    return Piece(b"1", sequence, position, data)


def joined(*, limits: Limits = LIMITS, timing: Timing = DEFAULT_TIMING) -> Table:
    """A node with the peer `P`, which takes messages of 5,000 bytes, and `Q`, which takes none."""
    table = Table(limits=limits, timing=timing)
    let_in(table, P, 5_000)
    let_in(table, Q, 0)
    table.events()
    return table


def let_in(table: Table, sid: bytes, size_max: int, number: int = 0) -> Synchronize:
    table.said()
    table.tell_message(sid, Synchronize(0, number, size_max))
    return table.accept(sid, sid)


def acknowledge(table: Table, fr: bytes) -> list[Message]:
    """Let `fr` acknowledge everything that comes, one by one in that order; the messages."""
    found: list[Message] = []
    while bodies := table.bodies(MessageData, fr):
        for body in bodies:
            found.append(read_message(body.d))
            table.tell(fr, MessageAck(ME, fr, body.id))
    return found


def received(data: bytes, delivery: Delivery = Delivery.IN_ORDER) -> MessageReceived:
    return MessageReceived(peer=P, data=data, delivery=delivery)


def full(timing: Timing = DEFAULT_TIMING) -> Table:
    """A node with a single place, held by `P`."""
    table = Table(
        limits=Limits(datagram_size_max=400, message_size_max=SIZE_MAX, assemblies_max=1),
        timing=timing,
    )
    for sid in (P, Q):
        let_in(table, sid, 0)
    table.tell_message(P, one(1, FIRST, b"a"))
    table.said()
    table.tell_message(Q, one(1, FIRST, b"x"))
    assert table.acknowledged() == []
    table.events()
    return table


def begun(table: Table, number: int = 1) -> bool:
    """Whether `Q` gets a place now."""
    table.said()
    id = table.tell_message(Q, one(number, FIRST, b"x"))
    return table.acknowledged() == [id]
