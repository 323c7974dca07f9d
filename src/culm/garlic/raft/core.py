"""A Raft server without I/O: messages and time in, messages, effects and events out."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

from culm.arguments import check_type, read_buffers
from culm.buffer import Buffer
from culm.garlic.raft import messages as m
from culm.garlic.raft.effects import RaftEffect
from culm.garlic.raft.engine import Engine
from culm.garlic.raft.errors import ErrorCode
from culm.garlic.raft.events import PeerFault, RaftEvent, RoleChanged
from culm.garlic.raft.leadership import Leadership
from culm.garlic.raft.limits import Limits, Timing
from culm.garlic.raft.log import LogView
from culm.garlic.raft.model import Configuration, PeerStatus, Server, Stored, check_server_id
from culm.garlic.raft.shared import Shared
from culm.garlic.raft.states import State
from culm.machine import (
    Closed,
    ContractErrorCode,
    LocalProtocolError,
    RemoteProtocolError,
    Ticket,
    check_time,
)

R = TypeVar("R")

_DEFAULT_TIMING: Final = Timing()
_DEFAULT_LIMITS: Final = Limits()

_ASKING: Final = State.PRE_CANDIDATE, State.CANDIDATE  # no set: an Enum's hash takes a call


class Raft:
    """One server of a cluster.

    server_id
        Its id in configurations.
    stored
        The content of its store; raises `ValueError` if something is missing there, or if the
        configuration is larger than the limits allow.
    rng
        The source of election timeouts.
    now
        The time (monotonic seconds).
    timing
        Its waiting times.
    limits
        Bounds on amounts, at a time and in all.
    pre_vote
        Whether it asks the others if it could win before it stands for election (thesis, 9.6), so
        that its term does not grow while it is cut off.  `reachable` has to tell of the peers that
        do not understand the question, or there is no election.
    asks_leader
        Whether it asks the leader for help where only a leader can act (`read`, `forward`),
        over the links that `reachable` has reported.

    Drive it like every machine: one input, then events until ``None``, then effects,
    then `messages_to_send`, then the deadline.  Messages may be lost, doubled, delayed
    and reordered on their way.  Messages that depend on a write come out of
    `messages_to_send` only after `complete` of that write.

    The log since the last snapshot is held in memory: let `Limits.snapshot_distance`
    bound it.
    """

    def __init__(
        self,
        *,
        server_id: int,
        stored: Stored,
        rng: random.Random,
        now: float,
        timing: Timing = _DEFAULT_TIMING,
        limits: Limits = _DEFAULT_LIMITS,
        pre_vote: bool = False,
        asks_leader: bool = False,
    ) -> None:
        check_server_id(server_id)
        check_type("timing", timing, Timing)
        check_type("limits", limits, Limits)
        check_time(now, None)
        shared = Shared(server_id=server_id, stored=stored, timing=timing, limits=limits, now=now)
        if not limits.admit(shared.journal.membership.latest.servers):
            raise ValueError("the stored configuration is larger than the limits allow")
        self._shared = shared
        self._engine = Engine(shared, rng, pre_vote=pre_vote, asks_leader=asks_leader)
        self._state = State.FOLLOWER
        self._closed = False

    # State

    @property
    def state(self) -> State:
        """The role as of the event last returned."""
        return self._state

    @property
    def server_id(self) -> int:
        return self._shared.server_id

    @property
    def term(self) -> int:
        return self._shared.journal.term

    @property
    def leader(self) -> int | None:
        """The believed leader of the term."""
        return self._shared.leader

    @property
    def commit_index(self) -> int:
        return self._shared.journal.commit_index

    @property
    def applied_index(self) -> int:
        return self._shared.applier.applied_index

    @property
    def log(self) -> LogView:
        """The log since the last compaction: a live view, to be read only."""
        return self._shared.journal.log

    @property
    def last_index(self) -> int:
        """Index of the last entry of the log, durable or not."""
        return self._shared.journal.log.last_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self._shared.journal.membership.current

    @property
    def addressees(self) -> Collection[int]:
        """The servers that it sends requests to in its present role.

        A follower sends none, except to its leader when it has something to ask.
        """
        engine = self._engine
        leadership = engine.leadership
        if leadership is not None:
            peers, joiner = leadership.replicator.peers, leadership.joiner
            return peers if joiner is None or joiner in peers else (*peers, joiner)
        if self._closed or engine.elector.role not in _ASKING:
            leader = self._shared.leader if engine.asks else None
            # A joiner may hear its leader before it knows the leader's endpoint.
            return () if leader is None or self.find_server(leader) is None else (leader,)
        return sorted(self._shared.journal.membership.voters - {self.server_id})

    @property
    def peers(self) -> Sequence[PeerStatus]:
        """On the leader: the status of each server that it serves; empty on others."""
        leadership = self._engine.leadership
        return () if leadership is None else leadership.peers()

    def find_server(self, server_id: int) -> Server | None:
        """A server of the configurations in the log, or the one that is being added."""
        membership = self._shared.journal.membership
        found = membership.current.find(server_id) or membership.latest.find(server_id)
        change = None if self._engine.leadership is None else self._engine.leadership.change
        if found is None and change is not None and change.server.server_id == server_id:
            return change.server
        return found

    # The user's verbs

    def propose(self, values: Sequence[Buffer]) -> tuple[int, int]:
        """Append values on the leader; returns the index and the term of the first.

        The others have the following indexes, and the same term.  `Committed` or `Lost` reports the
        fate of each value, once; leadership may end long before that.

        Raises `LocalProtocolError`: ``NOT_LEADER`` (see `leader`), ``QUEUE_FULL``,
        ``VALUE_TOO_LARGE``, ``TRANSFER_IN_PROGRESS``, ``ALREADY_CLOSED``.
        """
        return self.propose_bytes(read_buffers("values", values))

    def propose_bytes(self, values: Sequence[bytes]) -> tuple[int, int]:
        """`propose` of values known to be bytes, which are not checked again."""
        shared, leadership = self._shared, self._engine.leadership
        if self._closed or leadership is None:
            leadership = self._leading()
        first, term = leadership.append_values(values), shared.journal.term
        if values:
            shared.proposals.add(first, first + len(values) - 1, term)
        return first, term

    def forward(self, values: Sequence[Buffer]) -> int:
        """Propose values at any server, with `asks_leader`; returns a number.

        A leader appends them; any other server sends them to its leader, once.  `Forwarded` or
        `ForwardFailed` repeats the number; after the former, `Committed` or `Lost` follows as for
        `propose`.

        Raises `LocalProtocolError`: ``NOT_LEADER`` and ``NO_LEADER`` as `read` does,
        ``QUEUE_FULL``, ``VALUE_TOO_LARGE`` (also for several values that do not fit one request),
        ``TRANSFER_IN_PROGRESS``, ``ALREADY_CLOSED``; `ValueError` if there are no values.
        """
        return self.forward_bytes(read_buffers("values", values))

    def forward_bytes(self, values: Sequence[bytes]) -> int:
        """`forward` of values known to be bytes, which are not checked again."""
        if not values:
            raise ValueError("no values")
        if self._closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        self._unless(self._engine.refuse_forward(values))
        return self._engine.forward(values)

    def read(self) -> int:
        """Ask for a linearizable read; `ReadReady` or `ReadFailed` repeats the number.

        With `asks_leader` it works at any server that knows a leader: it asks that one for the
        index that the local state machine must have reached.

        Raises `LocalProtocolError`: ``NOT_LEADER`` (also if the leader is known not to understand
        the question), ``NO_LEADER``, ``QUEUE_FULL``, ``ALREADY_CLOSED``.
        """
        if self._closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        self._unless(self._engine.refuse_read())
        return self._engine.read()

    def add_server(self, server: Server) -> None:
        """Start adding `server`; `ConfigurationChanged` or `ChangeFailed` follows.

        A learner (`Server.voter`) is added only if `reachable` has told that all other members know
        learners: others would count it.  A learner that is added again as a voter becomes one as
        soon as it has answered and lacks little.

        Raises `LocalProtocolError`: ``NOT_LEADER``, ``ALREADY_MEMBER``, ``NOT_UNDERSTOOD``,
        ``BAD_ENDPOINT``, ``CONFIGURATION_TOO_LARGE`` (more servers, or longer endpoints, than the
        limits have room for), ``CHANGE_IN_PROGRESS``, ``TRANSFER_IN_PROGRESS``,
        ``NOTHING_COMMITTED`` (in the leader's own term), ``ALREADY_CLOSED``.
        """
        check_type("server", server, Server)
        leadership = self._leading()
        self._unless(leadership.refuse_add(server))
        leadership.add(server)

    def remove_server(self, server_id: int) -> None:
        """Start removing a server; `ConfigurationChanged` follows.

        Raises `LocalProtocolError` as `add_server` does, ``NOT_MEMBER``, and
        ``IS_LEADER``: the leader hands over first (`transfer_leadership`).
        """
        check_server_id(server_id)
        leadership = self._leading()
        self._unless(leadership.refuse_remove(server_id))
        leadership.remove(server_id)

    def cancel_change(self) -> None:
        """Give up adding or removing a server; `ChangeFailed` follows.

        A server that was told to leave still votes, and stands for election again after two
        election timeouts of silence.  Raises `LocalProtocolError`: ``NOT_LEADER``,
        ``NO_CHANGE``, ``CHANGE_IN_PROGRESS`` (it is in the log already: `ConfigurationChanged` or
        `ChangeFailed` will follow), ``ALREADY_CLOSED``.
        """
        leadership = self._leading()
        self._unless(leadership.refuse_cancel())
        leadership.drop_change()

    def transfer_leadership(self, target: int) -> None:
        """Let `target` take over; `LeadershipTransferred` or, in time, `TransferFailed` follows.

        Nothing is proposed meanwhile.  Raises `LocalProtocolError`: ``NOT_LEADER``,
        ``NOT_MEMBER``, ``NOT_VOTER``, ``IS_LEADER``, ``CHANGE_IN_PROGRESS``,
        ``TRANSFER_IN_PROGRESS``, ``ALREADY_CLOSED``.
        """
        check_server_id(target)
        leadership = self._leading()
        self._unless(leadership.refuse_transfer(target))
        leadership.transfer(target)

    def unreachable(self, peer: int) -> None:
        """The way to `peer` is broken: requests that it has not answered are lost."""
        if not self._closed:
            self._engine.unreachable(peer)

    def reachable(self, peer: int, extensions: Iterable[m.Extension]) -> None:
        """There is a way to `peer`, until `unreachable`.

        extensions
            The extensions that it understands.  A peer without pre-vote counts as having no
            objection, since it will be asked for its vote next.
        """
        if not self._closed:
            self._engine.reachable(peer, frozenset(extensions))

    def dropped(self, peer: int) -> None:
        """Note that the last request to `peer` could not be sent, since the way there is full."""
        if not self._closed:
            self._engine.dropped(peer)

    def withdraw_responses(self, sequences: Collection[int]) -> None:
        """Nobody waits for the responses to requests with these sequences: none leaves any more."""
        self._shared.journal.withdraw_responses(sequences)

    def still_sending(self, peer: int) -> None:
        """Note that `peer` is taking the bytes of a request, some of which are still to go."""
        if not self._closed:
            self._engine.still_sending(peer)

    def still_receiving(self, peer: int) -> None:
        """Note that bytes of `peer` have arrived that are not yet a complete message."""
        if not self._closed:
            self._engine.still_receiving(peer)

    def _leading(self) -> Leadership:
        if self._closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        if self._engine.leadership is None:
            raise LocalProtocolError(ErrorCode.NOT_LEADER)
        return self._engine.leadership

    @staticmethod
    def _unless(code: ErrorCode | None) -> None:
        if code is not None:
            raise LocalProtocolError(code)

    # The contract

    @property
    def stopped(self) -> bool:
        """Whether `Closed` has been reported, or will be."""
        return self._closed

    def next_event(self) -> RaftEvent | None:
        found = self._shared.work.next_event()
        if found is None:
            return None
        event = cast("RaftEvent", found)
        if isinstance(event, RoleChanged):
            self._state = event.role
        elif isinstance(event, Closed):
            self._state = State.CLOSED
        return event

    def next_effect(self) -> RaftEffect | None:
        if self._closed:
            return None
        shared, engine = self._shared, self._engine
        receiver, leadership = engine.receiver, engine.leadership
        effect: RaftEffect | None = shared.journal.next_effect()
        if effect is None and receiver.due is not None:
            effect = receiver.next_effect()
        if effect is None and not receiver.installing:
            effect = shared.applier.next_effect(None if leadership is None else leadership.lag)
        if effect is None and leadership is not None:
            # With nothing else left to do, peers get everything that has gathered.
            leadership.replicator.flush()
            effect = leadership.replicator.next_effect()
        return effect

    def complete(self, ticket: Ticket[R], result: R) -> None:
        """Answer an effect; see each effect for its result.

        Raises `LocalProtocolError`: ``UNKNOWN_TICKET``, ``WRONG_RESULT``.
        """
        self._shared.work.complete(ticket, result)
        if not self._closed:
            self._shared.settle_proposals()
            if self._shared.changes:
                self._shared.report_changes(self._shared.journal.known_index)
            self._engine.settle()
            if self._engine.receiver.held is not None:
                held = self._engine.receiver.take_held()
                if held is not None:
                    self.receive_message(held)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        """The store could not do it: the server stops, as if it had crashed.

        `StoreFailed` comes, then `Closed`; no more messages leave.  Raises
        `LocalProtocolError` as `complete` does.
        """
        self._shared.work.fail(ticket, error)
        self.close()

    def messages_to_send(self) -> list[m.Message]:
        """Take the messages that may leave now."""
        return self._shared.journal.take_messages()

    def next_deadline(self) -> float | None:
        if self._closed:
            return None
        return self._engine.next_deadline()

    def advance(self, now: float) -> None:
        """Tell the time; raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``)."""
        check_time(now, self._shared.now)
        self._shared.advance(now)
        if not self._closed:
            self._engine.advance()

    def receive_message(self, message: m.Message) -> None:
        """Take a message; a request is answered in time through `messages_to_send`.

        A request that no server in its right mind makes is refused, and reported (`PeerFault`).
        """
        if not self._closed:
            try:
                self._engine.receive_message(message)
            except RemoteProtocolError as error:
                self._engine.refuse(message)
                fault = PeerFault(peer=message.source, error=error.detached())
                self._shared.work.emit(fault)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._engine.end()
            self._shared.journal.drop_messages()
            self._shared.work.stop()
            self._shared.drop_changes()
            self._shared.settle_unapplied()
            for lost in self._shared.proposals.drop_all():
                self._shared.work.emit(lost)
            self._shared.work.emit(Closed())
