"""A Raft server without I/O: messages and time in, messages, effects and events out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from culm.garlic.raft import messages as m
from culm.garlic.raft.elector import Elector
from culm.garlic.raft.events import RaftErrorCode, Role, RoleChanged
from culm.garlic.raft.leadership import Leadership
from culm.garlic.raft.model import Configuration, Server, Stored
from culm.garlic.raft.receiver import Receiver
from culm.garlic.raft.settings import Settings
from culm.garlic.raft.shared import Shared
from culm.machine import Closed, ContractErrorCode, Effect, Event, LocalProtocolError

__all__ = ["RULES", "Raft", "Rule"]


class Raft:
    """One server of a cluster.

    :param server_id: its id in configurations.
    :param stored: what the store holds of it (`Stored`).
    :param settings: times and sizes.
    :param rng: where election timeouts come from.
    :param now: the time (monotonic seconds).

    Drive it like every machine: one input, then events until ``None``, then effects,
    then `messages_to_send`, then the deadline.  Messages may be lost, doubled, delayed
    and reordered on their way.  What depends on a write comes out of
    `messages_to_send` only after `complete` of that write.

    The log since the last snapshot is held in memory: let `Settings.snapshot_distance`
    bound it.
    """

    def __init__(
        self,
        *,
        server_id: int,
        stored: Stored,
        rng: random.Random,
        now: float,
        settings: Settings | None = None,
    ) -> None:
        self._shared = Shared(
            server_id=server_id,
            stored=stored,
            settings=settings if settings is not None else Settings(),
            now=now,
        )
        self._elector = Elector(self._shared, rng)
        self._receiver = Receiver(self._shared)
        self._leadership: Leadership | None = None
        self._reads = 0
        self._state = Role.FOLLOWER
        self._closed = False

    # What it is

    @property
    def state(self) -> Role:
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
    def last_index(self) -> int:
        """Index of the last entry of the log, durable or not."""
        return self._shared.journal.log.last_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self._shared.journal.membership.current

    def find_server(self, server_id: int) -> Server | None:
        """A server of the configurations in the log, or the one that is being added."""
        membership = self._shared.journal.membership
        found = membership.current.find(server_id) or membership.latest.find(server_id)
        change = None if self._leadership is None else self._leadership.change
        if found is None and change is not None and change.server.id == server_id:
            return change.server
        return found

    # What the user asks for

    def propose(self, values: Sequence[bytes]) -> int:
        """Append values on the leader; returns the index of the first.

        A value is committed when `Apply` brings an entry of that index and of the term
        as of now; if it brings another one, or leadership ends before, it may be lost.

        Raises `LocalProtocolError`: ``NOT_LEADER`` (see `leader`), ``QUEUE_FULL``,
        ``VALUE_TOO_LARGE``, ``TRANSFER_IN_PROGRESS``, ``CLOSED``.
        """
        leadership = self._leading()
        self._unless(leadership.refuse_values(values))
        return leadership.append_values(values)

    def read(self) -> int:
        """Ask for a linearizable read; `ReadReady` or `ReadFailed` repeats the number.

        Raises `LocalProtocolError`: ``NOT_LEADER``, ``QUEUE_FULL``, ``CLOSED``.
        """
        leadership = self._leading()
        if leadership.reads_full:
            raise LocalProtocolError(RaftErrorCode.QUEUE_FULL)
        self._reads = leadership.read()
        self._settle()
        return self._reads

    def add_server(self, server: Server) -> None:
        """Start adding `server`; `ConfigurationChanged` or `ChangeFailed` follows.

        Raises `LocalProtocolError`: ``NOT_LEADER``, ``ALREADY_MEMBER``,
        ``BAD_ENDPOINT``, ``CHANGE_IN_PROGRESS``, ``TRANSFER_IN_PROGRESS``,
        ``NOTHING_COMMITTED`` (the leader is too young), ``CLOSED``.
        """
        leadership = self._leading()
        self._unless(leadership.refuse_add(server))
        leadership.add(server)

    def remove_server(self, server_id: int) -> None:
        """Start removing a server; `ConfigurationChanged` follows.

        Raises `LocalProtocolError` as `add_server` does, ``NOT_MEMBER``, and
        ``IS_LEADER``: the leader hands over first (`transfer_leadership`).
        """
        leadership = self._leading()
        self._unless(leadership.refuse_remove(server_id))
        leadership.remove(server_id)

    def transfer_leadership(self, target: int) -> None:
        """Let `target` take over; `RoleChanged` or, in time, `TransferFailed` follows.

        Nothing is proposed meanwhile.  Raises `LocalProtocolError`: ``NOT_LEADER``,
        ``NOT_MEMBER``, ``IS_LEADER``, ``CHANGE_IN_PROGRESS``, ``TRANSFER_IN_PROGRESS``,
        ``CLOSED``.
        """
        leadership = self._leading()
        self._unless(leadership.refuse_transfer(target))
        leadership.transfer(target)

    def unreachable(self, peer: int) -> None:
        """The way to `peer` is broken: what was sent there and not answered is lost."""
        if self._leadership is not None:
            self._leadership.replicator.unreachable(peer)

    def _leading(self) -> Leadership:
        if self._closed:
            raise LocalProtocolError(RaftErrorCode.CLOSED)
        if self._leadership is None:
            raise LocalProtocolError(RaftErrorCode.NOT_LEADER)
        return self._leadership

    @staticmethod
    def _unless(code: RaftErrorCode | None) -> None:
        if code is not None:
            raise LocalProtocolError(code)

    # The contract

    def next_event(self) -> Event | None:
        events = self._shared.events
        if not events:
            return None
        event = events.popleft()
        if isinstance(event, RoleChanged):
            self._state = event.role
        elif isinstance(event, Closed):
            self._state = Role.CLOSED
        return event

    def next_effect(self) -> Effect | None:
        if self._closed:
            return None
        effect: Effect | None = self._shared.journal.next_effect()
        if effect is None:
            effect = self._receiver.next_effect()
        if effect is None and not self._receiver.installing:
            effect = self._shared.applier.next_effect()
        if effect is None and self._leadership is not None:
            # Now that nothing else is left to do, peers get all that has gathered.
            self._leadership.replicator.flush()
            effect = self._leadership.replicator.next_effect()
        return effect

    def complete(self, ticket: int, result: object = None) -> None:
        """Answer an effect; see each effect for its result."""
        if self._closed:
            return
        self._shared.desk.complete(ticket, result)
        self._settle()

    def messages_to_send(self) -> list[m.Message]:
        """Take the messages that may leave now."""
        return self._shared.journal.take_messages()

    def next_deadline(self) -> float | None:
        if self._closed:
            return None
        if self._leadership is not None:
            return self._leadership.next_deadline()
        deadlines = [self._receiver.next_deadline()]
        if self._shared.is_voter and not self._receiver.left:
            deadlines.append(self._elector.deadline)
        return min((time for time in deadlines if time is not None), default=None)

    def advance(self, now: float) -> None:
        """Raises `LocalProtocolError` (``TIME_WENT_BACK``)."""
        if now < self._shared.now:
            raise LocalProtocolError(ContractErrorCode.TIME_WENT_BACK)
        self._shared.now = now
        if self._closed:
            return
        self._receiver.advance()
        if self._leadership is not None:
            if not self._leadership.advance():
                self._follow(self.term)
        elif self._elector.deadline <= now:
            self._stand(transfer=False)
        self._settle()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._leadership is not None:
                self._leadership.end()
                self._leadership = None
            self._shared.journal.drop_messages()
            self._shared.events.append(Closed())

    # Transitions

    def _stand(self, *, transfer: bool) -> None:
        if self._shared.is_voter and not self._receiver.left and not self._receiver.installing:
            self._elector.stand(transfer=transfer)
        else:
            self._elector.restart_timer()

    def _follow(self, term: int) -> None:
        if self._leadership is not None:
            self._leadership.end()
            self._leadership = None
            self._elector.restart_timer()
        self._elector.follow(term)

    def _settle(self) -> None:
        """Draw conclusions from what is durable, applied and answered by now."""
        if self._elector.elected:
            self._elector.lead()
            self._leadership = Leadership(self._shared, self._reads)
        if self._leadership is not None:
            self._leadership.settle()
            if not self._shared.is_voter:
                # Paper, section 6: a leader that is not in the new configuration steps
                # down once that is committed.
                self._follow(self.term)
                self._receiver.leave()

    # Messages

    def receive_message(self, message: m.Message) -> None:
        """Take a message; a request is answered in time through `messages_to_send`."""
        rule = RULES.get(type(message))
        if self._closed or rule is None:
            return
        if rule.of_peers and not self._agree_on_term(message):
            return
        if self._elector.role not in rule.roles:
            self._refuse(message)
            return
        rule.handle(self, message)
        self._settle()

    def _agree_on_term(self, message: m.Message) -> bool:
        """Compare terms (paper, 5.1); false if the message must not be acted on."""
        if message.term < self.term:
            self._refuse(message)
            return False
        if isinstance(message, m.Response):
            if message.term > self.term:
                if self._knows(message.source):
                    self._follow(message.term)
                return False
            return True
        if self._elector.shielded and self._disregards(message):
            self._refuse(message)
            return False
        if message.term > self.term:
            self._follow(message.term)
        return True

    def _knows(self, server_id: int) -> bool:
        if self._leadership is not None and server_id == self._leadership.joiner:
            return True
        return server_id in self._shared.journal.membership.known

    def _disregards(self, message: m.Message) -> bool:
        """Whether a server in contact with its leader does not listen to this request.

        Votes are for when no leader is there (paper, section 6), unless the leader
        itself has asked for them; and a stranger does not depose a leader.
        """
        if isinstance(message, m.VoteRequest):
            return not message.transfer or not self._knows(message.source)
        return message.source != self.leader and not self._knows(message.source)

    def _refuse(self, message: m.Message) -> None:
        if isinstance(message, m.Request):
            next_index = 0
            if type(message) in _TELLS_LOG_END:
                next_index = self.last_index + 1
            self._shared.respond(message, next_index, accepted=False)

    def _heard(self, leader: int) -> None:
        self._receiver.heard()
        self._elector.heard_from(leader)

    def _on_vote_request(self, request: m.VoteRequest) -> None:
        self._receiver.heard()
        self._elector.on_vote_request(request)

    def _on_vote_response(self, response: m.VoteResponse) -> None:
        self._elector.on_vote_response(response)

    def _from_leader(self, request: m.Request) -> None:
        """A request that only the leader of the term sends."""
        if self.leader not in (None, request.source):
            self._refuse(request)
            return
        self._heard(request.source)
        _FROM_LEADER[type(request)](self, request)

    def _on_transfer_request(self, request: m.TransferRequest) -> None:
        able = self._shared.is_voter and not self._receiver.installing
        self._shared.respond(request, 0, accepted=able)
        if able:
            self._stand(transfer=True)

    def _on_append_response(self, response: m.AppendResponse) -> None:
        assert self._leadership is not None
        if self._leadership.replicator.on_append_response(response):
            self._leadership.hand_over()

    def _on_snapshot_response(self, response: m.SnapshotResponse) -> None:
        leadership = self._leadership
        assert leadership is not None
        progress = leadership.replicator.peers.get(response.source)
        if progress is not None:
            leadership.replicator.on_snapshot_response(progress, response)
        elif leadership.change is not None and response.source == leadership.joiner:
            leadership.change.on_snapshot_response(response)
            leadership.change_moved()

    def _on_change_response(self, response: m.Response) -> None:
        leadership = self._leadership
        assert leadership is not None
        change = leadership.change
        if change is None or response.source != change.server.id:
            return
        match response:
            case m.JoinResponse():
                if not change.on_join_response(response):
                    leadership.drop_change()
            case m.SyncResponse():
                change.on_sync_response(response)
            case _:
                change.on_leave_response(response.sequence)
        leadership.change_moved()

    def _on_client_request(self, request: m.ClientRequest) -> None:
        leadership = self._leadership
        if leadership is None or leadership.refuse_values(request.values) is not None:
            self._refuse(request)
            return
        leadership.append_values(request.values)
        self._shared.respond(request, self.last_index + 1, accepted=True)

    def _on_add_server(self, request: m.AddServerRequest) -> None:
        leadership = self._leadership
        if leadership is None or leadership.refuse_add(request.server) is not None:
            self._refuse(request)
            return
        leadership.add(request.server)
        self._shared.respond(request, self.last_index + 1, accepted=True)

    def _on_remove_server(self, request: m.RemoveServerRequest) -> None:
        leadership = self._leadership
        if leadership is None or leadership.refuse_remove(request.server_id) is not None:
            self._refuse(request)
            return
        leadership.remove(request.server_id)
        self._shared.respond(request, self.last_index + 1, accepted=True)


class Rule(NamedTuple):
    """Who acts on a kind of message; all others refuse a request and drop a response."""

    roles: frozenset[Role]
    handle: Callable[..., None]
    of_peers: bool = True  # terms are compared


_ALL = frozenset((Role.FOLLOWER, Role.CANDIDATE, Role.LEADER))
_NOT_LEADER = frozenset((Role.FOLLOWER, Role.CANDIDATE))
_FOLLOWER = frozenset((Role.FOLLOWER,))
_CANDIDATE = frozenset((Role.CANDIDATE,))
_LEADER = frozenset((Role.LEADER,))

RULES: dict[type[m.Message], Rule] = {
    m.VoteRequest: Rule(_ALL, Raft._on_vote_request),
    m.AppendRequest: Rule(_NOT_LEADER, Raft._from_leader),
    m.SnapshotRequest: Rule(_NOT_LEADER, Raft._from_leader),
    m.JoinRequest: Rule(_NOT_LEADER, Raft._from_leader),
    m.SyncRequest: Rule(_NOT_LEADER, Raft._from_leader),
    m.LeaveRequest: Rule(_NOT_LEADER, Raft._from_leader),
    m.TransferRequest: Rule(_FOLLOWER, Raft._from_leader),
    m.VoteResponse: Rule(_CANDIDATE, Raft._on_vote_response),
    m.AppendResponse: Rule(_LEADER, Raft._on_append_response),
    m.SnapshotResponse: Rule(_LEADER, Raft._on_snapshot_response),
    m.JoinResponse: Rule(_LEADER, Raft._on_change_response),
    m.SyncResponse: Rule(_LEADER, Raft._on_change_response),
    m.LeaveResponse: Rule(_LEADER, Raft._on_change_response),
    m.ClientRequest: Rule(_ALL, Raft._on_client_request, of_peers=False),
    m.AddServerRequest: Rule(_ALL, Raft._on_add_server, of_peers=False),
    m.RemoveServerRequest: Rule(_ALL, Raft._on_remove_server, of_peers=False),
}

_FROM_LEADER: dict[type[m.Request], Callable[..., None]] = {
    m.AppendRequest: lambda core, request: core._receiver.on_append(request),
    m.SnapshotRequest: lambda core, request: core._receiver.on_snapshot(request),
    m.JoinRequest: lambda core, request: core._receiver.on_join(request),
    m.SyncRequest: lambda core, request: core._receiver.on_sync(request),
    m.LeaveRequest: lambda core, request: core._receiver.on_leave(request),
    m.TransferRequest: Raft._on_transfer_request,
}

# Refusals that say where the own log ends (as JRaft's do); the others say 0.
_TELLS_LOG_END: frozenset[type[m.Message]] = frozenset(
    (
        m.AppendRequest,
        m.JoinRequest,
        m.SyncRequest,
        m.LeaveRequest,
        m.AddServerRequest,
        m.RemoveServerRequest,
    )
)
