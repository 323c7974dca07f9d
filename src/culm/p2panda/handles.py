"""The caller's view of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from culm.arguments import check_int, check_type
from culm.bamboo.entry import check_log
from culm.machine import RemoteProtocolError
from culm.p2panda.heights import Height
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
    """The sender of a session's messages: the connection."""

    def say(self, talk: Talk, saying: Saying, message: SessionMessage) -> None: ...

    def say_entries(self, talk: Talk, entries: Iterable[tuple[bytes, bytes]]) -> None: ...

    def break_off(self, talk: Talk, error: RemoteProtocolError) -> None: ...


class Session:
    """A light handle on one session of a `Connection`.

    Handles on the same session are equal.  A handle outlives its session; its methods raise then.

    Every method raises `LocalProtocolError` if a rule forbids its message (the code tells which),
    or if the session (``NO_SUCH_SESSION``) or the connection
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
        """Its id, which changes with `RequestRenumbered`."""
        return self._talk.session_id

    @property
    def mode(self) -> Mode:
        return self._talk.mode

    @property
    def schema_ids(self) -> tuple[str, ...]:
        """The schemas that it is about."""
        return self._talk.schema_ids

    @property
    def requested_by_us(self) -> bool:
        return self._talk.ours

    @property
    def state(self) -> SessionState:
        return self._talk.state

    @property
    def local(self) -> Half:
        """The messages that we have sent."""
        return self._talk.local

    @property
    def remote(self) -> Half:
        """The messages that the peer has sent."""
        return self._talk.remote

    def send_have(self, heights: Sequence[Height]) -> None:
        """Send the heights of all our logs, in log-height mode."""
        check_type("heights", heights, Sequence)
        for height in heights:
            check_type("height", height, Height)
            check_log(height.log)
            check_int("seqnum", height.seqnum, 1)
        if len({height.log for height in heights}) < len(heights):
            raise ValueError("a log twice")
        self._speaker.say(self._talk, Saying.HAVE, Have(self.session_id, tuple(heights)))

    def send_range(self, message: RangeMessage) -> None:
        """Send one of the seven messages, in set-reconciliation mode."""
        check_range_message(message)
        self._speaker.say(self._talk, Saying.RANGE, Reconcile(self.session_id, message))

    def send_entry(self, entry: bytes, operation: bytes) -> None:
        """Send an entry and its operation, both encoded."""
        check_type("entry", entry, bytes)
        check_type("operation", operation, bytes)
        self._speaker.say_entries(self._talk, [(entry, operation)])

    def send_entries(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Send entries with their operations, all encoded and not validated here."""
        self._speaker.say_entries(self._talk, entries)

    def finish(self, *, live_mode: bool = False) -> None:
        """Tell the peer that everything was sent or, in live mode, that nothing more will be."""
        check_type("live_mode", live_mode, bool)
        saying = Saying.OFFER if live_mode else Saying.DONE
        self._speaker.say(self._talk, saying, SyncDone(self.session_id, live_mode))

    def break_off(self, error: RemoteProtocolError) -> None:
        """End the session because the peer has broken a rule that the wire machine cannot see.

        Sends `SyncDone` and stops listening; counts as one of the peer's faults.
        """
        check_type("error", error, RemoteProtocolError)
        self._speaker.break_off(self._talk, error)
