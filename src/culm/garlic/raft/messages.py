"""The messages of the servers of a cluster, and of their clients.

These are the messages of the Raft paper's figures 2 and 13 and of JRaft's membership
changes, without any wire format.  `sequence` pairs a response with its request: the
response repeats it.  A transport that pairs them itself (one connection, answers in
order) need not carry it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from culm.garlic.raft.model import Configuration, Entry, Server, Snapshot


class Extension(StrEnum):
    """Extensions that JRaft does not have, by their names in the handshake."""

    PRE_VOTE = "pre-vote"
    READ_INDEX = "read-index"
    FORWARD = "forward"
    LEARNERS = "learners"  # no message: a configuration may have some


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`term` is the sender's current term (0 from a client)."""

    source: int
    destination: int
    term: int
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftRequest(Message):
    """A request; each one that reaches a running core is answered once, or its answer withdrawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftResponse(Message):
    """A response.  `next_index` is the entry that the sender wants next (see each kind)."""

    next_index: int
    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(RaftRequest):
    """RequestVote.  `transfer`: the leader itself asked for this election."""

    last_log_index: int
    last_log_term: int
    transfer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(RaftResponse):
    """`next_index` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteRequest(RaftRequest):
    """PreVote (thesis, 9.6): whether a vote would be given in the term after `term`."""

    last_log_index: int
    last_log_term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreVoteResponse(RaftResponse):
    """`next_index` is 0.  Accepted: `term` is that of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest(RaftRequest):
    """AppendEntries: `entries` follow the one at `previous_index`; none: heartbeat."""

    previous_index: int
    previous_term: int
    commit_index: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResponse(RaftResponse):
    """Accepted: the logs agree below `next_index`.  Refused: try from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest(RaftRequest):
    """InstallSnapshot: bytes of the snapshot from `offset` on; `done` with the last."""

    snapshot: Snapshot
    offset: int
    data: bytes
    done: bool
    commit_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResponse(RaftResponse):
    """`next_index` is the byte offset that is wanted next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest(RaftRequest):
    """Invitation to join, with the configuration as it is."""

    configuration: Configuration
    last_log_index: int
    commit_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResponse(RaftResponse):
    """`next_index` is the joiner's log end + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest(RaftRequest):
    """Entries for a joiner, which follow the one at `previous_index`."""

    previous_index: int
    commit_index: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResponse(RaftResponse):
    """`next_index` is the entry that the joiner wants next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest(RaftRequest):
    """Command to leave, sent before the configuration without the server is appended."""

    last_log_index: int
    commit_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveResponse(RaftResponse):
    """`next_index` is the leaver's log end + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest(RaftRequest):
    """The leader hands over: stand for election now (thesis, section 3.10: TimeoutNow)."""

    last_log_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResponse(RaftResponse):
    """`next_index` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexRequest(RaftRequest):
    """A follower asks for the index that must be applied for a read (thesis, 6.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexResponse(RaftResponse):
    """Accepted: a state machine that has all entries below `next_index` may be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest(RaftRequest):
    """Values to append that were given to a follower.

    It may be lost, but must not be duplicated on its way: each copy would be appended.
    """

    values: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardResponse(RaftResponse):
    """Accepted: the leader has appended them in `term`, the last one before `next_index`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest(RaftRequest):
    """Values to append."""

    values: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResponse(RaftResponse):
    """Accepted: appended, not yet committed; `destination` is the believed leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddServerRequest(RaftRequest):
    """Add `server` to the cluster."""

    server: Server


@dataclass(frozen=True, slots=True, kw_only=True)
class AddServerResponse(RaftResponse):
    """Accepted: started; `destination` is the believed leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveServerRequest(RaftRequest):
    """Remove the server of that id from the cluster."""

    server_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveServerResponse(RaftResponse):
    """Accepted: started; `destination` is the believed leader."""


RESPONSE_OF: dict[type[RaftRequest], type[RaftResponse]] = {
    VoteRequest: VoteResponse,
    PreVoteRequest: PreVoteResponse,
    AppendRequest: AppendResponse,
    SnapshotRequest: SnapshotResponse,
    JoinRequest: JoinResponse,
    SyncRequest: SyncResponse,
    LeaveRequest: LeaveResponse,
    TransferRequest: TransferResponse,
    ReadIndexRequest: ReadIndexResponse,
    ForwardRequest: ForwardResponse,
    ClientRequest: ClientResponse,
    AddServerRequest: AddServerResponse,
    RemoveServerRequest: RemoveServerResponse,
}

# Requests that are sent only to peers with an extension.
EXTENSION_OF: dict[type[RaftRequest], Extension] = {
    PreVoteRequest: Extension.PRE_VOTE,
    ReadIndexRequest: Extension.READ_INDEX,
    ForwardRequest: Extension.FORWARD,
}

# Requests that only a leader sends.
LEADER_REQUESTS: frozenset[type[RaftRequest]] = frozenset(
    (AppendRequest, SnapshotRequest, JoinRequest, SyncRequest, LeaveRequest, TransferRequest)
)

# Requests from outside of the cluster, whose terms mean nothing.
CLIENT_REQUESTS: frozenset[type[RaftRequest]] = frozenset(
    (ClientRequest, AddServerRequest, RemoveServerRequest)
)
