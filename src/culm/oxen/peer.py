"""One peer: the association with it, and what remains when that is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from culm.oxen.incoming import RESTART_GAP, Age, Incoming
from culm.oxen.messages import Broadcast, Finalize, Message, OneToOne, Piece, Synchronize
from culm.oxen.outgoing import Outgoing
from culm.oxen.proofs import AMPLIFICATION_MAX
from culm.oxen.states import PeerState

__all__ = ["ClaimState", "Peer", "Tombstone"]


class ClaimState(Enum):
    """What is known of the claim that a peer has restarted."""

    ASKED = "asked"
    """The peer was asked and has not answered."""
    REFUTED = "refuted"
    """It has answered for the association that there is."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A synchronize message that does not belong to the present association.

    until: how long to wait for an answer; nothing else is asked before that.
    credit: bytes that may still be sent to ask about it, which those who say it have paid for.
    asked: how often the peer was asked.
    """

    message: Synchronize
    until: float
    state: ClaimState
    credit: int
    asked: int = 0

    def is_repeated_by(self, message: Synchronize) -> bool:
        """Whether that says the same: perhaps with other one-to-one numbers, but of the same life.

        A peer that waits for us in vain forgets us, and asks again with new ones.
        """
        return abs(message.broadcast - self.message.broadcast) < RESTART_GAP


@dataclass(slots=True)
class Peer:
    """What this node knows of another one.  Times are Unix seconds."""

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
    mute: bool = False
    """It has acknowledged nothing for long, and has to, before more is sent than others pay for."""
    claim: Claim | None = None
    """Somebody says that it has started anew."""
    suspicion: int = 0
    """How often others were asked to reach it since there was a sign of it."""

    @property
    def known(self) -> int:
        """Its last one-to-one number that we know; 0 if it has told none."""
        return 0 if self.incoming is None else self.incoming.one.position

    @property
    def message_size_max(self) -> int:
        """Bytes of the largest message that it takes in pieces; 0 if none, as far as we know."""
        return 0 if self.incoming is None else self.incoming.message_size_max

    @property
    def tags(self) -> Mapping[str, str]:
        """Its tags, as far as we know."""
        return {} if self.incoming is None else self.incoming.tags

    def suspect(self) -> int:
        """It is silent, and others are asked to reach it; returns how often they were before."""
        self.suspicion += 1
        return self.suspicion - 1

    def believe(self) -> None:
        """It has lately given a sign of life."""
        self.suspicion = 0

    def fall_silent(self) -> None:
        """It has to show itself before more is sent than others pay for."""
        self.mute = True

    def speak(self) -> None:
        """It has acknowledged something."""
        self.mute = False

    @property
    def known_to_user(self) -> bool:
        """Whether the user has heard of it."""
        return self.present or self.lost

    def enter(self, state: PeerState, now: float) -> None:
        self.state = state
        self.since = now

    def give_up(self, now: float) -> None:
        """Nothing is expected of it, not even what it has announced."""
        self.believe()
        self.enter(PeerState.GIVEN_UP, now)
        if self.incoming is not None:
            self.incoming.stay()

    def ask(self, now: float) -> None:
        """The user asks it for help to join; it has the full time to answer."""
        if not self.known_to_user:
            self.since = now
        self.wanted = True

    def ask_again(self, since: float) -> None:
        """It did not answer, and is asked once more, as if for the first time at `since`."""
        self.since = since

    def heard(self, now: float) -> None:
        """It has asked for our present numbers, and counts us as a peer for so long from now."""
        self.since = now

    def synchronize(self, incoming: Incoming) -> None:
        """It has told its numbers: what it sends in order counts from there."""
        self.incoming = incoming

    def start_anew(self, incoming: Incoming, now: float) -> None:
        """It has told new numbers, and has to be synchronized with once more."""
        self.incoming = incoming
        self.trust()
        self.enter(PeerState.SYNCHRONIZING, now)

    def appear(self) -> bool:
        """The user is told that it is there; returns whether it had been told to be unreachable."""
        was_lost, self.present, self.lost = self.lost, True, False
        return was_lost

    def vanish(self) -> bool:
        """The user is told that it is unreachable; returns whether that is news."""
        if self.lost:
            return False
        self.present, self.lost = False, True
        return True

    def leave(self) -> bool:
        """The user is told that it has left, if it was told that it is there."""
        was_present, self.present = self.present, False
        return was_present

    def trust(self) -> None:
        """What it sends fits what it sent before: it need not be asked."""
        self.claim = None

    def doubt(self, message: Synchronize, until: float) -> None:
        """Somebody says in `message` that it has restarted: it is asked, until then."""
        self.claim = Claim(message, until, ClaimState.ASKED, 0)

    def pay(self, size: int) -> None:
        """So many bytes have said that it has restarted."""
        if self.claim is not None:
            self.claim = replace(self.claim, credit=self.claim.credit + AMPLIFICATION_MAX * size)

    def may_be_asked(self, size: int) -> bool:
        """Whether it may be asked, in so many bytes, what only one that lives on can answer.

        That counts.  Its silence is a reason to ask that nobody has to pay for.
        """
        claim = self.claim
        if claim is None:
            return True
        left = claim.credit - size
        if left < 0 and not self.suspicion:
            return False
        self.claim = replace(claim, credit=max(0, left), asked=claim.asked + 1)
        return True

    def answer(self) -> None:
        """It has answered, which it can only if it has not restarted."""
        if self.claim is not None:
            self.claim = replace(self.claim, state=ClaimState.REFUTED)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is kept of a peer that left: it may ask again for acknowledgements that were lost."""

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
            case Piece(kind, sequence):
                stream = self.incoming.one if kind == b"1" else self.incoming.broadcast
                return sequence <= stream.position
            case _:
                return False
