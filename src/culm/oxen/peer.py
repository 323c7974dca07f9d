"""One peer: the association with it, and what is left of one that is over."""

from __future__ import annotations

from dataclasses import dataclass

from culm.oxen.incoming import Age, Incoming
from culm.oxen.messages import Broadcast, Finalize, Message, OneToOne, Synchronize
from culm.oxen.outgoing import Outgoing
from culm.oxen.states import PeerState

__all__ = ["Peer", "Tombstone"]


@dataclass(slots=True)
class Peer:
    """What a node knows of another one.  Times are Unix seconds."""

    sid: bytes
    outgoing: Outgoing
    since: float
    """When the present state began, or was last asked for by it or by our user."""
    wanted: bool = False
    """The user asked it for help to join."""
    state: PeerState = PeerState.SYNCHRONIZING
    incoming: Incoming | None = None
    """Its streams, once it has synchronized."""
    present: bool = False
    """The user was told that it joined, and not that it left."""
    lost: bool = False
    """The user was told that it is unreachable, and not that it is reachable again."""
    doubt: tuple[Synchronize, float] | None = None
    """A synchronize message that seems to be old, and since when it comes."""

    @property
    def known_to_user(self) -> bool:
        """Whether the user has heard of it."""
        return self.present or self.lost

    def enter(self, state: PeerState, now: float) -> None:
        self.state = state
        self.since = now

    def insists(self, message: Synchronize, now: float, patience_s: float) -> bool:
        """Whether `message`, which seems old, comes for too long to be a late duplicate."""
        if self.doubt is None or self.doubt[0] != message:
            self.doubt = message, now
        return now - self.doubt[1] >= patience_s


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Of a peer that left: it may ask again for acknowledgements that were lost."""

    incoming: Incoming
    until: float

    def covers(self, message: Message) -> bool:
        """Whether the peer sent `message` before it left, and we have got it."""
        match message:
            case Finalize():
                return self.incoming.age_of(message) is Age.SAME
            case OneToOne(sequence):
                return sequence <= self.incoming.one.position
            case Broadcast(sequence):
                return sequence <= self.incoming.broadcast.position
        return False
