"""The waiting times of a Raft core, and bounds on amounts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from culm.arguments import check_int, check_numbers
from culm.garlic.raft.model import Server

# With 0 for one of these nothing is ever sent, applied or let in.
_NEVER_0 = ("append_entries_max", "apply_entries_max", "chunk_size", "sync_gap")

# With less a deadline could be due again as soon as it is met.
_SHORTEST_S = 1e-6

# Bytes of a server in a configuration: beside its endpoint, and added to a learner's endpoint
_SERVER_SIZE, _LEARNER_SIZE = 16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times in seconds.  The defaults are JRaft's.

    Raises `ValueError` for one below 0, for a longest election timeout or a heartbeat interval
    below a microsecond, and if the shortest election timeout is longer than the longest.

    election_timeout_min_s, election_timeout_max_s
        A follower that hears no leader for a time drawn from this range stands for election (paper,
        5.2 and 5.6: well above the time of a broadcast).  Within the minimum of hearing the leader
        it disregards other candidates (section 6).
    heartbeat_interval_s
        The interval at which an idle leader sends heartbeats.
    request_timeout_s
        The wait after which a leader repeats an unanswered request.
    change_timeout_s
        The wait after which a server that is being added, and makes no progress, is given up.
    """

    election_timeout_min_s: float = 0.150
    election_timeout_max_s: float = 0.300
    heartbeat_interval_s: float = 0.075
    request_timeout_s: float = 0.150
    change_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in ("election_timeout_max_s", "heartbeat_interval_s"):
            if getattr(self, name) < _SHORTEST_S:
                raise ValueError(f"{name} must be at least {_SHORTEST_S}")
        if self.election_timeout_min_s > self.election_timeout_max_s:
            raise ValueError("election_timeout_min_s must be at most election_timeout_max_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on amounts, at a time and in all.  The defaults are JRaft's, where it has one.

    Raises `ValueError` for one below 0, and for a 0 with which nothing would ever be done.

    in_flight_max
        Requests to one peer that may be unanswered; 1 as in JRaft.
    append_entries_max, append_size_max
        Entries, and bytes of values, in one append or sync request (one entry is sent
        whatever its size).
    sync_gap
        A joiner that lacks fewer entries than this becomes a member.
    attempts_max
        Unanswered requests to a server that joins or leaves, before the leader gives up, or
        continues without the answer; also invitations of a joiner that keeps restarting.
    chunk_size
        Bytes of a snapshot in one request.
    chunk_size_max
        The limit up to which chunks double, each time that a newer snapshot replaces the one on its
        way to a peer, which might otherwise never receive a whole one.
    snapshot_distance
        Applied entries after which a snapshot is taken; 0: never.
    trailing_entries
        Entries before a snapshot that are kept for slow followers.
    catch_up_entries
        The most entries that a leader keeps for followers that answer but lag further behind.
        While such a follower is being sent a snapshot, the next one is put off until it would stand
        for this many entries.
    proposals_max, proposal_size_max
        Entries, and bytes of values, that a leader holds uncommitted before it refuses more.
    writes_max
        `Persist` effects that may be under way; above 1 only for stores that do them in order, and
        none after one that has failed.
    apply_entries_max
        Entries of one `Apply`.
    reads_max
        Reads that may wait for a quorum.
    snapshot_size_max
        Bytes of a snapshot that is taken from a leader; a longer one is refused (`PeerFault`).
    term_step_max
        The words of others raise the term by this at most in each longest election timeout, or by a
        little more than the elections for which a server may stand in that time.  With the
        defaults 63 bits last for 80,000 years of lies, and a server that was cut off, and stood for
        election seven times a second, is caught up with at once after a day.
    servers_max
        Servers of one configuration.
    endpoint_size_max
        Bytes of one server's endpoint.
    configuration_size_max
        Bytes of all endpoints of one configuration, and 16 for each of its servers.
    """

    in_flight_max: int = 1
    append_entries_max: int = 1000
    append_size_max: int = 1024 * 1024
    sync_gap: int = 100
    attempts_max: int = 20
    chunk_size: int = 4096
    chunk_size_max: int = 1024 * 1024
    snapshot_distance: int = 100_000
    trailing_entries: int = 10_000
    catch_up_entries: int = 400_000
    proposals_max: int = 100_000
    proposal_size_max: int = 64 * 1024 * 1024
    writes_max: int = 1
    apply_entries_max: int = 10_000
    reads_max: int = 10_000
    snapshot_size_max: int = 1 << 34
    term_step_max: int = 2**20
    servers_max: int = 1024
    endpoint_size_max: int = 1024
    configuration_size_max: int = 2 * 1024 * 1024

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in _NEVER_0:
            check_int(name, getattr(self, name), 1)

    def admit(self, servers: Collection[Server]) -> bool:
        """Whether these may be the servers of one configuration."""
        if len(servers) > self.servers_max:
            return False
        size = 0
        for server in servers:
            if len(server.endpoint) + (not server.voter) * _LEARNER_SIZE > self.endpoint_size_max:
                return False
            size += len(server.endpoint) + _SERVER_SIZE
        return size <= self.configuration_size_max
