"""Log sync over Bamboo Point-2-Point: ``point2point-replicator``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.store import MemoryStore
from culm.machine import Effect
from culm.machines import Codec, Config, Key, MachineType, keys_of, register
from culm.machines.encodings import BIG_ENDIAN, VARU64
from culm.machines.point2point import (
    CONNECTION_KEYS,
    LOG,
    LOG_KEY,
    OTHER_BRANCH,
    limits_of,
    setup_of,
    timing_of,
    unwrapped,
)
from culm.point2point.replication import Interest, Replicator, ReplicatorLimits, Timing, Want
from culm.wire.multihash import YAMF

_PROOF = ForkProof(LOG[14].entry, OTHER_BRANCH[14].entry)

_REPLICATOR_LIMITS = keys_of(ReplicatorLimits, without=["connection"])
_SETTLING = keys_of(Timing, without=[key.name for key in CONNECTION_KEYS])

_REPLICATOR_KEYS = (
    *CONNECTION_KEYS,
    *_REPLICATOR_LIMITS,
    *_SETTLING,
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
        meaning="Whether it fetches everything without a call of `replicate`.",
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
        timing=timing_of(config),
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
        return store.perform(effect)

    return respond


def _stored(machine: Replicator, log_id: int = 0) -> None:
    machine.stored(LogKey(LOG_KEY.author, log_id))


def _replicate(machine: Replicator, log_id: int = 0, **want: Any) -> None:
    machine.replicate(LogKey(LOG_KEY.author, log_id), Want(**want) if want else None)


REPLICATOR = register(
    MachineType(
        name="point2point-replicator",
        build=_build_replicator,
        keys=_REPLICATOR_KEYS,
        respond=_respond,
        verbs={"replicate": _replicate, "stored": _stored},
        codec=Codec(encodings=(VARU64, *BIG_ENDIAN), unwrapped=unwrapped),
    )
)
