"""Role, votes and election timeouts."""

from __future__ import annotations

import math
import random

from culm.garlic.raft.events import RoleChanged
from culm.garlic.raft.messages import (
    Extension,
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
)
from culm.garlic.raft.shared import Shared
from culm.garlic.raft.states import State
from culm.garlic.raft.ways import Ways


class Elector:
    """Owns the role, the votes of a candidacy, and when the next one is due.

    pre_vote
        Whether a candidacy begins by asking others if it could win (thesis, 9.6).
    """

    def __init__(self, shared: Shared, ways: Ways, rng: random.Random, *, pre_vote: bool) -> None:
        self._shared = shared
        self._ways = ways
        self._rng = rng
        self._pre_vote = pre_vote
        self._canvass = 0  # the last question; answers to earlier ones may be too old
        self._promises: set[int] = set()  # answers to it
        self.votes: set[int] = set()
        self._stood = False  # whether `votes` are of our term, and still count
        self._heard_at = -math.inf  # when the leader was heard last
        self.role = State.FOLLOWER
        self.deadline = 0.0
        self.restart_timer()

    def restart_timer(self) -> None:
        """Draw a new election timeout (paper, 5.2: randomized to avoid split votes)."""
        timing = self._shared.timing
        shortest, longest = timing.election_timeout_min_s, timing.election_timeout_max_s
        wait = shortest + (longest - shortest) * self._rng.random()
        self.deadline = self._shared.now + wait

    def shielded_from(self, server_id: int) -> bool:
        """Whether a leader is in contact, so that this server is disregarded as a candidate.

        Paper, section 6: servers disregard RequestVote within the minimum election
        timeout of hearing from a current leader.  A leader that stands itself leads no more.
        """
        if self.role is State.LEADER:
            return True
        shared = self._shared
        heard_lately = shared.now - self._heard_at < shared.timing.election_timeout_min_s
        return shared.leader not in (None, server_id) and heard_lately

    def heard_from(self, leader: int) -> None:
        """The leader of the current term has spoken."""
        self._heard_at = self._shared.now
        self.restart_timer()
        if self.role is not State.FOLLOWER:
            self._take_role(State.FOLLOWER)
        self._shared.follow(leader)

    def still_receiving(self) -> None:
        """The leader's next message is on its way.

        The timeout is not drawn anew: a message that comes byte by byte must not draw more often.
        """
        shared = self._shared
        self._heard_at = shared.now
        self.deadline = max(self.deadline, shared.now + shared.timing.election_timeout_min_s)

    def gives_time(self) -> bool:
        """Whether a timeout is noticed so late that we were away, not the leader.

        Its heartbeats may be waiting to be read; the leader gets one more minimum timeout.
        """
        shared, timing = self._shared, self._shared.timing
        late = shared.now - self.deadline > timing.heartbeat_interval_s
        if late and shared.leader is not None and self.role is State.FOLLOWER:
            self.deadline = shared.now + timing.election_timeout_min_s
            shared.follow(None)
            return True
        return False

    def follow(self, term: int) -> None:
        """Become a follower in a term whose leader is unknown."""
        journal = self._shared.journal
        changed = term > journal.term or self.role is not State.FOLLOWER
        if term > journal.term:
            journal.set_term(term, None)
        if changed:
            self._take_role(State.FOLLOWER)
        self._shared.follow(None)

    @property
    def may_win(self) -> bool:
        """Whether a majority would vote for us, as far as it can be asked."""
        if not self._pre_vote:
            return True
        silent = self._ways.lacking(Extension.PRE_VOTE)
        asked = self.role is State.PRE_CANDIDATE
        return self._is_quorum(self._promises | silent if asked else silent)

    def ask_first(self) -> None:
        """Become a pre-candidate: ask whether we could win.  The term stays (thesis, 9.6)."""
        shared, journal = self._shared, self._shared.journal
        self._canvass += 1
        self._promises.clear()
        if self.role is not State.PRE_CANDIDATE:
            self._take_role(State.PRE_CANDIDATE)
        shared.follow(None)
        self.restart_timer()
        for peer in self._others():
            journal.send(
                PreVoteRequest(
                    source=shared.server_id,
                    destination=peer,
                    term=journal.term,
                    sequence=self._canvass,
                    last_log_index=journal.log.last_index,
                    last_log_term=journal.log.last_term,
                )
            )

    def _others(self) -> list[int]:
        """The servers to ask; requests to them that have not left are withdrawn."""
        journal = self._shared.journal
        others = sorted(journal.membership.voters - {self._shared.server_id})
        for peer in others:
            journal.withdraw(peer)
        return others

    def stand(self, *, transfer: bool) -> None:
        """Become a candidate: new term, vote for oneself, ask all others (paper, 5.2)."""
        shared = self._shared
        journal = shared.journal
        journal.set_term(journal.term + 1, shared.server_id)
        self.votes.clear()
        self._stood = True
        self._take_role(State.CANDIDATE)
        self._shared.follow(None)
        self.restart_timer()
        for peer in self._others():
            journal.send(
                VoteRequest(
                    source=shared.server_id,
                    destination=peer,
                    term=journal.term,
                    last_log_index=journal.log.last_index,
                    last_log_term=journal.log.last_term,
                    transfer=transfer,
                )
            )

    def lead(self) -> None:
        self._take_role(State.LEADER)
        self._shared.follow(self._shared.server_id)

    def _take_role(self, role: State) -> None:
        self.role = role
        self._stood = self._stood and role in (State.CANDIDATE, State.PRE_CANDIDATE)
        self._shared.work.emit(RoleChanged(role=role, term=self._shared.journal.term))

    def on_vote_request(self, request: VoteRequest) -> bool:
        """RequestVote (paper, figure 2, receiver implementation 2, and 5.4.1).

        Returns whether the candidate's log is at least as up to date as ours.
        """
        journal = self._shared.journal
        up_to_date = self.is_up_to_date(request)
        granted = up_to_date and journal.voted_for in (None, request.source)
        if granted:
            if journal.voted_for is None:
                journal.set_term(journal.term, request.source)
            self.restart_timer()
        elif self.role is State.CANDIDATE and _last_of(request) > self._last:
            self.give_way()
        self._shared.respond(request, 0, accepted=granted)
        return up_to_date

    def give_way(self) -> None:
        """Let another candidate of our term, whose log is ahead of ours, stand again first.

        It may be unable to win without our vote, and we without its log; if each went on in its
        own time, we could be a term ahead of it again and again.
        """
        self.restart_timer()
        self.deadline += self._shared.timing.election_timeout_max_s

    def is_up_to_date(self, request: VoteRequest | PreVoteRequest) -> bool:
        """Whether the candidate's log is at least as up to date as ours (paper, 5.4.1)."""
        return _last_of(request) >= self._last

    @property
    def _last(self) -> tuple[int, int]:
        log = self._shared.journal.log
        return log.last_term, log.last_index

    def on_pre_vote_response(self, response: PreVoteResponse) -> None:
        if response.accepted and response.sequence == self._canvass:
            self._promises.add(response.source)

    def on_vote_response(self, response: VoteResponse) -> None:
        if response.accepted:
            self.votes.add(response.source)

    @property
    def elected(self) -> bool:
        """Whether a majority has voted for us; our own vote counts once it is durable.

        Votes count until the term ends, also while we ask whether we could win in the next.
        """
        return self._stood and self._shared.journal.saved and self._is_quorum(self.votes)

    def _is_quorum(self, others: set[int]) -> bool:
        """Whether `others` and we are a majority together."""
        membership = self._shared.journal.membership
        ours = others | {self._shared.server_id}
        return len(ours & membership.voters) >= membership.quorum


def _last_of(request: VoteRequest | PreVoteRequest) -> tuple[int, int]:
    """Term and index of the candidate's last entry."""
    return request.last_log_term, request.last_log_index
