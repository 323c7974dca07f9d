"""The caller's view of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from culm.arguments import check_int, check_type
from culm.bamboo.entry import check_log
from culm.machine import RemoteProtocolError
from culm.p2panda.items import Height
from culm.p2panda.messages import (
    Have,
    Mode,
    RangeMessage,
    Reconcile,
    SessionMessage,
    SyncDone,
    check_range_message,
)
from culm.p2panda.states import Half, Saying, SessionState
from culm.p2panda.talk import Talk

__all__ = ["Session", "Speaker"]


class Speaker(Protocol):
    """What says a session's messages: the connection."""

    def say(self, talk: Talk, saying: Saying, message: SessionMessage) -> None: ...

    def say_entries(self, talk: Talk, entries: Iterable[tuple[bytes, bytes]]) -> None: ...

    def break_off(self, talk: Talk, error: RemoteProtocolError) -> None: ...


class Session:
    """A light handle on one session of a `Connection`.

    Handles on the same session are equal.  A handle outlives its session: then its verbs raise.

    Every verb raises `LocalProtocolError` if a rule forbids the message that it stands for (the
    code says which one), or if the session (``NO_SUCH_SESSION``) or the connection
    (``ContractErrorCode.ALREADY_CLOSED``) is over; nothing has changed then.
    """

    __slots__ = ("_speaker", "_talk")

    def __init__(self, talk: Talk, speaker: Speaker) -> None:
        self._talk = talk
        self._speaker = speaker

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and other._talk is self._talk

    def __hash__(self) -> int:
        return hash(self._talk)

    def __repr__(self) -> str:
        return f"<Session {self.session_id} {self.state.name}>"

    @property
    def session_id(self) -> int:
        """Its id; another one after `RequestRenumbered`."""
        return self._talk.session_id

    @property
    def mode(self) -> Mode:
        return self._talk.mode

    @property
    def schema_ids(self) -> tuple[str, ...]:
        """What it is about."""
        return self._talk.schema_ids

    @property
    def requested_by_us(self) -> bool:
        return self._talk.ours

    @property
    def state(self) -> SessionState:
        return self._talk.state

    @property
    def local(self) -> Half:
        """What we have said."""
        return self._talk.local

    @property
    def remote(self) -> Half:
        """What the peer has said."""
        return self._talk.remote

    def send_have(self, heights: Sequence[Height]) -> None:
        """Say how high all our logs are, in log height mode."""
        check_type("heights", heights, Sequence)
        for height in heights:
            check_type("height", height, Height)
            check_log(height.log)
            check_int("seqnum", height.seqnum, 1)
        if len({height.log for height in heights}) < len(heights):
            raise ValueError("a log twice")
        self._speaker.say(self._talk, Saying.HAVE, Have(self.session_id, tuple(heights)))

    def send_range(self, message: RangeMessage) -> None:
        """Say one of the seven messages, in set reconciliation mode."""
        check_range_message(message)
        self._speaker.say(self._talk, Saying.RANGE, Reconcile(self.session_id, message))

    def send_entry(self, entry: bytes, operation: bytes) -> None:
        """Send an entry and its operation, both encoded."""
        check_type("entry", entry, bytes)
        check_type("operation", operation, bytes)
        self._speaker.say_entries(self._talk, [(entry, operation)])

    def send_entries(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Send entries with their operations, all encoded: none is looked at."""
        self._speaker.say_entries(self._talk, entries)

    def finish(self, *, live_mode: bool = False) -> None:
        """Say that all has been sent, or, in live mode, that no more will be."""
        check_type("live_mode", live_mode, bool)
        saying = Saying.OFFER if live_mode else Saying.DONE
        self._speaker.say(self._talk, saying, SyncDone(self.session_id, live_mode))

    def break_off(self, error: RemoteProtocolError) -> None:
        """The peer has broken a rule that is not one of the messages' order.

        Says `SyncDone`, and does not listen any more; counts as one of the peer's faults.
        """
        check_type("error", error, RemoteProtocolError)
        self._speaker.break_off(self._talk, error)
