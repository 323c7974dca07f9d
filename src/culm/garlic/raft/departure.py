"""Whether this server is on its way out of its cluster."""

from __future__ import annotations

from enum import Enum

from culm.garlic.raft.events import Left
from culm.garlic.raft.shared import Shared

__all__ = ["Departure", "DepartureState"]


class DepartureState(Enum):
    """What a leader has said about our leaving."""

    STAYING = "staying"
    TOLD = "told"  # it ordered us to leave
    GONE = "gone"  # we are no member, or all was silent after the order


class Departure:
    """Owns an order to leave, until it is carried out or void.

    A server that was told to leave votes and follows, but does not stand for election: a leader
    that has removed it does not say so, and would be deposed.  The order is void once a leader of a
    later term keeps us, or if no leader can be elected without us.
    """

    __slots__ = ("_deadline", "_shared", "_term", "state")

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._term = 0  # of the order
        self._deadline: float | None = None  # when silence means that it was carried out
        self.state = DepartureState.STAYING

    @property
    def may_stand(self) -> bool:
        return self.state is DepartureState.STAYING

    def told(self) -> None:
        """A leader orders us to leave."""
        if self.state is not DepartureState.GONE:
            self.state = DepartureState.TOLD
            self._term = self._shared.journal.term
            self._wait()

    def go(self) -> None:
        """Take no further part in elections."""
        self._deadline = None
        if self.state is not DepartureState.GONE:
            self.state = DepartureState.GONE
            self._shared.work.emit(Left())

    def stay(self) -> None:
        """We are wanted."""
        self.state, self._deadline = DepartureState.STAYING, None

    def heard_leader(self) -> None:
        """The leader of the current term was heard."""
        if self.state is DepartureState.STAYING:
            return
        journal = self._shared.journal
        stays = journal.membership.latest.find(self._shared.server_id) is not None
        if journal.term > self._term and stays:
            self.stay()
        else:
            self._heard()

    def heard_candidate(self, term: int, *, has_our_log: bool) -> None:
        """A candidate for `term` was heard.

        has_our_log: if not, neither we nor whoever is like us can elect it.
        """
        is_later = term > self._term
        if is_later and not has_our_log and self._shared.is_voter:
            self.stay()
        else:
            self._heard()

    def _heard(self) -> None:
        """Not all is silent: if we left because of silence, and are a member, we are back."""
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
        if self._deadline is not None and self._deadline <= self._shared.now:
            self.go()
