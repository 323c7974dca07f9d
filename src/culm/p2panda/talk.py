"""One session on the wire: the messages of both sides, and those that may follow."""

from __future__ import annotations

from culm.machine import LocalProtocolError, RemoteProtocolError
from culm.p2panda.errors import ErrorCode
from culm.p2panda.messages import Mode
from culm.p2panda.states import OVER, RULES, Half, Saying, SessionState, session_state

__all__ = ["Talk"]

_TABLE = {
    mode: {(half, saying): rules[half][saying] for half in Half for saying in Saying}
    for mode, rules in RULES.items()
}


class Talk:
    """The state of a session on the wire.

    ours: we have requested it.
    moved_at: when something was sent last.
    """

    __slots__ = ("local", "mode", "moved_at", "ours", "remote", "schema_ids", "session_id")

    def __init__(
        self, session_id: int, *, mode: Mode, schema_ids: tuple[str, ...], ours: bool, now: float
    ) -> None:
        self.session_id = session_id
        self.mode = mode
        self.schema_ids = schema_ids
        self.ours = ours
        self.moved_at = now
        self.local = self.remote = Half.SILENT

    @property
    def state(self) -> SessionState:
        return session_state(self.local, self.remote, ours=self.ours)

    @property
    def over(self) -> bool:
        return (self.local, self.remote) in OVER

    @property
    def compares(self) -> bool:
        """Whether it is in set reconciliation mode."""
        return self.mode is Mode.SET_RECONCILIATION

    def say(self, saying: Saying, now: float) -> None:
        """Note that we send this.  Raises `LocalProtocolError` if we may not.

        Until the peer has answered our request, we can only withdraw it: it may still get another
        id.
        """
        if saying is not Saying.DONE and self.state is SessionState.REQUESTED:
            raise LocalProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "the peer has not answered")
        after = _TABLE[self.mode][self.local, saying]
        if isinstance(after, ErrorCode):
            raise LocalProtocolError(after, f"{saying.value} when {self.local.value}")
        self._move(after, self.remote, now)

    def hear(self, saying: Saying, now: float) -> None:
        """Note that the peer sends this.  Raises `RemoteProtocolError` if it may not."""
        after = _TABLE[self.mode][self.remote, saying]
        if isinstance(after, ErrorCode):
            raise RemoteProtocolError(after, f"{saying.value} when {self.remote.value}")
        self._move(self.local, after, now)

    def hears(self, saying: Saying) -> bool:
        """Whether the peer may send this, and we still listen."""
        if self.local is Half.BROKEN:
            return False
        return not isinstance(_TABLE[self.mode][self.remote, saying], ErrorCode)

    def moved(self, now: float) -> None:
        """Restart the clock: nothing has been owed for longer than since then."""
        self.moved_at = now

    def excuse(self, time: float) -> None:
        """Do not count this time: the peer is not to blame that the session stood still."""
        self.moved_at += time

    def renumber(self, session_id: int) -> None:
        """Its id went to the peer's session, and it is requested again with another one.

        The peer gets no more time for that: it could take one id after the other.
        """
        self.session_id = session_id

    def give_way(self) -> None:
        """It is over, since the peer's request takes precedence: neither side sends more."""
        self.local = self.remote = Half.DONE

    def break_off(self, now: float) -> bool:
        """Stop listening; returns whether the peer has to be told."""
        unsaid = self.local is not Half.DONE
        self._move(Half.BROKEN, self.remote, now)
        return unsaid

    def _move(self, local: Half, remote: Half, now: float) -> None:
        if local is remote is Half.OFFERING:
            local = remote = Half.LIVE
        self.local, self.remote, self.moved_at = local, remote, now
