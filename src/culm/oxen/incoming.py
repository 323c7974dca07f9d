"""Messages that a peer sends in order: two streams, synchronized and finalized together.

Source: manual/dev-oxen.md, "Synchronize message" and "Finalize message".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from culm.oxen.events import Delivery
from culm.oxen.messages import Finalize, Piece, Synchronize, Tags

RESTART_GAP = 2**26
"""Numbers of one association are closer together than this, those of two are farther apart."""

START_MAX = 2**62
"""No stream starts above this number: a message that says otherwise is forged."""


# The two streams, by their letters in messages.
DELIVERY_OF = {b"1": Delivery.IN_ORDER, b"b": Delivery.IN_ORDER_BROADCAST}
KIND_OF = {delivery: kind for kind, delivery in DELIVERY_OF.items()}


class Age(Enum):
    """Age of a message's numbers relative to the present association."""

    SAME = "same"
    """The present ones: a redelivery, or the sender goes on after messages that it gave up."""
    NEWER = "newer"
    """The sender has started anew."""
    OLDER = "older"
    """From before the sender started anew, unless it picks its numbers at random."""


class InOrder:
    """One stream: messages come out in the order of their numbers, each of them once.

    The same holds for pieces of messages, which have a number each.
    """

    __slots__ = ("_refused", "_waiting", "_window", "position")

    def __init__(self, position: int, window: int) -> None:
        self.position = position
        """The number of the last message that came out."""
        self._window = window
        self._waiting: dict[int, bytes | Piece] = {}
        self._refused = False  # whether a message came too early since `is_overtaken` was asked

    def __len__(self) -> int:
        """Number of messages that wait for earlier ones."""
        return len(self._waiting)

    def accept(self, sequence: int, data: bytes | Piece) -> list[bytes | Piece] | None:
        """Take a message; returns the messages that come out now, ``None`` if beyond the window.

        A duplicate has no effect.
        """
        position = self.position
        if sequence == position + 1:
            self.position = sequence
            return [data, *self._released()] if self._waiting else [data]
        if sequence <= position:
            return []
        if sequence > position + self._window:
            self._refused = True
            return None
        self._waiting.setdefault(sequence, data)
        return []

    def is_overtaken(self) -> bool:
        """Whether later messages have come, or have come too early since this was asked last."""
        refused, self._refused = self._refused, False
        return refused or bool(self._waiting)

    def expects(self, sequence: int) -> bool:
        """Whether the message with that number is missing and within the window."""
        return (
            self.position < sequence <= self.position + self._window
            and sequence not in self._waiting
        )

    def skip(self, position: int) -> list[bytes | Piece]:
        """Give up missing messages up to `position`; returns the messages that come out now."""
        if position <= self.position:
            return []
        out = [self._waiting.pop(number) for number in sorted(self._waiting) if number <= position]
        self.position = position
        return [*out, *self._released()]

    def _released(self) -> list[bytes | Piece]:
        out: list[bytes | Piece] = []
        while (data := self._waiting.pop(self.position + 1, None)) is not None:
            out.append(data)
            self.position += 1
        return out


class Incoming:
    """Both streams of one association with a peer, and the tags that it has sent in it."""

    __slots__ = (
        "_ready",
        "_start",
        "_version",
        "broadcast",
        "finalized",
        "message_size_max",
        "one",
        "tags",
        "tags_size_max",
        "vouched",
    )

    def __init__(self, start: Synchronize, window: int, *, vouched: bool = False) -> None:
        self._start = start.one, start.broadcast
        self.broadcast = InOrder(start.broadcast, window)
        self.one = InOrder(start.one, window)
        self.message_size_max = start.message_size_max
        """Bytes of the largest message that the peer takes in pieces; 0: none."""
        self.tags_size_max = start.tags_size_max
        """Bytes of the tags that the peer takes; 0: none."""
        self.tags: Mapping[str, str] = {}
        self._version = 0  # of the tags
        self.vouched = vouched
        """Whether the peer has named our number, which proves that these numbers are its own."""
        self.finalized: Finalize | None = None
        self._ready: dict[Delivery, list[bytes | Piece]] = {}

    def stream(self, delivery: Delivery) -> InOrder:
        """The stream for that kind of delivery in order."""
        return self.one if delivery is Delivery.IN_ORDER else self.broadcast

    def is_passed_by(self, start: Synchronize) -> bool:
        """Whether `start` is ahead of us, and so gives up missing messages."""
        return start.one > self.one.position or start.broadcast > self.broadcast.position

    def vouch(self) -> None:
        """Note that the sender has named our number, too."""
        self.vouched = True

    def gives_way_to(self, age: Age) -> bool:
        """Whether to believe numbers of that age while there is no joined peer to ask.

        Not if the present numbers are vouched for: a genuine sender names our number again.
        """
        return self.one.position >= START_MAX or (age is Age.NEWER and not self.vouched)

    def leads_to(self, start: Synchronize) -> bool:
        """Whether `start` is not from before ours: all deliveries since then are its sender's own.

        It may be older than the last delivery, if messages that followed it have overtaken it.
        """
        one, broadcast = self._start
        return start.one >= one and start.broadcast >= broadcast

    def go_on(self, start: Synchronize) -> None:
        """Go on after `start`: the sender has given up the messages missing up to there."""
        for delivery, stream, position in (
            (Delivery.IN_ORDER_BROADCAST, self.broadcast, start.broadcast),
            (Delivery.IN_ORDER, self.one, start.one),
        ):
            self._ready.setdefault(delivery, []).extend(stream.skip(position))

    def finalize(self, message: Finalize) -> None:
        """Note the announced numbers of the sender's last messages."""
        self.finalized = message

    def stay(self) -> None:
        """Withdraw the sender's goodbye."""
        self.finalized = None

    def tag(self, message: Tags) -> bool:
        """Take the peer's tags; returns whether they have changed."""
        if message.version <= self._version:
            return False
        self._version = message.version
        known, self.tags = self.tags, message.table
        return known != self.tags

    def take_ready(self) -> dict[Delivery, list[bytes | Piece]]:
        """Take the messages that have come out and are still to be delivered."""
        ready, self._ready = self._ready, {}
        return ready

    def age_of(self, message: Synchronize | Finalize | Tags) -> Age:
        """The age of `message` relative to this association, judged by its one-to-one number.

        If the sender's clock was set back, two associations may have begun at almost the same
        time; the broadcast number, which belongs to the sender's life, tells these apart.
        """
        distance = message.one - self.one.position
        if abs(distance) < RESTART_GAP and not isinstance(message, Tags):
            distance = message.broadcast - self.broadcast.position
        if abs(distance) < RESTART_GAP:
            return Age.SAME
        return Age.NEWER if distance > 0 else Age.OLDER

    @property
    def complete(self) -> bool:
        """Whether all messages up to those announced by the peer, which has finalized, are out."""
        last = self.finalized
        assert last is not None
        return self.broadcast.position >= last.broadcast and self.one.position >= last.one
