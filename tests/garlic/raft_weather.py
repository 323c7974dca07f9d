"""The faults that a simulated cluster has to bear, and its settings; drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from culm.garlic.raft import Limits, Timing

ELECTION_TIMEOUT = 0.300


@dataclass
class Weather:
    """The severity of the faults; drawn once a seed."""

    loss: float
    duplication: float
    delay_max: float
    crash: float
    partition: float
    change: float
    transfer: float
    skew: float
    disk_delay_max: float
    pause: float
    leader_crash: float = 0.0  # at each message received by a leader
    write_crash: float = 0.0  # in the middle of each change of a disk
    joiner_crash: float = 0.0  # at each message received by a server that is being added
    forgets: bool = False  # a store tells an older commit index
    stall: float = 0.0  # a process is stopped for a while, and goes on

    @classmethod
    def draw(cls, rng: random.Random) -> Weather:
        def some(most: float) -> float:
            return rng.choice((0.0, most / 4, most))

        return cls(
            loss=some(0.2),
            duplication=some(0.2),
            delay_max=rng.choice((0.002, 0.02, 0.06)),
            crash=some(0.5),
            partition=some(0.5),
            change=rng.choice((0.0, 0.3, 0.8)),
            transfer=some(0.2),
            skew=some(0.2),
            disk_delay_max=rng.choice((0.0005, 0.005, 0.02)),
            pause=rng.choice((0.1, 0.1, 0.04)),
            leader_crash=rng.choice((0.0, 0.0, 0.05)),
            write_crash=rng.choice((0.0, 0.01, 0.05)),
            joiner_crash=rng.choice((0.0, 0.1, 0.4)),
            stall=some(0.3),
            forgets=rng.random() < 0.3,
        )


TIMING = Timing(
    election_timeout_min_s=ELECTION_TIMEOUT / 2,
    election_timeout_max_s=ELECTION_TIMEOUT,
    heartbeat_interval_s=0.05,
    request_timeout_s=0.08,
)


def draw_limits(rng: random.Random) -> Limits:
    limits = Limits(
        in_flight_max=rng.choice((1, 1, 4)),
        append_entries_max=rng.choice((1, 2, 100)),
        sync_gap=rng.choice((1, 3, 10)),
        attempts_max=4,
        chunk_size=rng.choice((7, 1000)),
        snapshot_distance=rng.choice((0, 5, 20)),
        trailing_entries=rng.choice((0, 3)),
        apply_entries_max=rng.choice((1, 1000)),
        writes_max=rng.choice((1, 1, 4)),
        term_step_max=rng.choice((4, 2**20)),
        snapshot_size_max=10_000,
    )
    if rng.random() < 0.15:  # the minimum of every resource
        limits = replace(
            limits,
            in_flight_max=1,
            append_entries_max=1,
            append_size_max=1,
            sync_gap=1,
            attempts_max=1,
            chunk_size=1,
            snapshot_distance=1,
            trailing_entries=1,
            proposals_max=1,
            reads_max=1,
            apply_entries_max=1,
            writes_max=1,
            term_step_max=1,
        )
    # The log is kept for no straggler, or only for those a little late.
    return replace(limits, catch_up_entries=limits.snapshot_distance * limits.trailing_entries)
