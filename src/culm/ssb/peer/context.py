"""The things that all links of a peer share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from culm.buffer import Queue
from culm.ssb import history
from culm.ssb.ebt import Replicator
from culm.ssb.history import EarlyRoom
from culm.ssb.muxrpc import CallType, Manifest
from culm.ssb.peer.events import LinkEvent
from culm.ssb.peer.frames import FrameVerifier
from culm.ssb.peer.limits import Limits, Settings, Timing
from culm.timers import LocalTime

#: The methods that a peer may call.
MANIFEST: Final = Manifest(
    {
        "manifest": CallType.ASYNC,
        "ebt.replicate": CallType.DUPLEX,
        "ebt.replicateFormat": CallType.DUPLEX,
        "gossip.ping": CallType.DUPLEX,
        "blobs.createWants": CallType.SOURCE,
        ".".join(history.METHOD): CallType.SOURCE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The replicator, the settings, limits and times, and the machine's time, for all links.

    verifier: has the signatures in frames verified by the driver; ``None``: we do.
    events: those of links, until the machine hands them out.
    sessions: the links of the replicator's sessions, by the numbers of both.
    """

    core: Replicator
    settings: Settings
    timing: Timing
    limits: Limits
    early_room: EarlyRoom
    time: LocalTime
    verifier: FrameVerifier | None
    events: Queue[LinkEvent] = field(default_factory=Queue[LinkEvent])
    sessions: dict[int, int] = field(default_factory=dict[int, int])
