"""One run of a compact session: rounds in turn, from a hello to the check."""

from __future__ import annotations

from dataclasses import dataclass

from culm.arguments import check_int, check_numbers
from culm.machine import RemoteProtocolError
from culm.reconcile.errors import ErrorCode
from culm.reconcile.estimate import Estimate
from culm.reconcile.frames import Hello, encode_ranges_max
from culm.reconcile.limits import RANGES_MIN, Limits
from culm.reconcile.states import CompactState, Continuation
from culm.reconcile.tree import View

_PIECE_SIZE = 24 * 1024
_UNIT = 1000
_NUMBER_MAX = 2**31 - 1
_HASTE_THRESHOLD = 4
_THRESHOLD_MAX = 1 << 20
_HASTE_PARTS = 3
_ROUNDS_MAX = 9

#: The kernel's faults, by number.
_FAULTS = {
    1: (ErrorCode.BAD_FRAME, "a piece is cut short"),
    2: (ErrorCode.UNEXPECTED_MESSAGE, "nothing of that kind may follow there"),
    3: (ErrorCode.BAD_NUMBER, "a number that cannot be"),
    4: (ErrorCode.BAD_BOUND, "a bound that is not inside of its range"),
    5: (ErrorCode.BAD_ITEM, "an item that is not inside of its range, or not above the last one"),
    6: (ErrorCode.TOO_MANY_RANGES, "a round asks about too many"),
    7: (ErrorCode.UNEXPECTED_MESSAGE, "all has been answered"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactParameters:
    """One side's way of asking in a compact session.  The two sides may differ in all of these.

    Raises `ValueError` for values out of range.

    list_threshold
        Ranges with at most this many items are listed.
    first_split
        Number of parts into which the initiator splits the whole set.
    branching
        Number of parts into which a range is split; 0: by the number of differences to expect.
    parts_per_difference
        Number of parts for each of these differences.
    hurry_from
        From this round on, each round has four times the threshold and three times the parts of the
        one before.
    list_from
        From this round on, ranges are listed whatever their size.
    sum_size
        Bytes of a sum on the wire, 4 to 8; the initiator's value is used.
    keyed
        Whether states are computed with a key of the run, at the price of hashing all items.  An
        initiator asks for it, a responder insists on it.  Without it equality is not proved, unless
        the monoid is strong: see `SumsEqual`.
    rateless
        Whether the initiator begins with a run of coded symbols; see `culm.reconcile.rateless`.
    first_symbols
        Number of symbols in its first round.
    """

    list_threshold: int = 6
    first_split: int = 32
    branching: int = 0
    parts_per_difference: float = 2.0
    hurry_from: int = 4
    list_from: int = 6
    sum_size: int = 7
    keyed: bool = True
    rateless: bool = False
    first_symbols: int = 128

    def __post_init__(self) -> None:
        check_numbers(self)
        check_int("list_threshold", self.list_threshold, 1, _THRESHOLD_MAX)
        check_int("first_split", self.first_split, 2, _NUMBER_MAX)
        check_int("sum_size", self.sum_size, 4, 8)
        check_int("list_from", self.list_from, 1, 6)
        check_int("branching", self.branching, 0, _NUMBER_MAX)
        check_int("first_symbols", self.first_symbols, 1, RANGES_MIN)
        if self.branching == 1:
            raise ValueError("a range is split into two parts at least")


class Run:
    """One side of a run with the parameters of `hello`.

    `view` must not change.  The run ends with round 9 at the latest: in round 6 or 7, whichever is
    ours, we list all unequal ranges; a list is answered by items and by the ids of those wanted
    from us, and these are sent.  Only a peer that claims items where we have none, and never sends
    them, could continue: its question in round 9 gets no answer.
    """

    listening = CompactState.LISTENING

    def __init__(
        self,
        *,
        view: View,
        hello: Hello,
        begins: bool,
        parameters: CompactParameters,
        limits: Limits,
    ) -> None:
        self.hello = hello
        self._parameters = parameters
        self._exchange = view.exchange(
            hello.sum_size, hello.id_salt, ranges_max=limits.ranges_max, key=hello.key
        )
        self._round = 1
        self._expected = _UNIT
        # Each answer may be a question, so we ask about no more ranges than we can be asked about.
        self._asked_back_max = 1 << encode_ranges_max(limits.ranges_max)
        self._asked_max = RANGES_MIN
        self.is_welcome = False
        if begins:
            self._exchange.begin()
        else:
            self._exchange.expect()
            self.welcome(hello.ranges_max)

    def welcome(self, ranges_max: int) -> None:
        """Note that the other side takes part, and the number of ranges that we may ask about."""
        self._asked_max, self.is_welcome = min(ranges_max, self._asked_back_max), True

    @property
    def is_said(self) -> bool:
        """Whether our round has been sent completely."""
        return self._exchange.is_over

    @property
    def is_equal(self) -> bool:
        """Whether the other side's round has shown us nothing that differs."""
        return self._exchange.left == 0

    @property
    def check(self) -> bytes:
        """The check of the union, which the other side has to match."""
        return self.hello.check_of(*self._exchange.union)

    def say(self) -> bytes:
        """The next piece of our round."""
        chosen = self._parameters
        haste = max(0, self._round - chosen.hurry_from + 1)
        parts = chosen.parts_per_difference * _UNIT * _HASTE_PARTS**haste
        return self._exchange.say(
            _PIECE_SIZE,
            self._asked_max,
            chosen.list_threshold * _HASTE_THRESHOLD**haste,
            int(min(parts, _NUMBER_MAX)),
            self._expected,
            branching=chosen.first_split if self._round == 1 else chosen.branching,
            listing=self._round >= chosen.list_from,
        )

    def turn_to_listen(self) -> bool:
        """End our round; returns whether the peer has anything to answer."""
        self._exchange.listen()
        self._round += 1
        return self._exchange.asked > 0

    def hear(self, piece: bytes) -> list[bytes]:
        """Take a piece of the other side's round; returns the items that we lack.

        Raises `RemoteProtocolError` if the piece is invalid.
        """
        fault, items = self._exchange.hear(piece, self._exchange.asked)
        if fault:
            raise RemoteProtocolError(*_FAULTS[fault])
        return items

    def turn_to_speak(self) -> Continuation:
        """End the other side's round.

        Raises `RemoteProtocolError` if it has not answered everything, or never stops asking.
        """
        exchange = self._exchange
        if exchange.answered < exchange.asked:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "not all has been answered")
        estimate = Estimate(*exchange.estimate)
        exchange.speak()
        self._round += 1
        self._expected = int(min(_UNIT * estimate.expected, _NUMBER_MAX))
        if exchange.is_over:
            return Continuation.OVER
        if self._round > _ROUNDS_MAX:
            raise RemoteProtocolError(ErrorCode.TOO_MANY_ROUNDS, f"{_ROUNDS_MAX} are enough")
        return Continuation.OURS
