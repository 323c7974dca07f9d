"""Our side of a set reconciliation, which finds the entries that the peer lacks.

If the peer has named a lower height of a log than ours, it lacks the rest of that log.  It also
lacks every log that we have named and it has not: each side answers a list of the other's with all
that it has in that range, so a log that it does not mention is missing there.

Source: seed, "Synchronization of data" and "Finalisation".
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from culm.arguments import check_int
from culm.bamboo.entry import LogKey
from culm.machine import Closed, RemoteProtocolError
from culm.p2panda.effects import Span
from culm.p2panda.errors import ErrorCode
from culm.p2panda.heights import decode_item, log_prefix
from culm.p2panda.messages import Fingerprint, Payload, RangeMessage
from culm.reconcile import Parameters, Role, Session, SessionLimits, State, View
from culm.reconcile.messages import RangeFingerprint
from culm.wire.errors import DecodeError


def height_in(view: View, log: LogKey) -> int:
    """The height of a log in a view of items; 0 if it is not there."""
    prefix = log_prefix(log)
    rank = view.rank(prefix)
    if rank == len(view):
        return 0
    item = view.select(rank)
    return decode_item(item).seqnum if item.startswith(prefix) else 0


# The times that the rest of a log is sent whole before its next entry goes alone.
_WHOLE_MAX = 2

_DEFAULT_LIMITS: Final = SessionLimits()


class Offers:
    """The logs that a peer was sent, the height that it named for each, and how often it did so.

    A log that the peer may not take is not sent whole again and again.  A peer whose author has
    forked a log, or to which an operation is not valid, leaves entries out and names the same
    height in the next session.  Nothing on the wire says why, so this memory is a hint.  It may be
    lost, or be of any age: a log that is tried with one entry is sent whole as soon as the peer
    names another height, which is in the next session if it takes that entry.

    The same object may serve one connection with a peer after the other, also at once.

    logs_max: logs that are remembered, the last ones that were sent; 300 bytes each.
    """

    __slots__ = ("_empty", "_logs", "_logs_max")

    def __init__(self, *, logs_max: int = 4096) -> None:
        check_int("logs_max", logs_max)
        self._logs_max = logs_max
        self._logs: OrderedDict[LogKey, tuple[int, int]] = OrderedDict()  # the last one sent last
        self._empty = 0  # how often in a row it has had nothing

    def span(self, log: LogKey, theirs: int, ours: int) -> Span:
        """The part to send of a log of which the peer has `theirs` entries, and we have `ours`."""
        before, times = self._logs.pop(log, (theirs, 0))
        times = times + 1 if before == theirs else 1
        self._logs[log] = theirs, times
        if len(self._logs) > self._logs_max:
            self._logs.popitem(last=False)
        return Span(log, theirs + 1, ours if times <= _WHOLE_MAX else theirs + 1)

    def everything(self) -> bool:
        """Whether to send everything to a peer that has nothing."""
        self._empty += 1
        return self._empty <= _WHOLE_MAX

    def something(self) -> None:
        """Note that the peer has something."""
        self._empty = 0


class Comparison:
    """A session of set reconciliation over the heights of logs.

    first: we speak first.
    offers: the record of logs that the peer was sent before.
    heard: the peer has said something.
    """

    __slots__ = (
        *("_is_told", "_mentioned", "_offers", "_session", "_told", "_view", "_wanted"),
        "heard",
    )

    def __init__(
        self,
        view: View,
        *,
        first: bool,
        parameters: Parameters,
        limits: SessionLimits = _DEFAULT_LIMITS,
        offers: Offers,
    ) -> None:
        self._view = view
        self._offers = offers
        self._session = Session(
            view=view,
            role=Role.INITIATOR if first else Role.RESPONDER,
            parameters=replace(parameters, echo=True),
            limits=limits,
        )
        # The ranks of our items that we have named, and a bit for each of our items: a peer may
        # have us name all of them, and then keep quiet.
        self._told = array("Q")
        self._is_told = bytearray()
        self._mentioned: dict[LogKey, int] = {}  # logs of ours that the peer has named
        self._wanted: list[Span] = []
        self.heard = False

    @property
    def speaking(self) -> bool:
        """Whether it is our turn."""
        return self._session.state is State.SPEAKING

    @property
    def over(self) -> bool:
        """Whether everything is known."""
        return self._session.state is State.ENDED

    def hear(self, message: RangeMessage) -> None:
        """Take a message from the peer.  Raises `RemoteProtocolError` if it breaks a rule."""
        self.heard = True
        if isinstance(message, Fingerprint):
            try:
                fingerprint = self._view.monoid.decode(message.lift)
            except DecodeError as error:
                raise RemoteProtocolError(ErrorCode.BAD_FINGERPRINT, str(error)) from None
            self._session.receive(RangeFingerprint(fingerprint, message.upper_bound))
        else:
            self._session.receive(message)
        while (event := self._session.next_event()) is not None:
            if isinstance(event, Closed) and event.error is not None:
                code = ErrorCode[event.error.code.name]
                raise RemoteProtocolError(code, event.error.message)
        if isinstance(message, Payload):
            self._mention(message.item)

    def _mention(self, item: bytes) -> None:
        log, theirs = decode_item(item)
        if not theirs:
            raise RemoteProtocolError(ErrorCode.BAD_ITEM, "a log without entries")
        ours = height_in(self._view, log)
        if not ours:
            return  # its entries are still to come
        before = self._mentioned.get(log)
        if before is not None and before != theirs:
            raise RemoteProtocolError(ErrorCode.BAD_ITEM, f"heights {before} and {theirs}")
        self._mentioned[log] = theirs
        if ours > theirs and before is None:
            self._wanted.append(self._offers.span(log, theirs, ours))

    def take_wanted(self) -> list[Span]:
        """The entries of which it has become known since the last call that the peer lacks them."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def next_message(self) -> RangeMessage | None:
        """Our next message; ``None`` while it is the peer's turn, and at the end."""
        message = self._session.next_message()
        if isinstance(message, RangeFingerprint):
            lift = self._view.monoid.encode(message.fingerprint)
            return Fingerprint(lift, message.upper_bound)
        if isinstance(message, Payload):
            self._tell(self._view.rank(message.item))
        return message

    def _tell(self, rank: int) -> None:
        """Note that we have named this item of ours."""
        if not self._is_told:
            self._is_told = bytearray(len(self._view) // 8 + 1)
        if not self._is_told[rank // 8] >> rank % 8 & 1:
            self._is_told[rank // 8] |= 1 << rank % 8
            self._told.append(rank)

    def unmentioned(self) -> Iterator[Span]:
        """The other logs that the peer lacks: those that we have named and it has not.

        They are forgotten afterwards.
        """
        told, self._told = self._told, array("Q")
        self._is_told = bytearray()
        for rank in told:
            log, ours = decode_item(self._view.select(rank))
            if log not in self._mentioned:
                yield self._offers.span(log, 0, ours)
