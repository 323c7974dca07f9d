"""All sessions with one peer: their ids, duplicates, and requests that cross.

Sources: seed, ``SyncRequest``; decision 5, as aquadoggo does it.
"""

from __future__ import annotations

from collections.abc import Iterator

from culm.arguments import UINT64_MAX
from culm.machine import LocalProtocolError
from culm.p2panda.errors import ErrorCode
from culm.p2panda.events import Ignored
from culm.p2panda.messages import Mode, SyncRequest
from culm.p2panda.states import Half, SessionState
from culm.p2panda.talk import Talk

__all__ = ["Sessions"]


class Sessions:
    """The sessions that are not over, by id.

    yields: if two requests cross, ours is dropped and the peer's is served; the peer does the
        opposite.
    reuses_ids: our requests get the lowest free id, instead of counting up.  Where both sides do
        that, crossing requests about the same schemas have the same id, too: aquadoggo answers ours
        with the id of its own.
    """

    __slots__ = ("_next_id", "_reuses_ids", "_talks", "_yields", "sessions_max")

    def __init__(self, *, yields: bool, sessions_max: int, reuses_ids: bool = False) -> None:
        self._talks: dict[int, Talk] = {}
        self._next_id = 0
        self._reuses_ids = reuses_ids
        self._yields = yields
        self.sessions_max = sessions_max

    def __iter__(self) -> Iterator[Talk]:
        return iter(self._talks.values())

    def __len__(self) -> int:
        return len(self._talks)

    def get(self, session_id: int) -> Talk | None:
        return self._talks.get(session_id)

    def about(self, schema_ids: tuple[str, ...]) -> Talk | None:
        """The session about exactly these schemas, unless it has been broken off."""
        wanted = set(schema_ids)
        for talk in self._talks.values():
            if talk.local is not Half.BROKEN and wanted == set(talk.schema_ids):
                return talk
        return None

    def open(self, mode: Mode, schema_ids: tuple[str, ...], now: float) -> Talk:
        """Open a session that we request.

        Raises `LocalProtocolError`: ``DUPLICATE_SESSION``, ``TOO_MANY_SESSIONS``.
        """
        if self.about(schema_ids) is not None:
            raise LocalProtocolError(ErrorCode.DUPLICATE_SESSION, ", ".join(schema_ids))
        if self._room < 1:
            raise LocalProtocolError(ErrorCode.TOO_MANY_SESSIONS, f"{self.sessions_max}")
        return self._add(Talk(self._new_id(), mode=mode, schema_ids=schema_ids, ours=True, now=now))

    def accept(self, request: SyncRequest, mode: Mode, now: float) -> Ignored | list[Talk]:
        """Accept a session that the peer requests, or tell the reason why not.

        Returned with it are our sessions that gave way to it: the one about the same schemas is
        over; another one that had its id has a new one, and must be requested again.
        """
        same_id, same_schemas = self.get(request.session_id), self.about(request.schema_ids)
        if same_id is not None and same_id.local is Half.BROKEN:
            self.remove(same_id)  # the peer has forgotten that one
            same_id = None
        rivals = [each for each in (same_schemas, same_id) if each is not None]
        for rival in rivals:
            if rival.state is not SessionState.REQUESTED:
                return Ignored.DUPLICATE if rival is same_schemas else Ignored.ID_IN_USE
        if rivals and not self._yields:
            return Ignored.COLLISION
        if self._room + (same_schemas is not None) < 1:
            return Ignored.TOO_MANY_SESSIONS
        if same_schemas is not None:
            self.remove(same_schemas)
        if same_id is not None and same_id is not same_schemas:
            self.remove(same_id)
        schema_ids, session_id = request.schema_ids, request.session_id
        talk = Talk(session_id, mode=mode, schema_ids=schema_ids, ours=False, now=now)
        self._add(talk)
        if same_id is not None and same_id is not same_schemas:
            same_id.renumber(self._new_id())
            self._add(same_id)
        return [talk, *dict.fromkeys(rivals)]

    @property
    def _room(self) -> int:
        """The room for further sessions; those that have failed on our side have their own."""
        failed = sum(talk.local is Half.BROKEN for talk in self._talks.values())
        return min(self.sessions_max, 2 * self.sessions_max - failed) - len(self._talks) + failed

    def remove(self, talk: Talk) -> None:
        """Remove a session that is over."""
        if self._talks.get(talk.session_id) is talk:
            del self._talks[talk.session_id]

    def clear(self) -> None:
        self._talks.clear()

    def _add(self, talk: Talk) -> Talk:
        self._talks[talk.session_id] = talk
        return talk

    def _new_id(self) -> int:
        """The next id, starting with 0."""
        if self._reuses_ids:
            self._next_id = 0
        while self._next_id in self._talks:
            self._next_id += 1
        session_id = self._next_id
        self._next_id = (session_id + 1) % UINT64_MAX
        return session_id
