"""The wire machine: setup, multiplexer, the two channels, and patience with the peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from culm.arguments import check_type
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer, Outbox, check_size_max, is_large
from culm.bymux import INFINITE, InitialState, InitialStream, Role, StopReadReceived, StreamData
from culm.bymux import Connection as Mux
from culm.bymux import ConnectionEvent as MuxEvent
from culm.bymux import ErrorCode as MuxErrorCode
from culm.bymux import Limits as MuxLimits
from culm.bymux.packets import HEADER_SIZE_MAX
from culm.machine import Closed, LocalProtocolError, RemoteProtocolError, StreamBase, check_time
from culm.point2point.channels import Output, RunVerifier
from culm.point2point.codec import decode_setup, encode_setup
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import ConnectionEvent, Established, GivenUp
from culm.point2point.handles import Openable, Request, check_knowledge, local
from culm.point2point.limits import Limits, Timing
from culm.point2point.messages import Negotiated, Proposal, Setup
from culm.point2point.requests import ControlChannel, DataReceiver
from culm.point2point.states import RequestState, State
from culm.replication import Debts, Liveness
from culm.timers import earliest
from culm.wire.errors import Truncated
from culm.wire.multihash import YAMF, HashFamily

_CONTROL, _DATA = 0, 1
_SETUP_SIZE_MAX = 1 + 2 * 9
# As much of a Write, or the rest of it, is waited for: entries arrive on slow lines, too.
_PIECE_SIZE_MAX = 1 << 15
# Less room than this is not filled up.
_ROOM_MIN = 256
_INITIAL: Final = InitialState(
    streams={
        # The goodbye takes several Writes, too, and no data may come between them.
        _CONTROL: InitialStream(send_credit=INFINITE, receive_credit=INFINITE, urgent=True),
        _DATA: InitialStream(),
    },
    creation_closed=True,
)
# Bytes of answers, and markers, that may wait to be taken before reading pauses.  Our own messages
# about each open request come on top: two endpoints that each wait for the other to read would wait
# for ever.
_OWED_SIZE_MAX = 1 << 14
_REQUEST_SIZE_MAX = 1 << 10
# Questions for a sign of life that wait for our answers, of two bytes each.
_ANSWERS_MAX = 1 << 10
_EOF_CODES = {MuxErrorCode.EOF_IN_PACKET, MuxErrorCode.EOF_WITH_STREAMS}
_DEFAULT_LIMITS: Final = Limits()
_DEFAULT_TIMING: Final = Timing()
_DEFAULT_SETUP: Final = Setup()


class Debt(Enum):
    """Debts that the peer may have."""

    ANSWER = "a confirmation of our proposal, or a cancel"
    DATA = "the rest of a range that has an end, or of an entry"
    CANCELLATION = "its two messages of the cancellation of a request"
    GOODBYE = "its part in closing the connection"
    TAKING = "credit for, or the taking of, data that it has asked for"


class Owed(NamedTuple):
    """A debt, and the request that it belongs to, unless it is the connection's.

    `paid`: the part that has been paid, of a debt that is paid bit by bit.
    """

    debt: Debt
    request: Request | None = None
    paid: int = 0


class Timeouts:
    """Signs of life (`Liveness`) and debts (`Debts`) of the peer, and their consequences.

    A peer that sends must also take, and the other way round: each direction has its own
    `Debts`.
    """

    def __init__(
        self, timing: Timing, output: Output, control: ControlChannel, receiver: DataReceiver
    ) -> None:
        self._output, self._requests, self._receiver = output, control.requests, receiver
        self._liveness = Liveness(
            idle_timeout_s=timing.idle_timeout_s, keepalive_s=timing.keepalive_s
        )
        self._sending = Debts[int | None, Owed](timing.progress_max_s, is_paid=_is_paid)
        self._taking = Debts[int | None, Owed](timing.progress_max_s, is_paid=_is_paid)
        self._brought = 0  # bytes of data that had come at a look
        self._taken_total = 0  # bytes

    def heard(self) -> None:
        self._liveness.heard()

    def taken(self, size: int) -> None:
        self._taken_total += size
        self._liveness.taken()

    def excuse(self) -> None:
        """The peer could not go on because of us."""
        self._liveness.heard()
        self._sending.moved()
        self._taking.moved()

    def deadline(self) -> float | None:
        deadlines = [self._liveness.deadline(self._is_inside())]
        if not self._is_idle():
            deadlines.append(self._sending.deadline())
        if self._is_waited_for():
            deadlines.append(self._taking.deadline())
        return earliest(*deadlines)

    def advance(self, now: float) -> bool:
        """Tell the time; returns whether to ask the peer for a sign of life.

        Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``).
        """
        check_time(now, self._liveness.now)
        self._sending.advance(now, idle=self._is_idle())
        self._taking.advance(now, idle=not self._is_waited_for())
        return self._liveness.advance(now, self._is_inside())

    def stalled(self, brought: int) -> list[Request]:
        """The requests to be given up.  Raises `Violation` if that is not enough.

        brought: bytes of data that have come.
        """
        if self._liveness.now is None:
            return []  # the time was never told
        if self._liveness.is_over(self._is_inside()):
            raise Violation(ErrorCode.PEER_SILENT)
        if brought > self._brought and not self._output.over:
            self._sending.moved()
        self._brought = max(self._brought, brought)
        requests: dict[int, Request] = {}  # one may be stalled both ways
        owed, taken = self._sending.stalled(self._owed), self._taking.stalled(self._taken)
        for debt, request, _ in owed + taken:
            if request is None or debt is Debt.CANCELLATION:
                raise Violation(ErrorCode.PEER_STALLED, debt.value)
            requests[request.request_id] = request
        return list(requests.values())

    def _owed(self) -> dict[int | None, Owed]:
        if self._output.over:
            return {None: Owed(Debt.GOODBYE, paid=self._taken_total)}
        debts = ((_debt_of(each, self._receiver), each) for each in self._requests.values())
        return {each.request_id: Owed(debt, each) for debt, each in debts if debt is not None}

    def _taken(self) -> dict[int | None, Owed]:
        """Data that it does not take: by request, or of the connection if none has any waiting."""
        if not self._is_waited_for():
            return {}
        flushed = self._output.flushed_total
        waiting = [
            each
            for each in self._requests.values()
            if each.life is RequestState.CONFIRMED and each.sent_until > flushed
        ]
        if not waiting:
            return {None: Owed(Debt.TAKING, paid=flushed)}
        return {each.request_id: Owed(Debt.TAKING, each, flushed) for each in waiting}

    def _is_waited_for(self) -> bool:
        return self._output.unsent_size > 0 and not self._output.over

    def _is_idle(self) -> bool:
        return not (self._requests or self._output.over)

    def _is_inside(self) -> bool:
        return self._output.session is None or self._receiver.inside


def _debt_of(request: Request, receiver: DataReceiver) -> Debt | None:
    """The peer's debt for a request, unless it waits for something itself.

    A range without an end is never owed: there may be nothing new in that log for years.
    """
    state, incoming = request.life, request.incoming
    if state is RequestState.PROPOSED_BY_US:
        return Debt.ANSWER
    if state in (RequestState.CANCELLING, RequestState.CANCELLED):
        return Debt.CANCELLATION
    if state is RequestState.CONFIRMED and not request.discarding:
        demand, cursor = incoming.demand, incoming.cursor
        asked = request.ours and demand is not None and demand.eagerness.wants_metadata
        unfinished = cursor.range.end is not None and cursor.piece is not None
        begun = receiver.is_inside(request) or incoming.owes_payload()
        return Debt.DATA if (asked and unfinished) or begun else None
    return None


def _is_paid(before: Owed, now: Owed | None) -> bool:
    """Whether a debt is paid, or part of it; a cancellation is owed until it is over."""
    return now is None or (now != before and now.debt is not Debt.CANCELLATION)


def _room(size_max: int | None) -> int | None:
    """Bytes of data to put into Writes when `size_max` bytes can be taken.

    If a Write is taken as a whole, the peer does not have to put it together again.
    """
    if size_max is None or size_max < _ROOM_MIN:
        return size_max
    return size_max - HEADER_SIZE_MAX


def room_beside(pieces: Sequence[Buffer], size_max: int) -> int:
    """Bytes that may leave with these `pieces`; none with a large one, or in little room."""
    left = size_max - sum(map(len, pieces))
    return 0 if left < _ROOM_MIN or is_large(pieces[-1]) else left


def _close_with(closed: Closed) -> Closed:
    error = closed.error
    if error is None:
        return closed
    code = ErrorCode.UNEXPECTED_EOF if error.code in _EOF_CODES else ErrorCode.MUX_VIOLATION
    raise RemoteProtocolError(code, str(error))


class Connection(StreamBase[ConnectionEvent], Openable):
    """Bamboo Point-2-Point over bymux on one stream of bytes.

    Enforces every invariant of the seed, in both directions, and rebuilds and verifies received
    entries.  Requests are handled through `Request`.

    role
        ``PROACTIVE`` (its request ids are even) for the endpoint that opened the stream, say.
    setup
        Our offer.  Its windows are cut to ``limits.compression_window_max``.
    limits
        Bounds on the memory that the peer may use.  Proposal credit is granted by itself:
        ``limits.requests_max``, refilled as requests of the peer end.
    timing
        Times for which the peer is waited for.
    family
        The hash family of all logs (YAMF in original Bamboo).
    in_runs
        Entries come many at a time where that is possible (`EntriesReceived`), several times as
        fast.  Their number, and the pieces of other payloads, then depend on the chunks in which
        the bytes came.
    verifier
        Verifies the signatures of entries that come many at a time, in place of the connection,
        which takes no more of the peer's data until there are verdicts.
    trust_caller
        In safe mode only verified data may be sent.  That is checked (``INVALID_DATA``), unless
        the caller is known to have verified all that it sends.  Only then `Request.send_entries`
        sends runs.

    `Timed`: `next_deadline` is ``None`` before the first `advance`.
    """

    def __init__(
        self,
        *,
        role: Role,
        setup: Setup = _DEFAULT_SETUP,
        limits: Limits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
        family: HashFamily = YAMF,
        in_runs: bool = False,
        verifier: RunVerifier | None = None,
        trust_caller: bool = False,
    ) -> None:
        check_type("setup", setup, Setup)
        check_type("limits", limits, Limits)
        check_type("timing", timing, Timing)
        check_type("family", family, HashFamily)
        check_type("verifier", verifier, RunVerifier, type(None))
        piece_size_max = min(limits.packet_size_max, _PIECE_SIZE_MAX) + _SETUP_SIZE_MAX
        mux_limits = MuxLimits(
            write_size_max=limits.packet_size_max + _SETUP_SIZE_MAX,
            piece_size_max=piece_size_max,
            receive_buffer_max=2 * piece_size_max + limits.data_window_max,
            answers_max=_ANSWERS_MAX,
        )
        super().__init__(receive_max=mux_limits.receive_buffer_max)
        self._limits = limits
        self._setup = setup.within(limits.compression_window_max)
        self._in_runs = in_runs
        self._apart = Outbox()  # a large piece, the next to leave
        self._mux = Mux(role=role, limits=mux_limits, initial=_INITIAL, as_it_comes=in_runs)
        self._control_stream = self._mux.stream(_CONTROL)
        self._data_stream = self._mux.stream(_DATA)
        self._output = output = Output(
            control=self._control_stream,
            data=self._data_stream,
            family=family,
            limits=limits,
            trusts_caller=trust_caller,
        )
        self._control = ControlChannel(role=role, output=output)
        self._receiver = DataReceiver(
            output=output, control=self._control, in_runs=in_runs, verifier=verifier
        )
        self._timeouts = Timeouts(timing, output, self._control, self._receiver)
        self._outbox.append(encode_setup(self._setup))
        self._control.grant(limits.requests_max)
        self._data_stream.set_window(limits.data_window_max)

    # Queries.

    @property
    def state(self) -> State:
        if self._closed is not None:
            return State.CLOSED
        if self._closing:
            return State.CLOSING
        return State.SETUP if self.session is None else State.ESTABLISHED

    @property
    def session(self) -> Negotiated | None:
        """The negotiated modes and windows; ``None`` before the peer's setup has arrived."""
        return self._output.session

    @property
    def requests(self) -> Mapping[int, Request]:
        """The requests that are not over, by id."""
        return MappingProxyType(self._control.requests)

    @property
    def proposal_credit(self) -> int:
        """The number of proposals that we may make; 0 once it is too late for any verb."""
        return 0 if self._output.over else self._control.credit

    @property
    def inside(self) -> bool:
        """Whether part of a message has come; meaningful when there are no more events."""
        return self._mux.inside or self._control.inside

    @property
    def receiving_id(self) -> int | None:
        """The id of the request that the peer's data is for; at the end, the last of them."""
        return self._receiver.current_id

    @property
    def unsent_size(self) -> int:
        """Bytes of data that wait for `data_to_send`, or for the peer's credit."""
        return self._output.unsent_size + self._apart.size

    @property
    def taken_size(self) -> int:
        """Bytes of data that have left, with `data_to_send`, since the connection began."""
        return self._output.flushed_total - self._apart.size

    @property
    def send_credit(self) -> int:
        """Bytes of data that the peer takes now, on top of those that wait for it."""
        return max(0, self._data_stream.send_credit - self._output.unsent_size)

    @property
    def send_size(self) -> int:
        """Bytes of data that are welcome now; 0: the peer is slower than we are."""
        return max(0, self._limits.unsent_size_max - self.unsent_size)

    # Verbs.

    @local
    def propose(
        self,
        proposal: Proposal,
        *,
        request_id: int | None = None,
        links: Mapping[int, bytes] | None = None,
        verifier: PayloadVerifier | None = None,
    ) -> Request:
        """Propose to synchronise a range; costs a unit of proposal credit.

        `request_id`: any id of our parity that was never used, or is free again (`IdFreed`); by
        default one of those.  `links` and `verifier`: see `Request.confirm`.  Raises
        `LocalProtocolError`, among others ``NO_CREDIT``.
        """
        check_knowledge(links, verifier, family=self._output.family)
        request = self._control.propose(proposal, request_id)
        request.know(links, verifier)
        return request

    @local
    def grant_proposals(self, amount: int) -> None:
        """Let the peer make more proposals than ``limits.requests_max`` at once."""
        check_type("amount", amount, int)
        self._control.grant(amount)

    def request(self, request_id: int) -> Request:
        """One of them; raises `LocalProtocolError` (``UNKNOWN_REQUEST``)."""
        request = self._control.requests.get(request_id)
        if request is None:
            raise LocalProtocolError(ErrorCode.UNKNOWN_REQUEST, f"{request_id}")
        return request

    def ask_verifier(self) -> bool:
        """Ask the `verifier` about new signatures; whether there was anything to ask.

        Call it when effects are taken, so that all signatures until then go together.
        """
        return self._receiver.ask_verifier()

    # Bytes.

    def read_size(self) -> int:
        owed = self._control_stream.unsent_size + self._output.unsent_markers_size
        if owed > _OWED_SIZE_MAX + _REQUEST_SIZE_MAX * len(self._control.requests):
            return 0  # the peer makes us answer, but does not take the answers
        return max(0, min(super().read_size(), self._mux.read_size() - self._inbox.size))

    @property
    def trailing_data(self) -> bytes:
        return self._mux.trailing_data + super().trailing_data

    def receive_eof(self) -> None:
        super().receive_eof()
        if self.session is not None:
            self._feed_mux()
            self._mux.receive_eof()

    def data_to_send(self, size_max: int | None = None) -> bytes:
        """Take bytes for the peer; control data is never overtaken by later data."""
        return self.joined(self.pieces_to_send(size_max), size_max)

    def joined(self, pieces: list[Buffer], size_max: int | None) -> bytes:
        """The bytes to send now of `pieces` that have been taken: a large one goes by itself."""
        if size_max is not None and len(pieces) > 1 and is_large(pieces[-1]):
            self._apart.append(pieces.pop())
        return b"".join(pieces)

    def pieces_to_send(self, size_max: int | None = None) -> list[Buffer]:
        """Like `data_to_send`, for an owner that joins them with others: nothing is copied."""
        check_size_max(size_max)
        pieces: list[Buffer] = []
        left = size_max
        while left is None or left > 0:
            if self._outbox.size:
                more = self._outbox.take_pieces(left)
            elif self._apart.size:
                more = self._apart.take_pieces(left)
            else:
                if not self._control_stream.unsent_size:
                    self._output.feed(_room(left))
                more = self._mux.pieces_to_send(left)
            if not more:
                break
            pieces += more
            if left is not None:
                left = room_beside(more, left)
        if pieces:
            self._timeouts.taken(sum(map(len, pieces)))
        return pieces

    # Time.

    def next_deadline(self) -> float | None:
        """When `advance` is due (monotonic seconds); a pure query."""
        if self._closed is not None or self._receiver.waiting:
            return None
        return self._timeouts.deadline()

    def advance(self, now: float) -> None:
        """Tell the time: a silent peer is asked for a sign of life, and in the end given up.

        Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``).
        """
        asks = self._timeouts.advance(now) and not self._control_stream.ping_waits
        if asks and self._closed is None and not self._output.over:
            self._control_stream.ping()
            self._output.rest()

    def restart_idle_timeout(self) -> None:
        """The peer could not go on because we did not read: its silence does not count."""
        self._timeouts.excuse()

    # Steps.

    def _step(self) -> ConnectionEvent | None:
        try:
            return self._step_inside()
        except Violation as violation:
            raise RemoteProtocolError(violation.code, violation.message) from None

    def _step_inside(self) -> ConnectionEvent | None:
        while True:
            event = self._control.next_event()
            if event is None and self._output.session is None:
                event = self._take_setup()
                if event is None:
                    break
            if event is not None:
                return event
            if self._control.step():
                continue
            event = self._receiver.step()
            if self._receiver.waiting:
                self._timeouts.excuse()  # as far as we can tell: the caller has to answer first
                if event is None and self._receiver.gathers and self._gather():
                    continue
                return event
            if event is not None:
                return event
            if self._inbox.size:
                self._feed_mux()
            below = self._mux.next_event()
            if below is None:
                break
            if isinstance(below, Closed):
                return _close_with(below)
            self._take_from_mux(below)
        brought = self._receiver.brought + self._mux.partial_size(_DATA)
        for request in self._timeouts.stalled(brought):
            self._control.give_up(request, GivenUp.STALLED)
        return self._control.next_event()

    def _take_setup(self) -> ConnectionEvent | None:
        if not self._inbox.size:
            return None
        try:
            theirs, size = decode_setup(self._inbox.peek(_SETUP_SIZE_MAX))
        except Truncated:
            return None
        self._inbox.consume(size)
        session = Negotiated.derive(self._setup, theirs)
        self._output.establish(session)
        self._receiver.establish(session)
        self._timeouts.heard()
        if self._eof:
            self._feed_mux()
            self._mux.receive_eof()
        return Established(session=session)

    def _gather(self) -> bool:
        """Take more of a Write that has come in part; returns whether there was any."""
        self._feed_mux()
        more = self._mux.next_of_write(_DATA)
        if more is not None:
            self._receiver.receive(more.data)
        return more is not None

    def _feed_mux(self) -> None:
        if self._inbox.size:
            self._timeouts.heard()
            self._mux.receive_data(self._inbox.take(self._inbox.size))

    def _take_from_mux(self, event: MuxEvent) -> None:
        if isinstance(event, StreamData):
            if event.stream_id == _CONTROL:
                self._control.receive(event.data)
            else:
                self._receiver.receive(event.data)
                if not self._in_runs:
                    self._data_stream.consumed(len(event.data))
        elif isinstance(event, StopReadReceived):
            if event.stream_id == _DATA:
                self._output.drop_unsent()  # may not be sent any more
            super().close()  # the peer takes nothing more: it is saying goodbye

    def _step_eof(self) -> ConnectionEvent | None:
        if self.session is None:
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_EOF, "before the end of the setup")
        return None

    def close(self) -> None:
        """Say goodbye; anything the peer still sends until `Closed` is ignored."""
        for request in self._control.requests.values():
            request.pass_over()
        self._receiver.want_no_more()
        super().close()

    def _goodbye(self) -> None:
        self._output.feed(None)
        self._output.end()
        self._mux.close()

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._output.end()
        if error is not None:
            # It would show how much had arrived after the fault.
            self._data_stream.withdraw_credit()
