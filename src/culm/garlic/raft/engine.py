"""The state of a running server: its role's parts, and the roles that act on messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any, ClassVar, NamedTuple

from culm.garlic.raft import messages as m
from culm.garlic.raft.departure import Departure, DepartureState
from culm.garlic.raft.elector import Elector
from culm.garlic.raft.errors import ErrorCode
from culm.garlic.raft.follower_reads import FollowerReads
from culm.garlic.raft.forwards import Forwards
from culm.garlic.raft.leadership import Leadership
from culm.garlic.raft.receiver import Receiver
from culm.garlic.raft.shared import Shared
from culm.garlic.raft.states import State
from culm.garlic.raft.terms import Terms
from culm.garlic.raft.transfer import Transfer
from culm.garlic.raft.ways import Ways
from culm.machine import LocalProtocolError


class Rule(NamedTuple):
    """The roles that act on a kind of message; all others refuse requests and drop responses."""

    roles: tuple[State, ...]  # no set: an Enum's hash takes a call
    handle: Callable[..., None]
    of_peers: bool = True  # terms are compared


_ALL = (State.FOLLOWER, State.PRE_CANDIDATE, State.CANDIDATE, State.LEADER)
_NOT_LEADER = (State.FOLLOWER, State.PRE_CANDIDATE, State.CANDIDATE)
_FOLLOWER = (State.FOLLOWER, State.PRE_CANDIDATE)
_PRE_CANDIDATE = (State.PRE_CANDIDATE,)
_ASKING = (State.PRE_CANDIDATE, State.CANDIDATE)
_LEADER = (State.LEADER,)

# Requests whose refusal tells the end of our log (as JRaft's does); other refusals say 0.
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


class Engine:
    """Owns the parts of a role, among them while it lasts the leadership.

    Every method draws all conclusions from the writes, applied entries and answers so far.
    """

    def __init__(
        self, shared: Shared, rng: random.Random, *, pre_vote: bool, asks_leader: bool
    ) -> None:
        self.shared = shared
        self.ways = Ways(rng)
        self.elector = Elector(shared, self.ways, rng, pre_vote=pre_vote)
        self.terms = Terms(shared)
        self.transfer = Transfer(shared)
        self.departure = Departure(shared)
        self.receiver = Receiver(shared, self.departure)
        self.leadership: Leadership | None = None
        self.follower_reads = FollowerReads(shared, self.ways)
        self.forwards = Forwards(shared, self.ways)
        self._asks_leader = asks_leader
        self._stored_at = -inf  # when the store was last found at work at an election timeout
        self._numbers = count(1)  # of reads and forwards

    @property
    def term(self) -> int:
        return self.shared.journal.term

    @property
    def last_index(self) -> int:
        return self.shared.journal.log.last_index

    def refuse_read(self) -> ErrorCode | None:
        """The reason not to take a read now, if any."""
        if self.leadership is not None:
            return ErrorCode.QUEUE_FULL if self.leadership.reads_full else None
        return self.follower_reads.refusal if self._asks_leader else ErrorCode.NOT_LEADER

    def read(self) -> int:
        """Start a read; returns its number."""
        number = next(self._numbers)
        if self.leadership is not None:
            self.leadership.read(number)
        else:
            self.follower_reads.add(number)
        self.settle()
        return number

    def refuse_forward(self, values: Sequence[bytes]) -> ErrorCode | None:
        """The reason not to forward these now, if any; a leader gives it on appending them."""
        if self.leadership is not None:
            return None
        return self.forwards.refusal(values) if self._asks_leader else ErrorCode.NOT_LEADER

    def forward(self, values: Sequence[bytes]) -> int:
        """Have the leader append values; returns a number.  Raises `LocalProtocolError`."""
        if self.leadership is not None:
            first = self.leadership.append_values(values)
            number = next(self._numbers)
            self.shared.appended(number, first, self.term, len(values))
        else:
            number = next(self._numbers)
            self.forwards.add(number, values)
        self.settle()
        return number

    @property
    def asks(self) -> bool:
        """Whether something is wanted from a leader that is another server."""
        return bool(self.follower_reads.pending or self.forwards.pending)

    def end(self) -> None:
        """The server stops."""
        self.follower_reads.end()
        self.forwards.end()
        self.transfer.fail()
        if self.leadership is not None:
            self.leadership.end()
            self.leadership = None

    def advance(self) -> None:
        """Do everything that is due at ``shared.now``."""
        self.departure.advance()
        if self.elector.role in _ASKING and not self.departure.may_stand:
            self._follow(self.term)  # one that has gone asks nobody, and needs no way to anybody
        if self.transfer.target is not None:
            self.transfer.advance()
        if self.leadership is not None:
            if not self.leadership.advance():
                self._follow(self.term)
        elif self.elector.deadline <= self.shared.now and not self.elector.gives_time():
            self._stand(transfer=False)
        if self.follower_reads.pending:
            self.follower_reads.advance()
        if self.forwards.pending:
            self.forwards.advance()
        if self.leadership is None or self.leadership.change is not None:
            self.settle()  # time commits nothing

    def still_receiving(self, peer: int) -> None:
        """Part of a message has come from `peer`."""
        if peer == self.shared.leader:
            self.departure.heard_leader()
            self.elector.still_receiving()

    def still_sending(self, peer: int) -> None:
        """`peer` is taking the bytes of a request."""
        self.forwards.still_sending(peer)
        if self.leadership is not None:
            self.leadership.replicator.still_sending(peer)
            if peer == self.leadership.joiner and self.leadership.change is not None:
                self.leadership.change.still_sending()

    def dropped(self, peer: int) -> None:
        """The last request to `peer` could not be sent."""
        if self.leadership is not None:
            self.leadership.replicator.dropped(peer)

    def reachable(self, peer: int, extensions: frozenset[m.Extension]) -> None:
        """There is a way to `peer`, which understands `extensions`."""
        self.ways.reachable(peer, extensions)
        if self.leadership is not None:
            self.leadership.reachable(peer)
        self.settle()

    def unreachable(self, peer: int) -> None:
        """There is no way to `peer`."""
        self.ways.unreachable(peer)
        self.follower_reads.unreachable(peer)
        self.forwards.unreachable(peer)
        if self.leadership is not None:
            self.leadership.replicator.unreachable(peer)

    def next_deadline(self) -> float | None:
        transfer = None if self.transfer.target is None else self.transfer.next_deadline()
        if self.leadership is not None:
            deadline = self.leadership.next_deadline()
            return deadline if transfer is None else min(deadline, transfer)
        deadlines = [self.departure.next_deadline(), transfer]
        if self.follower_reads.pending:
            deadlines.append(self.follower_reads.next_deadline())
        if self.forwards.pending:
            deadlines.append(self.forwards.next_deadline())
        if self.departure.may_stand or self.shared.leader is not None:
            deadlines.append(self.elector.deadline)
        return min((time for time in deadlines if time is not None), default=None)

    # Transitions

    def _stand(self, *, transfer: bool) -> None:
        if not self._may_stand or (not transfer and self._waits_for_store()):
            self.elector.restart_timer()
            if not self.receiver.installing:
                self.shared.follow(None)  # another may lead, or it was not the leader who spoke
        elif transfer or self.elector.may_win:
            self.elector.stand(transfer=transfer)
        else:
            self.elector.ask_first()
        if self.departure.state is DepartureState.NEEDED:
            self.elector.give_way()  # a member may have our entries, and asks others

    @property
    def _may_stand(self) -> bool:
        return self.departure.may_stand and not self.receiver.installing

    def _waits_for_store(self) -> bool:
        """Whether the silence may be our own: the store is at work for the leader, or was lately.

        A leader may wait for our answer before it speaks again.  And another term would have to be
        written after this one; but words of candidates that are written put off nothing else.
        """
        shared, journal = self.shared, self.shared.journal
        if self.elector.role is State.FOLLOWER:
            longest = shared.timing.election_timeout_max_s
            lately = shared.now - self._stored_at <= longest
            if not journal.saved or self.receiver.writing:
                lately = shared.leader is not None or (lately and journal.has_term)
                self._stored_at = shared.now if lately else -inf
            if lately:
                return True
        return not journal.has_term

    def _follow(self, term: int) -> None:
        if self.leadership is not None:
            self.leadership.end()
            self.leadership = None
            self.transfer.stepped_down()
            self.elector.restart_timer()
            if not self.shared.is_voter:
                self.departure.go()
        self.elector.follow(term)
        self.follower_reads.settle()
        self.forwards.settle()

    def settle(self) -> None:
        """Draw conclusions from the writes, applied entries and answers so far."""
        leadership, elector = self.leadership, self.elector
        if leadership is None:
            if self.transfer.target is not None:
                self.transfer.settle()
            if self.follower_reads.pending:
                self.follower_reads.settle()
            if self.forwards.pending:
                self.forwards.settle()
            if elector.role is State.FOLLOWER:
                return
            if elector.elected:
                elector.lead()
                leadership = self.leadership = self._led_by_us()
            elif elector.role is State.PRE_CANDIDATE and elector.may_win:
                elector.stand(transfer=False)
        if leadership is not None:
            leadership.settle()
            if not self.shared.is_voter and leadership.is_dispensable():
                # Paper, section 6: a leader outside of the new configuration steps down
                # once that is committed.
                self._follow(self.term)

    def _led_by_us(self) -> Leadership:
        self.transfer.fail()
        return Leadership(self.shared, self.ways, self.transfer, self.elector.votes)

    # Messages

    def receive_message(self, message: m.Message) -> None:
        """Take a message; a request is answered in time through `messages_to_send`."""
        rule = self.RULES.get(type(message))
        if rule is None:
            return
        if rule.of_peers and not self._agree_on_term(message):
            return
        if self.elector.role not in rule.roles:
            self.refuse(message)
            return
        rule.handle(self, message)
        self.settle()

    def _agree_on_term(self, message: m.Message) -> bool:
        """Compare terms (paper, 5.1); false if the message must not be acted on."""
        term = self.shared.journal.term
        if self.leadership is None and self._knows(message.source):
            self.terms.heard_member()
        if message.term < term:
            self.refuse(message)
            return False
        if isinstance(message, m.RaftResponse):
            if message.term > term and self._knows(message.source):
                self._go_to(message.term)
            return message.term == term
        if self.elector.shielded_from(message.source) and self._disregards(message):
            self.refuse(message)
            return False
        if message.term > term and self.terms.believes(message.source):
            self._go_to(message.term)
        if message.term > self.term:
            self.refuse(message)
            return False
        return True

    def _go_to(self, term: int) -> None:
        """Take over a higher term, or come nearer to it if it is far ahead."""
        reached = self.terms.reach(term)
        if reached > self.term:
            self._follow(reached)

    def _knows(self, server_id: int) -> bool:
        if self.leadership is not None and server_id == self.leadership.joiner:
            return True
        return server_id in self.shared.journal.membership.known

    def _disregards(self, message: m.Message) -> bool:
        """Whether a server in contact with its leader does not listen to this request.

        Votes are for times without a leader (paper, section 6), unless the leader
        itself has asked for them; and a stranger does not depose a leader.
        """
        if isinstance(message, m.VoteRequest) and not message.transfer:
            return True
        return not self._knows(message.source)

    def refuse(self, message: m.Message) -> None:
        """Refuse a request; a response needs no answer."""
        if isinstance(message, m.RaftRequest):
            next_index = 0
            if type(message) in _TELLS_LOG_END:
                next_index = self.last_index + 1
            self.shared.respond(message, next_index, accepted=False)

    def _on_vote_request(self, request: m.VoteRequest) -> None:
        has_our_log = self.elector.on_vote_request(request)
        self.departure.heard_candidate(self.term, has_our_log=has_our_log)

    def _on_pre_vote_request(self, request: m.PreVoteRequest) -> None:
        """Tell the fate of a vote request in the next term; nothing changes here."""
        next_term = request.term + 1
        if self._knows(request.source):
            self.terms.heard_member()
        shielded = self.elector.shielded_from(request.source)
        if shielded or not self.term < next_term <= self.terms.highest:
            self.refuse(request)
            return
        has_our_log = self.elector.is_up_to_date(request)
        term = request.term if has_our_log else self.term
        self.shared.respond(request, 0, accepted=has_our_log, term=term)
        self.departure.heard_candidate(next_term, has_our_log=has_our_log)

    def _on_pre_vote_response(self, response: m.PreVoteResponse) -> None:
        self.elector.on_pre_vote_response(response)

    def _on_vote_response(self, response: m.VoteResponse) -> None:
        self.elector.on_vote_response(response)

    def _from_leader(self, request: m.RaftRequest) -> None:
        """A request that only the leader of the term sends."""
        if self.shared.leader not in (None, request.source):
            self.refuse(request)
            return
        self.elector.heard_from(request.source)
        self._FROM_LEADER[type(request)](self, request)
        self.departure.heard_leader()

    def _on_transfer_request(self, request: m.TransferRequest) -> None:
        able = self._may_stand
        self.shared.respond(request, 0, accepted=able)
        if able:
            self._stand(transfer=True)

    def _on_append_response(self, response: m.AppendResponse) -> None:
        leadership = self.leadership
        assert leadership is not None
        if leadership.replicator.on_append_response(response):
            leadership.hand_over()
        elif leadership.change is not None and response.source == leadership.joiner:
            leadership.change.on_sync_response(response)

    def _on_snapshot_response(self, response: m.SnapshotResponse) -> None:
        leadership = self.leadership
        assert leadership is not None
        progress = leadership.replicator.peers.get(response.source)
        if progress is not None:
            leadership.replicator.on_snapshot_response(progress, response)
        elif leadership.change is not None and response.source == leadership.joiner:
            leadership.change.on_snapshot_response(response)

    def _on_change_response(self, response: m.RaftResponse) -> None:
        leadership = self.leadership
        assert leadership is not None
        change = leadership.change
        if change is None or response.source != change.server.server_id:
            return
        match response:
            case m.JoinResponse():
                if not change.on_join_response(response):
                    leadership.drop_change()
            case m.SyncResponse():
                change.on_sync_response(response)
            case _:
                change.on_leave_response(response.sequence)

    def _on_read_index_request(self, request: m.ReadIndexRequest) -> None:
        assert self.leadership is not None
        if self.leadership.reads_full:
            self.refuse(request)
        else:
            self.leadership.read(request)

    def _on_read_index_response(self, response: m.ReadIndexResponse) -> None:
        self.follower_reads.on_response(response)

    def _on_forward_response(self, response: m.ForwardResponse) -> None:
        self.forwards.on_response(response)

    def _on_client_request(self, request: m.ClientRequest | m.ForwardRequest) -> None:
        leadership = self.leadership
        if leadership is None:
            self.refuse(request)
            return
        try:
            leadership.append_values(request.values)
        except LocalProtocolError:
            self.refuse(request)
            return
        self.shared.respond(request, self.last_index + 1, accepted=True)

    def _on_add_server(self, request: m.AddServerRequest) -> None:
        leadership = self.leadership
        if leadership is None or leadership.refuse_add(request.server) is not None:
            self.refuse(request)
            return
        leadership.add(request.server)
        self.shared.respond(request, self.last_index + 1, accepted=True)

    def _on_remove_server(self, request: m.RemoveServerRequest) -> None:
        leadership = self.leadership
        if leadership is None or leadership.refuse_remove(request.server_id) is not None:
            self.refuse(request)
            return
        leadership.remove(request.server_id)
        self.shared.respond(request, self.last_index + 1, accepted=True)

    RULES: ClassVar[Mapping[type[m.Message], Rule]] = {
        m.VoteRequest: Rule(_ALL, _on_vote_request),
        m.AppendRequest: Rule(_NOT_LEADER, _from_leader),
        m.SnapshotRequest: Rule(_NOT_LEADER, _from_leader),
        m.JoinRequest: Rule(_NOT_LEADER, _from_leader),
        m.SyncRequest: Rule(_NOT_LEADER, _from_leader),
        m.LeaveRequest: Rule(_NOT_LEADER, _from_leader),
        m.TransferRequest: Rule(_FOLLOWER, _from_leader),
        m.PreVoteRequest: Rule(_ALL, _on_pre_vote_request, of_peers=False),
        m.PreVoteResponse: Rule(_PRE_CANDIDATE, _on_pre_vote_response),
        m.VoteResponse: Rule(_ASKING, _on_vote_response),
        m.AppendResponse: Rule(_LEADER, _on_append_response),
        m.SnapshotResponse: Rule(_LEADER, _on_snapshot_response),
        m.JoinResponse: Rule(_LEADER, _on_change_response),
        m.SyncResponse: Rule(_LEADER, _on_change_response),
        m.LeaveResponse: Rule(_LEADER, _on_change_response),
        m.ReadIndexRequest: Rule(_LEADER, _on_read_index_request),
        m.ReadIndexResponse: Rule(_FOLLOWER, _on_read_index_response),
        m.ForwardRequest: Rule(_LEADER, _on_client_request),
        m.ForwardResponse: Rule(_FOLLOWER, _on_forward_response),
        m.ClientRequest: Rule(_ALL, _on_client_request, of_peers=False),
        m.AddServerRequest: Rule(_ALL, _on_add_server, of_peers=False),
        m.RemoveServerRequest: Rule(_ALL, _on_remove_server, of_peers=False),
    }

    _FROM_LEADER: ClassVar[Mapping[type[m.RaftRequest], Callable[[Engine, Any], None]]] = {
        m.AppendRequest: lambda engine, request: engine.receiver.on_append(request),
        m.SnapshotRequest: lambda engine, request: engine.receiver.on_snapshot(request),
        m.JoinRequest: lambda engine, request: engine.receiver.on_join(request),
        m.SyncRequest: lambda engine, request: engine.receiver.on_sync(request),
        m.LeaveRequest: lambda engine, request: engine.receiver.on_leave(request),
        m.TransferRequest: lambda engine, request: engine._on_transfer_request(request),
    }
