"""One peer: the association with it, and the remains of a former one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from culm.oxen.incoming import DELIVERY_OF, RESTART_GAP, Age, Incoming
from culm.oxen.messages import Broadcast, Finalize, Message, OneToOne, Piece, Synchronize
from culm.oxen.missing import Waits
from culm.oxen.outgoing import Outgoing
from culm.oxen.proofs import AMPLIFICATION_MAX
from culm.oxen.states import PeerState


class ClaimState(Enum):
    """The state of the claim that a peer has restarted."""

    ASKED = "asked"
    """The peer was asked and has not answered."""
    REFUTED = "refuted"
    """It has answered for the present association."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that a peer has restarted: a synchronize message of no present association.

    until: deadline for an answer; no other claim is checked before then.
    credit: bytes that may still be sent to ask about it, paid for by the messages that claim it.
    asked: number of times that the peer was asked.
    """

    message: Synchronize
    until: float
    state: ClaimState
    credit: int
    asked: int = 0

    def is_repeated_by(self, message: Synchronize) -> bool:
        """Whether `message` makes the same claim, perhaps with another one-to-one number.

        A peer that waits for us in vain forgets us, and asks again with a new one.
        """
        return abs(message.broadcast - self.message.broadcast) < RESTART_GAP


@dataclass(slots=True)
class Peer:
    """This node's knowledge of another one.  Times are Unix seconds."""

    sid: bytes
    outgoing: Outgoing
    since: float
    """Time at which the present state began, or at which it or our user last asked for it."""
    met: float
    """Time at which it got its place, or was last taken for a stranger again."""
    wanted: bool = False
    """Whether the user asked it for help to join."""
    state: PeerState = PeerState.SYNCHRONIZING
    incoming: Incoming | None = None
    """Its streams, once it has synchronized."""
    present: bool = False
    """Whether the user counts it as joined, by the latest event about it."""
    lost: bool = False
    """Whether the user counts it as unreachable, by the latest event about it."""
    mute: bool = False
    """Whether it has long acknowledged nothing, so that only bytes that others pay for are sent."""
    claim: Claim | None = None
    """The claim, if any, that it has started anew."""
    waits: Waits = field(default_factory=Waits)
    """Its messages that have been missing for long."""
    began: float = -math.inf
    """Time at which it was last answered at once because it had started anew."""
    suspicion: int = 0
    """Number of times that others were asked to reach it since its last sign of life."""

    @property
    def known(self) -> int:
        """Its last known one-to-one number; 0 if it has told none."""
        return 0 if self.incoming is None else self.incoming.one.position

    @property
    def message_size_max(self) -> int:
        """Bytes of the largest message that it takes in pieces; 0 if none or unknown."""
        return 0 if self.incoming is None else self.incoming.message_size_max

    @property
    def tags(self) -> Mapping[str, str]:
        """Its tags, as far as we know."""
        return {} if self.incoming is None else self.incoming.tags

    def suspect(self) -> int:
        """Count a request to others to reach it; returns the number of earlier requests."""
        self.suspicion += 1
        return self.suspicion - 1

    def believe(self) -> None:
        """Note a recent sign of life."""
        self.suspicion = 0

    def fall_silent(self) -> None:
        """Until it shows itself, send it only as many bytes as others pay for."""
        self.mute = True

    def speak(self) -> None:
        """Note that it has acknowledged something, and so has shown itself."""
        self.mute = False

    @property
    def known_to_user(self) -> bool:
        """Whether the user has heard of it."""
        return self.present or self.lost

    @property
    def is_heard(self) -> bool:
        """Whether it has synchronized, or acknowledged our synchronize message."""
        return self.incoming is not None or not len(self.outgoing)

    def enter(self, state: PeerState, now: float) -> None:
        self.state = state
        self.since = now

    def give_up(self, now: float) -> None:
        """Expect nothing more of it, not even messages that it has announced."""
        self.believe()
        self.enter(PeerState.GIVEN_UP, now)
        if self.incoming is not None:
            self.incoming.stay()

    def ask(self, now: float) -> None:
        """Note that the user asks it for help to join, which gives it the full time to answer."""
        if not self.known_to_user:
            self.since = now
        self.wanted = True

    def wait_anew(self, since: float) -> None:
        """Let its time to join count from `since`: it was asked again, or has our numbers."""
        self.since = since

    def synchronize(self, incoming: Incoming) -> None:
        """Take over its numbers, after which its messages in order count."""
        self.incoming = incoming

    def start_anew(self, incoming: Incoming | None, now: float, pause_s: float) -> bool:
        """Take over its new numbers, if they are known, and synchronize with it once more.

        Returns whether at once, which is so after a pause: one that has no place for us forgets us,
        and answers each time with new numbers.
        """
        self.incoming = incoming
        self.trust()
        joins = self.state is PeerState.SYNCHRONIZING  # then its time for that goes on
        self.enter(PeerState.SYNCHRONIZING, self.since if joins else now)
        at_once = now - self.began >= pause_s
        if at_once:
            self.began = now
        return at_once

    def appear(self) -> bool:
        """Note that the user learns of its presence; returns whether it was unreachable before."""
        was_lost, self.present, self.lost = self.lost, True, False
        return was_lost

    def vanish(self) -> bool:
        """Note that the user learns that it is unreachable; returns whether that is news."""
        if self.lost:
            return False
        self.present, self.lost = False, True
        return True

    def leave(self, now: float) -> bool:
        """Note that it has left; returns whether the user has to be told."""
        was_present, self.present = self.present, False
        if was_present:
            self.met = now
        return was_present

    def trust(self) -> None:
        """Drop any claim that it has restarted: its messages fit the present association."""
        self.claim = None

    def doubt(self, message: Synchronize, until: float) -> None:
        """Note the claim in `message` that it has restarted; it has time to answer `until` then."""
        self.claim = Claim(message, until, ClaimState.ASKED, 0)

    def pay(self, size: int) -> None:
        """Credit `size` bytes of messages that claim that it has restarted."""
        if self.claim is not None:
            self.claim = replace(self.claim, credit=self.claim.credit + AMPLIFICATION_MAX * size)

    def may_be_asked(self, size: int) -> bool:
        """Whether it may be challenged now, with `size` bytes; if so, this counts.

        Only a peer that has not restarted can answer.  A silent peer may be asked without credit.
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
        """Note its answer, which refutes the claim that it has restarted."""
        if self.claim is not None:
            self.claim = replace(self.claim, state=ClaimState.REFUTED)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The remains of a peer that left: it may ask again for acknowledgements that were lost."""

    incoming: Incoming
    until: float

    def covers(self, message: Message) -> bool:
        """Whether the peer sent `message` before it left, and we have received it."""
        match message:
            case Finalize():
                return self.incoming.age_of(message) is Age.SAME
            case OneToOne(sequence):
                return sequence <= self.incoming.one.position
            case Broadcast(sequence):
                return sequence <= self.incoming.broadcast.position
            case Piece(kind, sequence):
                return sequence <= self.incoming.stream(DELIVERY_OF[kind]).position
            case _:
                return False
