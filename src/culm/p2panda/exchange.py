"""One session between our store and the peer, from the comparison to the end.

The side that accepts a session speaks first, in either mode: that tells the other side that it was
accepted.

Sources: seed, "Replication"; decisions 5, 7 and 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final

from culm.bamboo.entry import LogKey
from culm.effects import Place
from culm.machine import ContractErrorCode, LocalProtocolError, RemoteProtocolError
from culm.p2panda.comparison import Comparison, Offers, height_in
from culm.p2panda.effects import OpenRange, Range, Span
from culm.p2panda.errors import ErrorCode
from culm.p2panda.events import DoneReceived, HaveReceived, RangeReceived, SessionEnded
from culm.p2panda.heights import decode_item
from culm.p2panda.messages import EmptySet, Mode, RangeMessage
from culm.p2panda.serving import Serving, SessionContext
from culm.p2panda.sessions import Session
from culm.p2panda.states import SessionState, SideState


class Phase(Enum):
    """The progress of an exchange."""

    ASKED = "asked"
    """We have asked for the session; nothing has been heard."""
    OPENING = "opening"
    """The store has yet to tell our heights."""
    COMPARING = "comparing"
    SENDING = "sending"
    """The entries that the peer lacks are known."""
    SENT = "sent"
    """All of them were sent."""
    LIVE = "live"
    LEFT = "left"
    """We have left live mode."""
    OVER = "over"
    """Over on the wire; entries received may still be on their way into the store."""
    BROKEN = "broken"
    """The peer is to blame for an entry; nothing more of the session is stored."""


_BROKEN: Final = Phase.BROKEN  # compared for every entry; to look it up in the enum takes longer


class Exchange:
    """A session as the replicator knows it."""

    def __init__(self, session: Session, number: int, context: SessionContext) -> None:
        self.session = session
        self.number: Final = number  # the ids of sessions are used again
        self.phase = Phase.ASKED
        self._work, self._limits, self._turns = context.work, context.limits, context.turns
        self._policy, self._monoid = context.policy, context.monoid
        # Of a live session no next one brings the rest.
        self._offers = Offers() if self._policy.live else context.offers
        self.serving = Serving(session, context)
        self.comparison: Comparison | None = None
        self._range: Range | None = None
        self._first: HaveReceived | RangeReceived | None = None  # heard before the range is known
        self._late: RangeMessage | None = None  # that may follow when all is compared
        self._fault: RemoteProtocolError | None = None
        self._unstored = 0  # entries on their way into the store
        self._repeated = 0  # entries that we had already, less new ones since
        self._end: Place | None = None  # the place for the event about the session's end
        self._cut_off = False  # by the end of the connection
        self._blamed = False  # for an entry, to be told in its turn

    # For the intake of its entries.

    @property
    def session_id(self) -> int:
        return self.session.session_id

    @property
    def schema_ids(self) -> tuple[str, ...]:
        return self.session.schema_ids

    @property
    def broken(self) -> bool:
        return self.phase is _BROKEN

    @property
    def takes_entries(self) -> bool:
        return not self._blamed and self.phase is not _BROKEN

    def blame(self) -> None:
        """Note that an entry has come for which the peer is to blame, and take no more."""
        self._blamed = True

    def expect(self, count: int) -> None:
        """Note that this many entries have arrived."""
        self._unstored += count

    def settle(self, position: int | None) -> None:
        self._unstored -= 1
        if position is not None:
            if self._repeated:
                self._repeated -= 1
            if self._policy.live:
                self.serving.theirs.add(position)
        if self._end is not None:
            self._tell_end()

    def repeat(self, log: LogKey, seqnum: int, *, again: bool) -> None:
        """Note an entry that we had already; `again`: this session had brought it before.

        The peer cannot know of operations that others have brought us since the session began;
        and in live mode it passes on those that others bring to it, even if we had them all the
        time.

        Raises `RemoteProtocolError` if it is one too many.
        """
        if not (again or self._could_know(log, seqnum)):
            return
        self._repeated += 1
        if self._repeated > self._limits.repeated_max:
            raise RemoteProtocolError(ErrorCode.TOO_MANY_DUPLICATES, f"{self._repeated}")

    def _could_know(self, log: LogKey, seqnum: int) -> bool:
        """Whether the peer could know that we have that entry."""
        if self._range is None:
            return True
        return not self.serving.follows and seqnum <= height_in(self._range.view, log)

    def spoil(self, error: RemoteProtocolError) -> None:
        """The peer is to blame for an entry: end the session, unless it has ended.

        If something else has ended it, that came after the entry.
        """
        if self.broken:
            return
        was, self.phase = self.phase, Phase.BROKEN
        self._fault = error
        if was is Phase.OVER:
            self.session.count_fault()
        else:
            self._say(lambda: self.session.break_off(error))

    # The beginning.

    @property
    def opening(self) -> bool:
        """Whether it waits for our heights from the store."""
        return self.phase is Phase.OPENING

    def open(self, first: HaveReceived | RangeReceived | None = None) -> None:
        """The session has begun, with the peer's `first` message if we had asked for it."""
        self.phase = Phase.OPENING
        self._first = first
        self._work.ask(OpenRange, self._opened, schema_ids=self.schema_ids, monoid=self._monoid)

    def _opened(self, range: Range) -> None:
        if self.phase is not Phase.OPENING:
            return
        self.phase, self._range = Phase.COMPARING, range
        self._turns.add(self.session)
        first, self._first = self._first, None
        if first is None:
            if self.session.mode is Mode.SET_RECONCILIATION:
                self._speak_first(range)
        elif isinstance(first, HaveReceived):
            self.have(first)
        else:
            self.hear(first.message)

    # Log heights.

    def _owes_have(self) -> bool:
        return (
            self.phase in (Phase.COMPARING, Phase.SENDING)
            and self.session.mode is Mode.LOG_HEIGHT
            and self.session.local is SideState.SILENT
        )

    def _say_have(self) -> None:
        assert self._range is not None
        view = self._range.view
        if len(view) > self._limits.connection.logs_max:
            error = RemoteProtocolError(ErrorCode.TOO_MANY_LOGS, f"{len(view)}")
            self._give_up(error)
            return
        items = (item for batch in view.batches() for item in batch)
        self._say(lambda: self.session.send_have([decode_item(item) for item in items]))

    def have(self, event: HaveReceived) -> None:
        """The peer has told the heights of its logs."""
        if self.phase is Phase.ASKED:
            self.open(event)
        elif self.phase is Phase.COMPARING and self._range is not None:
            heights = {height.log: height.seqnum for height in event.heights}
            self._know(self._lacking(self._range, heights))

    def _lacking(self, range: Range, heights: Mapping[LogKey, int]) -> Iterator[Span]:
        for batch in range.view.batches():
            for item in batch:
                log, ours = decode_item(item)
                theirs = heights.get(log, 0)
                if ours > theirs:
                    yield self._offers.span(log, theirs, ours)

    # Set reconciliation.

    def _speak_first(self, range: Range) -> None:
        if len(range.view) == 0:
            self._say_nothing()
        else:
            self._compare(range, first=True)

    def _compare(self, range: Range, *, first: bool) -> Comparison:
        limits = self._limits
        self.comparison = Comparison(
            range.view,
            first=first,
            parameters=limits.parameters,
            limits=limits.comparison,
            offers=self._offers,
        )
        return self.comparison

    def _say_nothing(self) -> None:
        """We have nothing, so the peer lacks nothing."""
        self._say(lambda: self.session.send_range(EmptySet(True)))
        self._late = EmptySet(False)
        self._know(iter(()))

    def hear(self, message: RangeMessage) -> None:
        """Take a message of set reconciliation from the peer."""
        if self.phase is Phase.ASKED:
            self.open(RangeReceived(session_id=self.session_id, message=message))
        elif self.phase is not Phase.COMPARING or self._range is None:
            if message != self._late:
                self._break(RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "all is compared"))
            self._late = None
        elif isinstance(message, EmptySet):
            self._hear_empty_set(self._range)
        else:
            self._hear_range(message, self._range)

    def _hear_empty_set(self, range: Range) -> None:
        """The peer has nothing: it lacks all that we have."""
        if self.comparison is not None and self.comparison.heard:
            self._break(RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "it had something"))
            return
        if self._offers.everything():
            self.comparison = None
            self.serving.want_everything(range.position if len(range.view) else 0)
            self.phase = Phase.SENDING
        else:
            self._know(self._lacking(range, {}))

    def _hear_range(self, message: RangeMessage, range: Range) -> None:
        comparison = self.comparison or self._compare(range, first=False)
        self._offers.something()
        try:
            comparison.hear(message)
        except RemoteProtocolError as error:
            self._break(error.detached())
            return
        self.serving.want(comparison.take_wanted())
        if comparison.speaking and len(range.view) == 0:
            self._say_nothing()
        else:
            self._look_whether_compared()

    def speak(self) -> bool:
        """Send one message of set reconciliation; returns whether there was one to send."""
        comparison = self.comparison
        if self.phase is not Phase.COMPARING or comparison is None:
            return False
        message = comparison.next_message()
        if message is not None:
            self._say(lambda: self.session.send_range(message))
        self._look_whether_compared()
        return message is not None

    def _look_whether_compared(self) -> None:
        if self.comparison is not None and self.comparison.over:
            self._know(self.comparison.unmentioned())

    # Entries that the peer lacks.

    def _know(self, spans: Iterator[Span]) -> None:
        """Take the last entries that the peer lacks."""
        self.comparison = None
        self.serving.want_last(spans)
        self.phase = Phase.SENDING

    def serve(self) -> bool:
        """Ask the store for the next entries to send; returns whether there was anything to ask.

        Heights are sent here, too: the message is large, and so made only when there is room for
        it.
        """
        if self._owes_have():
            self._say_have()
        if self.phase not in (Phase.COMPARING, Phase.SENDING, Phase.LIVE):
            self.serving.stop()
            return False
        if self.serving.ask():
            return True
        if self.phase is Phase.SENDING and not self.serving.waits:
            self.phase = Phase.SENT
            self._say(lambda: self.session.finish(live_mode=self._policy.live))
        return False

    # The end.

    def done(self, event: DoneReceived) -> None:
        """The peer has sent everything that it had, or gives up."""
        if self.phase in (Phase.ASKED, Phase.OPENING, Phase.COMPARING):
            self._give_up(RemoteProtocolError(ErrorCode.GIVEN_UP, f"session {self.session_id}"))

    def live(self) -> None:
        """Both sides stay, unless something received has turned out to be invalid meanwhile."""
        if self.phase is not Phase.SENT:
            return
        self.phase = Phase.LIVE
        assert self._range is not None
        self.serving.follow(self._range.position)

    @property
    def is_live(self) -> bool:
        """Whether both sides stay, and we have been told so."""
        return self.phase is Phase.LIVE and self.session.state is SessionState.LIVE

    def leave(self) -> None:
        """Leave live mode.  Raises `LocalProtocolError` if it is not live."""
        if not self.is_live:
            raise LocalProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "the session is not live")
        self.session.finish()
        self.phase = Phase.LEFT

    def give_way(self) -> None:
        """Leave live mode: another session replaces this one."""
        self.phase = Phase.LEFT
        self._say(self.session.finish)

    def end(self, event: SessionEnded) -> None:
        """The session is over on the wire."""
        self._fault = self._fault or event.error
        if self.phase is not Phase.BROKEN:
            self.phase = Phase.OVER
        self.comparison = None
        self._over()

    def cut_off(self) -> None:
        """The connection is over: the end of this session is told if an entry has spoilt it."""
        self._cut_off = True
        self._over()

    def _over(self) -> None:
        self.serving.stop()
        self._end = self._work.reserve()
        self._tell_end()

    @property
    def fault(self) -> RemoteProtocolError | None:
        """The rule that was broken, or the reason for giving up."""
        return self._fault

    def _tell_end(self) -> None:
        """Report the end once nothing of the session is on its way into the store."""
        if self._end is None or self._unstored:
            return
        if self._cut_off and not self.broken:
            self._end.fill()
        else:
            self._end.fill([SessionEnded(session_id=self.session_id, error=self._fault)])
        self._end = None

    def _break(self, error: RemoteProtocolError) -> None:
        """The peer has broken a rule; everything before that is kept."""
        self.phase = Phase.OVER
        self._say(lambda: self.session.break_off(error))

    def _give_up(self, error: RemoteProtocolError) -> None:
        """This session cannot be completed: tell the peer."""
        self._fault = error
        self.phase = Phase.SENT
        if self.session.local not in (SideState.DONE, SideState.BROKEN):
            self._say(self.session.finish)

    def _say(self, verb: Callable[[], None]) -> None:
        """Send something that becomes pointless once the session or the connection is over."""
        try:
            verb()
        except LocalProtocolError as error:
            if error.code not in (ErrorCode.NO_SUCH_SESSION, ContractErrorCode.ALREADY_CLOSED):
                raise
