"""The state that the parts of one core share."""

from __future__ import annotations

from collections import deque

from culm.effects import StoreWork
from culm.garlic.raft.applier import Applier
from culm.garlic.raft.events import (
    ChangeFailed,
    ConfigurationChanged,
    Forwarded,
    LeaderChanged,
    Left,
)
from culm.garlic.raft.journal import Journal
from culm.garlic.raft.limits import Limits, Timing
from culm.garlic.raft.messages import CLIENT_REQUESTS, RESPONSE_OF, RaftRequest
from culm.garlic.raft.model import Stored
from culm.garlic.raft.proposals import Proposals
from culm.machine import Event

# The destination of a response to a client when no leader is known.
NO_LEADER = -1


class Shared:
    """A server's identity, time, durable state, and events."""

    def __init__(
        self, *, server_id: int, stored: Stored, timing: Timing, limits: Limits, now: float
    ) -> None:
        self.server_id = server_id
        self.timing = timing
        self.limits = limits
        self.now = now
        self.leader: int | None = None
        self.work = StoreWork()
        self.proposals = Proposals()
        self.journal = Journal(stored, self.work, limits.writes_max)
        # Reported from a known index on, and the server of the change if it was asked for here
        self.changes: deque[tuple[int, Event, int | None]] = deque()
        self.applier = Applier(self.journal, self.work, limits, stored.applied_index)

    @property
    def is_voter(self) -> bool:
        return self.server_id in self.journal.membership.voters

    @property
    def is_member(self) -> bool:
        """Whether it is a voter or a learner."""
        return self.server_id in self.journal.membership.members

    def commit(self, index: int) -> bool:
        """Everything up to `index` is committed.  Returns whether the members changed."""
        journal = self.journal
        if index <= journal.commit_index:
            return False
        if not journal.commit(index):
            return False
        self.members_changed()
        return True

    def appended(self, number: int, index: int, term: int, count: int) -> None:
        """The values of a `Raft.forward` are in the leader's log, from `index` on."""
        self.proposals.add(index, index + count - 1, term)
        self.work.emit(Forwarded(forward=number, index=index, term=term, count=count))

    def settle_proposals(self, reached: int | None = None) -> None:
        """Report the fate of proposals up to `reached`, by default those that are applied here."""
        if self.proposals:
            index = self.applier.applied_index if reached is None else reached
            for event in self.proposals.settle(self.journal.log, index):
                self.work.emit(event)

    def settle_unapplied(self) -> None:
        """Report committed proposals that are never applied here, one by one."""
        self.settle_proposals(self.journal.commit_index)

    def members_changed(self) -> None:
        """Report that another configuration is in force, once a restart would know that, too."""
        journal = self.journal
        changed = ConfigurationChanged(configuration=journal.membership.current)
        self.changes.append((journal.commit_index, changed, None))
        self.report_changes(journal.known_index)

    def asked_for_change(self, server_id: int) -> None:
        """The members have changed because that server was to be added or removed here."""
        if self.changes:
            index, changed, _ = self.changes[-1]
            self.changes[-1] = index, changed, server_id

    def drop_changes(self) -> None:
        """Report the end of what was asked for here, and a restart may not know."""
        for _, _, server_id in self.changes:
            if server_id is not None:
                self.work.emit(ChangeFailed(server_id=server_id))

    def report_changes(self, reached: int) -> None:
        """Report the configurations that are in force since `reached` at the latest."""
        changes = self.changes
        while changes and changes[0][0] <= reached:
            self.work.emit(changes.popleft()[1])

    def left(self) -> None:
        """Report that this server has left, after the configuration without it."""
        if self.changes:
            self.changes.append((self.changes[-1][0], Left(), None))
        else:
            self.work.emit(Left())

    def advance(self, now: float) -> None:
        self.now = now

    def follow(self, leader: int | None) -> None:
        """Take this server for the leader of the term; report it if that is new."""
        if leader != self.leader:
            self.leader = leader
            self.work.emit(LeaderChanged(leader=leader, term=self.journal.term))

    def respond(
        self, request: RaftRequest, next_index: int, accepted: bool, term: int | None = None
    ) -> None:
        """Answer `request` once everything so far is durable; the term is ours by default."""
        destination = request.source
        if type(request) in CLIENT_REQUESTS:
            destination = NO_LEADER if self.leader is None else self.leader
        self.journal.send(
            RESPONSE_OF[type(request)](
                source=self.server_id,
                destination=destination,
                term=self.journal.term if term is None else term,
                sequence=request.sequence,
                next_index=next_index,
                accepted=accepted,
            )
        )
