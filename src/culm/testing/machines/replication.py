"""Log sync over Bamboo Point-2-Point: ``point2point-replicator``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from culm.bamboo.effects import AppendEntries, FinishPayload, perform
from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.store import MemoryStore
from culm.machine import Closed, Effect, Event
from culm.point2point.replication import (
    EntryStored,
    ForkFound,
    Interest,
    Replicator,
    ReplicatorLimits,
    Want,
)
from culm.testing.encodings import BIG_ENDIAN, VARU64
from culm.testing.machines import Config, Key, MachineSpec, Scenario, call, keys_of, register
from culm.testing.machines.point2point import (
    CONNECTION_KEYS,
    LOG,
    LOG_KEY,
    OTHER_BRANCH,
    RIGHT,
    TIGHT,
    limits_of,
    setup_of,
)
from culm.testing.point2point_hostile import BOMBS, LOGS, WORK, unwrapped
from culm.wire.multihash import YAMF

__all__ = ["REPLICATOR"]

_PROOF = ForkProof(LOG[14].entry, OTHER_BRANCH[14].entry)
_REPLICATOR_LIMITS = keys_of(ReplicatorLimits, without=["connection"])
_REPLICATOR_KEYS = (
    *CONNECTION_KEYS,
    *_REPLICATOR_LIMITS,
    Key(
        name="live",
        type=bool,
        default=True,
        meaning="Whether it keeps logs up to date for as long as the connection lasts.",
    ),
    Key(
        name="accept_new_logs",
        type=bool,
        default=True,
        meaning="Whether it takes logs that its store does not have.",
    ),
    Key(
        name="following",
        type=bool,
        default=True,
        meaning="Whether it fetches what there is without a call of `replicate`.",
    ),
    Key(
        name="entries",
        type=int,
        default=0,
        meaning="How many entries of the log its own store has, which answers if it is asked to.",
    ),
    Key(
        name="forked",
        type=bool,
        default=False,
        meaning="Whether these entries are of another branch of the log.",
    ),
    Key(
        name="proved_after",
        type=int,
        default=0,
        meaning="After how many answers another writer proves to its store that the log is "
        "forked, at its last entry; 0: never.",
    ),
)


def _build_replicator(config: Config) -> Replicator:
    limits = {key.name: config[key.name] for key in _REPLICATOR_LIMITS}
    return Replicator(
        role=config["role"],
        setup=setup_of(config),
        limits=ReplicatorLimits(connection=limits_of(config), **limits),
        interest=Interest(
            live=config["live"],
            accept_new_logs=config["accept_new_logs"],
            want=Want() if config["following"] else None,
        ),
    )


def _respond(config: Config) -> Callable[[Effect[Any]], object]:
    store = MemoryStore(family=YAMF)
    log = OTHER_BRANCH if config["forked"] else LOG
    store.append(LOG_KEY, [log[n] for n in range(1, config["entries"] + 1)])
    answers = count(1)

    def respond(effect: Effect[Any]) -> object:
        if next(answers) == config["proved_after"]:
            store.add_fork(LOG_KEY, _PROOF)
        return perform(effect, store)

    return respond


def _stored(machine: Replicator, log_id: int = 0) -> None:
    machine.stored(LogKey(LOG_KEY.author, log_id))


def _replicate(machine: Replicator, log_id: int = 0, **want: Any) -> None:
    machine.replicate(LogKey(LOG_KEY.author, log_id), Want(**want) if want else None)


def _kept(effect: Effect[Any]) -> list[object]:
    """The entries that it writes, or the payload that is whole with it."""
    match effect:
        case AppendEntries(log=log, entries=entries):
            return [(log, new.entry.seqnum) for new in entries]
        case FinishPayload(log=log, seqnum=seqnum):
            return [(log, seqnum, "payload")]
        case _:
            return []


def _outcome(events: Sequence[Event]) -> object:
    """What was stored and how it ended: the rest depends on what crosses on the wire.

    So does which forks were found before the earliest one.
    """
    stored = {(e.seqnum, e.payload_stored) for e in events if isinstance(e, EntryStored)}
    forks = [e.proof for e in events if isinstance(e, ForkFound)]
    ends = [e for e in events if isinstance(e, Closed)]
    return sorted(stored), min(forks, key=lambda proof: proof.seqnum, default=None), ends


REPLICATOR = register(
    MachineSpec(
        name="point2point-replicator",
        build=_build_replicator,
        retained_max=256_000,
        work=WORK,
        keys=_REPLICATOR_KEYS,
        tight={
            **TIGHT,
            "unwritten_size_max": 8192,
            "batch_size_max": 4096,
            "batch_count_max": 8,
            "payload_inline_max": 1024,
            "logs_max": 8,
            "outstanding_max": 32,
        },
        lazy_output=True,
        normalise=_outcome,
        respond=_respond,
        kept=_kept,
        verbs={"replicate": _replicate, "stored": _stored},
        interruptions=(call("close"), call("stored")),
        scenarios=(
            Scenario(
                name="one has all",
                left={"entries": 0},
                right={**RIGHT, "entries": 14},
                script=(("left", call("close")),),
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
        encodings=(VARU64, *BIG_ENDIAN),
        unwrapped=unwrapped,
        bombs=BOMBS,
        growth=LOGS,
        bad_calls=(),
    )
)
