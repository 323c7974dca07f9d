"""The parts of a replicated log: entries, configurations, snapshots, durable state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from culm.arguments import check_int, check_text, check_type

_SERVER_ID_MAX = 0xFFFF_FFFF


def check_server_id(server_id: int) -> None:
    """`server_id` is an int of 32 bits: an equal number of another type fits no frame."""
    check_int("server id", server_id, 0, _SERVER_ID_MAX)


@dataclass(frozen=True, slots=True)
class Server:
    """A member of a cluster: its id (32 bits) and where to reach it.

    voter: whether it votes and counts for majorities; a learner is only replicated to.

    Raises `ValueError` for an id out of range, `TypeError` for wrong types.
    """

    server_id: int
    endpoint: str
    voter: bool = True

    def __post_init__(self) -> None:
        check_server_id(self.server_id)
        check_text("endpoint", self.endpoint)
        check_type("voter", self.voter, bool)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a cluster, and the place of this configuration in the log.

    `log_index` is the index of the entry that holds it, `last_log_index` that of the
    configuration before it; both 0 for the one that a cluster is founded with.
    """

    log_index: int = 0
    last_log_index: int = 0
    servers: tuple[Server, ...] = ()

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(server.server_id for server in self.servers)

    @property
    def voters(self) -> frozenset[int]:
        """The ids of the members that are not learners."""
        return frozenset(server.server_id for server in self.servers if server.voter)

    def find(self, server_id: int) -> Server | None:
        return next((server for server in self.servers if server.server_id == server_id), None)


class Entry(NamedTuple):
    """One log entry: the term of the leader that made it, and its content.

    `data` is either opaque bytes for the state machine, or a configuration.
    """

    term: int
    data: bytes | Configuration


# For making entries by the thousand: `Entry` itself takes several times as long.
_tuple: type[tuple[int, bytes | Configuration]] = tuple
new_entry: Callable[[type[Entry], tuple[int, bytes | Configuration]], Entry] = _tuple.__new__


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Stands for all entries up to `index`; `configuration` is that of `index`."""

    index: int = 0
    term: int = 0
    configuration: Configuration = field(default_factory=Configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """A leader's knowledge of a server that it serves.

    server_id: the server.
    doing: how it is served: ``probe``, ``search``, ``replicate`` or ``snapshot``; of a server that
        is being added, promoted or removed ``joining``, ``installing``, ``syncing``,
        ``promoting``, ``leaving`` or ``committing``.
    match_index: its log is known to agree up to there, durably; 0 while nothing is known.
    next_index: the entry that it is sent next.
    in_flight: the number of its unanswered requests.
    heard_at: when it was last heard, on the clock of `advance`; before that, when serving began.
    snapshot_index, snapshot_offset: the snapshot that is being sent, ``None`` if none is, and the
        number of its bytes that have arrived.
    """

    server_id: int
    doing: str
    match_index: int
    next_index: int
    in_flight: int
    heard_at: float
    snapshot_index: int | None
    snapshot_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The content of a store, from which a node starts.

    A founding member starts from `founding`, which names all founders; a server that will be added
    later starts from ``Stored()``.  `entries` are those from `first_index` on; `applied_index` is
    that of the state machine itself (0 if it starts from the snapshot).
    """

    term: int = 0
    voted_for: int | None = None
    commit_index: int = 0
    applied_index: int = 0
    snapshot: Snapshot = field(default_factory=Snapshot)
    first_index: int = 1
    entries: Sequence[Entry] = ()

    @classmethod
    def founding(cls, servers: Iterable[Server]) -> Stored:
        """The start of each founder of a cluster: the first configuration.

        That is a snapshot of index 0; all founders have to name the same servers.
        """
        return cls(snapshot=Snapshot(configuration=Configuration(servers=tuple(servers))))
