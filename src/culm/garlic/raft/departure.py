"""This server's way out of its cluster."""

from __future__ import annotations

from enum import Enum

from culm.garlic.raft.shared import Shared


class DepartureState(Enum):
    """The stages of our leaving."""

    STAYING = "staying"
    TOLD = "told"  # it ordered us to leave
    GONE = "gone"  # we are no member, or were told to leave and all has been silent since
    NEEDED = "needed"  # we are no member, but others need our log to elect a leader


class Departure:
    """Owns an order to leave, until it is carried out or void.

    A server that was told to leave votes and follows, but leaves it to others to stand for
    election: a leader that has removed it does not say so, and would be deposed.  The order is void
    once a leader of a later term keeps us, or no leader can be elected without us, or all is silent
    and our latest configuration still has us: the removal may have been given up.

    A server that is no member any more may be needed, too (thesis, 4.2.2): members that do not
    know that its removal is committed want its vote, and cannot have it while they lack its log.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._term = 0  # of the order
        self._deadline: float | None = None  # silence up to then means that it was carried out
        self.state = DepartureState.STAYING

    @property
    def may_stand(self) -> bool:
        if self.state is DepartureState.STAYING:
            return self._shared.is_voter
        return self.state is DepartureState.NEEDED

    def told(self) -> None:
        """A leader orders us to leave."""
        if self.state in (DepartureState.STAYING, DepartureState.TOLD):
            self.state = DepartureState.TOLD
            self._term = self._shared.journal.term
            self._wait()

    def go(self) -> None:
        """Take no further part in elections."""
        self._deadline = None
        if self.state in (DepartureState.STAYING, DepartureState.TOLD):
            self._shared.left()
        self.state = DepartureState.GONE

    def stay(self) -> None:
        """We are wanted."""
        self.state, self._deadline = DepartureState.STAYING, None

    def heard_leader(self) -> None:
        """The leader of the current term was heard."""
        if self.state is DepartureState.STAYING:
            return
        if self._shared.journal.term > self._term and self._stays:
            self.stay()
        elif self.state is DepartureState.NEEDED:
            self.go()
        else:
            self._heard()

    @property
    def _stays(self) -> bool:
        """Whether the latest configuration that we know includes us."""
        latest = self._shared.journal.membership.latest
        return latest.find(self._shared.server_id) is not None

    def heard_candidate(self, term: int, *, has_our_log: bool) -> None:
        """A candidate for `term` was heard.

        has_our_log: if not, no server with our log can vote for it.
        """
        if has_our_log or term <= self._term:
            self._heard()
        elif self._shared.is_voter:
            self.stay()
        elif not self._shared.is_member:
            self.state = DepartureState.NEEDED
            self._wait()

    def _heard(self) -> None:
        """Silence is broken: if we left because of it, and are a member, we are back."""
        if self.state is DepartureState.GONE and self._shared.is_member:
            self.state = DepartureState.TOLD
        if self.state is DepartureState.TOLD:
            self._wait()

    def _wait(self) -> None:
        shared = self._shared
        self._deadline = shared.now + 2 * shared.timing.election_timeout_max_s

    def next_deadline(self) -> float | None:
        return self._deadline

    def advance(self) -> None:
        if self._deadline is None or self._deadline > self._shared.now:
            return
        if self.state is DepartureState.TOLD and self._stays:
            self.stay()
        else:
            self.go()
