"""A session: two sides find, in rounds, the items that each of them lacks.

Both make a `Session` on a view of their items that does not change.  One is the initiator; its
messages are taken with `next_message` and given to the other one's `receive`, and back, until
both have ended.  Events bring each side the items that it lacks.

A range whose fingerprints differ is answered in the way that tells most for its bytes:

- if one side has one or two items more, by these items, which the difference of the
  fingerprints names (or by our own fingerprint, so that the other side finds them);
- if we have few items in it, by all of them, so that the other side sends its other ones;
- otherwise by the fingerprints of its parts, their number in proportion to the differences
  expected in it.

Every session ends: parts have fewer items than the whole, from round `Parameters.list_from` on
nothing is split, and no round after `SessionLimits.rounds_max` is answered.

Sources: Meyer, "Range-Based Set Reconciliation" (2023); p2panda's replication.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Final

from culm.arguments import check_fields, check_int, check_numbers, check_type
from culm.machine import Closed, ContractErrorCode, LocalProtocolError, RemoteProtocolError
from culm.reconcile.checks import KeyedUnion
from culm.reconcile.errors import ErrorCode
from culm.reconcile.events import ItemReceived, SessionEvent
from culm.reconcile.incoming import PeerRound, Question
from culm.reconcile.limits import SessionLimits
from culm.reconcile.messages import (
    Done,
    EmptyPayload,
    EmptySet,
    LowerBound,
    Message,
    Payload,
    RangeFingerprint,
    Terminal,
)
from culm.reconcile.monoids import Fingerprint
from culm.reconcile.states import Role, State
from culm.reconcile.tree import View

_BATCH = 1024
# Two items are looked for while a pair that has the digest by chance is this unlikely: 2**-24.
_CHANCE_BITS = 24
_PAIR_ITEMS_MAX = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """One side's way of asking.  The two sides may differ in all of these except `digest_size`.

    payload_threshold
        Ranges of at most this many items are listed.
    first_split
        Number of parts into which the initiator splits the whole set.
    branching
        Number of parts into which a range is split; None: by the number of differences expected.
    parts_per_difference
        Number of parts for each of these differences.
    parts_max
        The greatest number of parts of a range.
    hurry_from
        From this round on, each round has four times the threshold and three times the parts of the
        one before.
    list_from
        From this round on, ranges are listed whatever their size.
    digest_size
        Bytes of a state on the wire; None: all of them.
    echo
        Whether a range that the peer has listed is answered by all our items there, not only by
        those that the peer lacks.  So the peer also learns which ones we lack: those that it lists
        and we do not.
    """

    payload_threshold: int = 4
    first_split: int = 16
    branching: int | None = None
    parts_per_difference: float = 2.0
    parts_max: int = 1024
    hurry_from: int = 6
    list_from: int = 8
    digest_size: int | None = None
    echo: bool = False

    def __post_init__(self) -> None:
        check_numbers(self)
        check_int("payload_threshold", self.payload_threshold, 1)
        check_fields(self, "digest_size", optional=True)
        check_fields(self, "first_split", "branching", "parts_max", low=2, optional=True)
        check_type("echo", self.echo, bool)


DEFAULTS: Final = Parameters()
DEFAULT_LIMITS: Final = SessionLimits()


class Session:
    """One side of a reconciliation; `state` says whose turn it is.

    view
        A snapshot or a frozen tree, or a tree that does not change meanwhile: changes would make
        the answers wrong.
    role
        Whether we speak first.
    parameters
        Our way of asking.
    limits
        Bounds on the peer's questions.
    key
        16 bytes for the `check` of both sides, made at random after the items of both.
    """

    def __init__(
        self,
        *,
        view: View,
        role: Role,
        parameters: Parameters = DEFAULTS,
        limits: SessionLimits = DEFAULT_LIMITS,
        key: bytes | None = None,
    ) -> None:
        check_type("view", view, View)
        check_type("role", role, Role)
        check_type("parameters", parameters, Parameters)
        check_type("limits", limits, SessionLimits)
        # Both sides list by round list_from + 1, and a list has one answer.
        if limits.rounds_max < parameters.list_from + 2:
            raise ValueError("rounds_max is at least list_from + 2, or honest peers fail")
        self.state = State.SPEAKING if role is Role.INITIATOR else State.LISTENING
        self._view = view
        self._parameters, self._limits = parameters, limits
        size = parameters.digest_size
        self._digest_size = view.monoid.digest_size if size is None else size
        view.monoid.digest(view.monoid.neutral, self._digest_size)
        self._union = None if key is None else KeyedUnion(view, key)
        self._events: deque[SessionEvent] = deque()
        self._round = 0
        self._asked = False
        self._incoming = self._new_incoming()
        self._outgoing: Iterator[Message] = iter(())
        if role is Role.INITIATOR:
            self._speak(self._first_round())

    @property
    def in_round(self) -> bool:
        """Whether the peer has begun a round and not ended it."""
        return self._incoming.lower is not None

    @property
    def check(self) -> bytes | None:
        """16 bytes of our items and of those received, if there is a key.

        When both sides have ended, equal checks show that their sets are equal.
        """
        return None if self._union is None else self._union.check

    def next_event(self) -> SessionEvent | None:
        """The next event, in order; `Closed` is the last one."""
        return self._events.popleft() if self._events else None

    def next_message(self) -> Message | None:
        """The next message for the peer; None while it is the peer's turn, and at the end."""
        if self.state is not State.SPEAKING:
            return None
        message = next(self._outgoing)
        match message:
            case EmptyPayload() | RangeFingerprint() | EmptySet(True) | Payload(can_respond=True):
                self._asked = True
            case EmptySet() | LowerBound() | Payload() | Done() | Terminal():
                pass
        if isinstance(message, (Terminal, EmptySet)):
            self.state = State.LISTENING
            if not self._asked:
                self._close(None)
        return message

    def receive(self, message: Message) -> None:
        """Take any message of the peer.

        Raises `LocalProtocolError` (``ALREADY_CLOSED``) once the session has ended.
        """
        if self.state is State.ENDED:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        try:
            self._receive(message)
        except RemoteProtocolError as error:
            self._close(error.detached())

    def close(self) -> None:
        """End the session; again: no effect."""
        if self.state is not State.ENDED:
            self._close(None)

    def _close(self, error: RemoteProtocolError | None) -> None:
        self.state = State.ENDED
        self._outgoing = iter(())
        self._incoming = self._new_incoming()
        self._events.append(Closed(error=error))

    def _new_incoming(self) -> PeerRound:
        return PeerRound(self._view, self._digest_size, self._limits.ranges_max)

    # The peer's round.

    def _receive(self, message: Message) -> None:
        if self.state is State.SPEAKING:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "it is not the peer's turn")
        incoming = self._incoming
        if isinstance(message, EmptySet) and incoming.lower is None:
            self._answer_empty_set(message.can_respond)
        elif isinstance(message, Terminal) and incoming.complete:
            self._round += 1
            self._answer_round(incoming)
        else:
            item = incoming.read(message)
            if item is not None:
                self._events.append(ItemReceived(item=item))
                if self._union is not None:
                    self._union.add(item)

    def _answer_empty_set(self, can_respond: bool) -> None:
        if not can_respond:
            self._close(None)
        elif len(self._view) == 0:
            self._speak(iter([EmptySet(False)]))
        else:
            lowest = self._view.select(0)
            everything = Question(lowest, lowest, array("Q"))
            self._speak(self._round_about(lowest, [everything], self._new_incoming()))

    def _answer_round(self, incoming: PeerRound) -> None:
        assert incoming.lower is not None
        if not incoming.questions and not incoming.estimate.ranges:
            self._close(None)
        elif self._round >= self._limits.rounds_max:
            raise RemoteProtocolError(ErrorCode.TOO_MANY_ROUNDS, f"{self._round} are enough")
        else:
            self._speak(self._round_about(incoming.lower, incoming.questions, incoming))

    # Our round.

    def _speak(self, outgoing: Iterator[Message]) -> None:
        self._round += 1
        self._asked = False
        self._outgoing = outgoing
        self._incoming = self._new_incoming()
        self.state = State.SPEAKING

    def _first_round(self) -> Iterator[Message]:
        if len(self._view) == 0:
            yield EmptySet(True)
            return
        lowest = self._view.select(0)
        yield LowerBound(lowest)
        parts = min(self._parameters.first_split, self._limits.ranges_max)
        yield from self._split(0, len(self._view), parts, lowest)
        yield Terminal()

    def _round_about(
        self, lower: bytes, questions: list[Question], incoming: PeerRound
    ) -> Iterator[Message]:
        """A round that answers the questions, and finishes all ranges between them."""
        yield LowerBound(lower)
        at, complete = lower, False
        parts_max = self._parts_max(lower, questions)
        for question in questions:
            answer = self._answer(question, incoming, parts_max)
            first = next(answer, None)
            if first is None:
                continue
            if at != question.lower:
                yield Done(question.lower)
            yield first
            yield from answer
            at, complete = question.upper, question.upper == lower
        if not complete:
            yield Done(lower)
        yield Terminal()

    def _parts_max(self, lower: bytes, questions: list[Question]) -> int:
        """The greatest number of parts in an answer: a round has at most `ranges_max` ranges.

        It is at least one: each question, and each gap between two, was a range of the peer.
        """
        starts = [*(question.lower for question in questions), lower]
        ends = [lower, *(question.upper for question in questions)]
        gaps = sum(start != end for start, end in zip(starts, ends, strict=True))
        return (self._limits.ranges_max - gaps) // max(1, len(questions))

    def _answer(self, question: Question, incoming: PeerRound, parts_max: int) -> Iterator[Message]:
        """The answer to a range; nothing if it is finished."""
        start, count = self._view.range(question.lower, question.upper)
        theirs, upper = question.theirs, question.upper
        if isinstance(theirs, array) and self._parameters.echo:
            return _payloads(self._items(start, count), upper, False)
        if isinstance(theirs, array):
            return _payloads(self._besides(theirs, start, count), upper, False)
        if theirs.count == 0:
            return _payloads(self._items(start, count), upper, False)
        if count == 0:
            return iter([EmptyPayload(upper)])
        if self._round >= self._parameters.list_from:
            return _payloads(self._items(start, count), upper, True)
        return self._compare(question, theirs, start, count, incoming, parts_max)

    def _compare(
        self,
        question: Question,
        theirs: Fingerprint,
        start: int,
        count: int,
        incoming: PeerRound,
        parts_max: int,
    ) -> Iterator[Message]:
        """Answer a fingerprint that differs from ours, in at most this many parts."""
        assert question.ours is not None
        ours, upper = question.ours, question.upper
        difference = ours.count - theirs.count
        if self._can_name(abs(difference), max(count, theirs.count)):
            if difference < 0:
                return iter([RangeFingerprint(ours, upper)])
            digest = self._view.monoid.subtract_digests(ours.state, theirs.state)
            named = self._named(difference, digest, start, count)
            if named:
                return _payloads(iter(named), upper, False)
        haste = max(0, self._round - self._parameters.hurry_from + 1)
        threshold = self._parameters.payload_threshold * 4**haste
        if count <= threshold or parts_max < 2:
            return _payloads(self._items(start, count), upper, True)
        parts = self._parameters.branching
        if parts is None:
            expected = incoming.estimate.differences(difference)
            parts = ceil(
                min(parts_max, self._parameters.parts_per_difference * 3**haste * expected)
            )
        parts = min(parts, parts_max, self._parameters.parts_max, 2 * count // threshold)
        return self._split(start, count, max(parts, 2), upper)

    def _can_name(self, difference: int, count: int) -> bool:
        """Whether the difference of two fingerprints can name the items that cause it."""
        if not self._view.monoid.is_additive or difference not in (1, 2):
            return False
        bits = 8 * self._digest_size - _CHANCE_BITS
        return difference == 1 or (count <= _PAIR_ITEMS_MAX and 2 * count.bit_length() <= bits)

    def _named(
        self, difference: int, digest: bytes, start: int, count: int
    ) -> tuple[bytes, ...] | None:
        if difference == 1:
            item = self._view.find(start, count, digest)
            return None if item is None else (item,)
        return self._view.find_pair(start, count, digest)

    def _split(self, start: int, count: int, parts: int, upper: bytes) -> Iterator[Message]:
        """The fingerprints of `parts` parts of about equal size, none of them empty."""
        view = self._view
        parts = min(parts, count)
        cuts = [count * part // parts for part in range(parts + 1)]
        for low, high in pairwise(cuts):
            whole = view.fingerprint_at((start + low) % len(view), high - low)
            bound = upper if high == count else view.select((start + high) % len(view))
            digest = view.monoid.digest(whole, self._digest_size)
            yield RangeFingerprint(Fingerprint(whole.count, digest), bound)

    def _items(self, start: int, count: int) -> Iterator[bytes]:
        for done in range(0, count, _BATCH):
            first = (start + done) % len(self._view)
            yield from self._view.read(first, min(_BATCH, count - done))

    def _besides(self, known: array[int], start: int, count: int) -> Iterator[bytes]:
        """The items in a range of ranks except those at the ranks `known`, which ascend."""
        at = 0
        for rank in known:
            place = (rank - start) % len(self._view)
            yield from self._items((start + at) % len(self._view), place - at)
            at = place + 1
        if at < count:
            yield from self._items((start + at) % len(self._view), count - at)


def _payloads(items: Iterator[bytes], upper: bytes, can_respond: bool) -> Iterator[Message]:
    """The items of a range, the last one of which ends it; nothing if there are none."""
    last = next(items, None)
    if last is None:
        return
    for item in items:
        yield Payload(last)
        last = item
    yield Payload(last, upper, can_respond)
