"""Reading a round of the peer: the order of its messages, and its questions."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from culm.machine import RemoteProtocolError
from culm.reconcile.errors import ErrorCode
from culm.reconcile.estimate import Estimate
from culm.reconcile.messages import (
    Done,
    EmptyPayload,
    LowerBound,
    Message,
    Payload,
    RangeFingerprint,
)
from culm.reconcile.monoids import Fingerprint
from culm.reconcile.tree import View

_COUNT_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Question:
    """A range that the peer asks about.

    `theirs` is the fingerprint that differs from `ours`, or the ranks of those of our items that
    the peer listed; they are empty if it has nothing there.
    """

    lower: bytes
    upper: bytes
    theirs: Fingerprint | array[int]
    ours: Fingerprint | None = None


@dataclass(slots=True)
class PeerRound:
    """One round of the peer, message by message."""

    view: View
    digest_size: int
    ranges_max: int
    lower: bytes | None = None
    complete: bool = False
    questions: list[Question] = field(default_factory=list[Question])
    estimate: Estimate = field(default_factory=Estimate)
    _ranges: int = 0
    _at: bytes = b""
    _last: bytes | None = None
    _known: array[int] = field(default_factory=lambda: array("Q"))

    def read(self, message: Message) -> bytes | None:
        """Take a message; returns its item if we lack it, and raises the peer's fault."""
        if isinstance(message, LowerBound):
            self._begin(message.bound)
        elif isinstance(message, Payload):
            return self._payload(message)
        elif isinstance(message, (Done, EmptyPayload, RangeFingerprint)):
            if self._last is not None:
                raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "a payload has no end")
            if isinstance(message, RangeFingerprint):
                self._fingerprint(message.fingerprint, message.upper_bound)
            elif isinstance(message, EmptyPayload):
                self._check_upper(message.upper_bound)
                self._ask(message.upper_bound, array("Q"))
            self._end(message.upper_bound)
        else:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, f"{message} inside a round")
        return None

    def _begin(self, bound: bytes) -> None:
        if self.lower is not None:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "a second lower bound")
        self._check_size(bound)
        self.lower = self._at = bound

    def _payload(self, message: Payload) -> bytes | None:
        item = message.item
        if self.lower is None or self.complete:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "an item outside of a round")
        try:
            known = item in self.view
        except (TypeError, ValueError) as error:
            raise RemoteProtocolError(ErrorCode.BAD_ITEM, str(error)) from None
        after = self._at if self._last is None else self._last
        if self._place(item) < self._place(after) or item == self._last:
            raise RemoteProtocolError(ErrorCode.BAD_ITEM, "not above the one before")
        self._last = item
        if known:
            self._known.append(self.view.rank(item))
        if message.upper_bound is not None:
            upper = message.upper_bound
            self._check_upper(upper)
            if upper != self.lower and self._place(item) >= self._place(upper):
                raise RemoteProtocolError(ErrorCode.BAD_ITEM, "after the range")
            if message.can_respond:
                self._ask(upper, self._known)
            self._end(upper)
        return None if known else item

    def _fingerprint(self, theirs: Fingerprint, upper: bytes) -> None:
        if len(theirs.state) != self.digest_size or not 0 <= theirs.count <= _COUNT_MAX:
            raise RemoteProtocolError(ErrorCode.BAD_FINGERPRINT, "no fingerprint of this session")
        self._check_upper(upper)
        whole = self.view.fingerprint(self._at, upper)
        ours = Fingerprint(whole.count, self.view.monoid.digest(whole, self.digest_size))
        self.estimate.note(ours.count - theirs.count, ours == theirs)
        if ours != theirs:
            self.questions.append(Question(self._at, upper, theirs, ours))

    def _ask(self, upper: bytes, known: array[int]) -> None:
        self.questions.append(Question(self._at, upper, known))

    def _end(self, upper: bytes) -> None:
        """Finish the range up to `upper`."""
        self._check_upper(upper)
        self._at, self._last = upper, None
        self._known = array("Q")
        self.complete = upper == self.lower
        self._ranges += 1
        if self._ranges > self.ranges_max:
            raise RemoteProtocolError(ErrorCode.TOO_MANY_RANGES, f"over {self.ranges_max}")

    def _place(self, bound: bytes) -> tuple[bool, bytes]:
        """The position of a bound on the ring, counted from the round's lower bound."""
        assert self.lower is not None
        return bound < self.lower, bound

    def _check_upper(self, upper: bytes) -> None:
        if self.lower is None or self.complete:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "a range outside of a round")
        self._check_size(upper)
        if upper != self.lower and self._place(upper) <= self._place(self._at):
            raise RemoteProtocolError(ErrorCode.BAD_BOUND, "not after the one before")

    def _check_size(self, bound: object) -> None:
        if not isinstance(bound, bytes) or len(bound) > self.view.item_size:
            raise RemoteProtocolError(ErrorCode.BAD_BOUND, "no bound of this session")
