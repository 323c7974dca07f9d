"""Log sync over Point-2-Point: logs of one to 14 entries, in pieces, forked and given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from culm.bamboo.effects import AppendEntries, FinishPayload
from culm.bymux.packets import PacketType
from culm.machine import Closed, Effect, Event
from culm.machines import call, lookup
from culm.point2point.replication import EntryStored, ForkFound
from culm.testing.registry import register
from culm.testing.spec import Attacks, Bounds, Comparison, MachineSpec, Scenario, Usage
from specs.point2point import RIGHT, TIGHT
from specs.point2point_hostile import BOMBS, LOGS, WORK

__all__ = ["REPLICATOR"]


def _confirms(effect: Effect[Any], packet: bytes) -> bool:
    """Messages about entries travel in Writes; credit and the ends of streams do not count."""
    return packet[0] >> 5 == PacketType.WRITE


def _kept(effect: Effect[Any] | Event) -> list[object]:
    """The entries that it writes, or the payload that it completes."""
    match effect:
        case AppendEntries(log=log, entries=entries):
            return [(log, new.entry.seqnum) for new in entries]
        case FinishPayload(log=log, seqnum=seqnum):
            return [(log, seqnum, "payload")]
        case _:
            return []


def _outcome(events: Sequence[Event]) -> object:
    """The stored entries and the end: the rest depends on messages that cross on the wire.

    So do the forks found before the earliest one.
    """
    stored = {(e.seqnum, e.payload_stored) for e in events if isinstance(e, EntryStored)}
    forks = [e.proof for e in events if isinstance(e, ForkFound)]
    ends = [e for e in events if isinstance(e, Closed)]
    return sorted(stored), min(forks, key=lambda proof: proof.seqnum, default=None), ends


REPLICATOR = register(
    MachineSpec(
        machine=lookup("point2point-replicator"),
        bounds=Bounds(
            retained_max=256_000,
            work=WORK,
            tight={
                **TIGHT,
                "unwritten_size_max": 8192,
                "batch_size_max": 4096,
                "batch_count_max": 8,
                "payload_inline_max": 1024,
                "logs_max": 8,
                "outstanding_max": 32,
            },
        ),
        usage=Usage(
            interruptions=(call("close"), call("stored")),
            scenarios=(
                Scenario(
                    name="one has all",
                    left={"entries": 0},
                    right={**RIGHT, "entries": 14},
                    script=(("left", call("close")),),
                ),
                Scenario(
                    name="one has all, and a driver that verifies",
                    left={"entries": 0, "verifying_max": 5},
                    right={**RIGHT, "entries": 14},
                    script=(("left", call("close")),),
                ),
                Scenario(
                    name="a fork, and drivers that verify",
                    left={"entries": 5, "verifying_max": 64},
                    right={**RIGHT, "entries": 9, "forked": True, "verifying_max": 64},
                    script=(("left", call("close")), ("right", call("close"))),
                ),
                Scenario(
                    name="payloads come in pieces, entries in small batches",
                    left={
                        "entries": 0,
                        "packet_size_max": 10,
                        "payload_inline_max": 16,
                        "batch_count_max": 3,
                    },
                    right={**RIGHT, "entries": 9},
                    script=(("left", call("close")),),
                ),
                Scenario(
                    name="another writer proves a fork while payloads come",
                    left={
                        "entries": 0,
                        "packet_size_max": 10,
                        "payload_inline_max": 16,
                        "proved_after": 12,
                    },
                    right={**RIGHT, "entries": 9},
                    script=(("left", call("stored")), ("left", call("close"))),
                ),
                Scenario(
                    name="one is ahead, and fetches nothing",
                    left={"entries": 9, "live": False},
                    right={**RIGHT, "entries": 4},
                    script=(("right", call("close")),),
                ),
                Scenario(
                    name="one entry with its certificate pools, then the payloads of others",
                    left={"entries": 0, "live": False, "following": False},
                    right={**RIGHT, "entries": 14},
                    script=(
                        ("left", call("replicate", first=10, last=10, sparse=True)),
                        ("left", call("replicate", first=4, last=4, payload_only=True)),
                        ("left", call("close")),
                    ),
                ),
                Scenario(
                    name="a fork",
                    left={"entries": 5},
                    right={**RIGHT, "entries": 9, "forked": True},
                    script=(("left", call("close")), ("right", call("close"))),
                ),
            ),
            growth=LOGS,
            bad_calls=(),
        ),
        attacks=Attacks(
            bombs=BOMBS,
        ),
        comparison=Comparison(
            lazy_output=True,
            normalise=_outcome,
            kept=_kept,
            confirms=_confirms,
            # Every message of a peer belongs to a request that both have agreed on.
            is_answer=lambda message: True,
        ),
    )
)
