"""What a peer sends in order: two streams, synchronized and finalized together.

Source: manual/dev-oxen.md, "Synchronize message" and "Finalize message".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from culm.oxen.events import Delivery
from culm.oxen.messages import Finalize, Piece, Synchronize, Tags

__all__ = ["RESTART_GAP", "START_MAX", "Age", "InOrder", "Incoming"]

RESTART_GAP = 2**26
"""Numbers of one association lie closer together than this, those of two farther apart."""

START_MAX = 2**62
"""No start is greater by itself: what a peer says of numbers beyond it, somebody has made up."""


class Age(Enum):
    """How a synchronize message relates to the present association."""

    SAME = "same"
    """A redelivery, or the sender has given up messages and goes on after them."""
    NEWER = "newer"
    """The sender has started anew."""
    OLDER = "older"
    """From before the sender started anew, or else it picks its numbers at random."""


class InOrder:
    """One stream: messages come out in the order of their numbers, each of them once.

    So do pieces of messages: each piece has a number.
    """

    __slots__ = ("_waiting", "_window", "position")

    def __init__(self, position: int, window: int) -> None:
        self.position = position
        """The number of the last message that came out."""
        self._window = window
        self._waiting: dict[int, bytes | Piece] = {}

    def __len__(self) -> int:
        """How many messages wait for earlier ones."""
        return len(self._waiting)

    def accept(self, sequence: int, data: bytes | Piece) -> list[bytes | Piece] | None:
        """Take a message; returns what comes out now, or ``None`` if it is beyond the window.

        A duplicate has no effect.
        """
        position = self.position
        if sequence == position + 1:
            self.position = sequence
            return [data, *self._released()] if self._waiting else [data]
        if sequence <= position:
            return []
        if sequence > position + self._window:
            return None
        self._waiting.setdefault(sequence, data)
        return []

    def expects(self, sequence: int) -> bool:
        """Whether that number is still to come, and not too far ahead."""
        return (
            self.position < sequence <= self.position + self._window
            and sequence not in self._waiting
        )

    def skip(self, position: int) -> list[bytes | Piece]:
        """What is missing up to `position` never comes; returns what comes out now."""
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
        self.broadcast = InOrder(start.broadcast, window)
        self.one = InOrder(start.one, window)
        self.message_size_max = start.message_size_max
        """Bytes of the largest message that the peer takes in pieces; 0: none."""
        self.tags_size_max = start.tags_size_max
        """Bytes of the tags that the peer takes; 0: none."""
        self.tags: Mapping[str, str] = {}
        self._version = 0  # of these
        self.vouched = vouched
        """Whether its sender has named our number: nobody else has made these up."""
        self.finalized: Finalize | None = None
        self._ready: dict[Delivery, list[bytes | Piece]] = {}

    def stream(self, delivery: Delivery) -> InOrder:
        """The stream for that kind of delivery in order."""
        return self.one if delivery is Delivery.IN_ORDER else self.broadcast

    def is_passed_by(self, start: Synchronize) -> bool:
        """Whether `start` gives up anything that is missing."""
        return start.one > self.one.position or start.broadcast > self.broadcast.position

    def vouch(self) -> None:
        """The sender has named our number, too."""
        self.vouched = True

    def gives_way_to(self, age: Age) -> bool:
        """Whether numbers of that age are believed before there is anybody to ask.

        Not if the sender of these has named our number: it names it again, whoever it is now.
        """
        return self.one.position >= START_MAX or (age is Age.NEWER and not self.vouched)

    def leads_to(self, start: Synchronize) -> bool:
        """Whether nothing after `start` has come out."""
        return start.one >= self.one.position and start.broadcast >= self.broadcast.position

    def go_on(self, start: Synchronize) -> None:
        """The sender goes on after `start`: it has given up what is missing up to there."""
        for delivery, stream, position in (
            (Delivery.IN_ORDER_BROADCAST, self.broadcast, start.broadcast),
            (Delivery.IN_ORDER, self.one, start.one),
        ):
            self._ready.setdefault(delivery, []).extend(stream.skip(position))

    def finalize(self, message: Finalize) -> None:
        """The sender has announced what its last messages are."""
        self.finalized = message

    def stay(self) -> None:
        """The sender is still there: it has announced nothing."""
        self.finalized = None

    def tag(self, message: Tags) -> bool:
        """The peer has sent its tags; returns whether that is news."""
        if message.version <= self._version:
            return False
        self._version = message.version
        known, self.tags = self.tags, message.table
        return known != self.tags

    def take_ready(self) -> dict[Delivery, list[bytes | Piece]]:
        """What has come out, and is still to be delivered."""
        ready, self._ready = self._ready, {}
        return ready

    def age_of(self, message: Synchronize | Finalize | Tags) -> Age:
        """How `message` relates to this association, judged by its one-to-one number.

        The number of broadcasts, which is that of the sender's life, tells apart two associations
        that began at almost the same time of a clock that was set back in between.
        """
        distance = message.one - self.one.position
        if abs(distance) < RESTART_GAP and not isinstance(message, Tags):
            distance = message.broadcast - self.broadcast.position
        if abs(distance) < RESTART_GAP:
            return Age.SAME
        return Age.NEWER if distance > 0 else Age.OLDER

    @property
    def complete(self) -> bool:
        """Whether all has come out that the peer, which has finalized, announced."""
        last = self.finalized
        assert last is not None
        return self.broadcast.position >= last.broadcast and self.one.position >= last.one
