"""Between the core's messages and the wire's frames.

Two of the core's messages have no frame of their own, and are written as frames that JRaft
understands without harm:

* A transfer of leadership is a RequestVoteRequest of the leader in its own term.  No
  candidate ever sends that: its last log term is below its term.
* The vote request of a candidate that was asked in this way has commit index 1, any other 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, TypedDict

from culm.garlic.errors import ErrorCode
from culm.garlic.limits import Limits
from culm.garlic.messages import RESPONSE_OF, MessageType, RequestFrame, ResponseFrame
from culm.garlic.raft import Limits as RaftLimits
from culm.garlic.raft import messages as m
from culm.garlic.values import (
    LogEntry,
    LogPack,
    SnapshotSyncRequest,
    ValueType,
    decode_configuration,
    decode_entries,
    decode_log,
    decode_server,
    decode_server_id,
    encode_configuration,
    encode_entries,
    encode_log,
    encode_server,
    encode_server_id,
    packed,
    replicated,
)
from culm.machine import RemoteProtocolError

# Bytes of an entry beside its value, in a pack that cannot be compressed
_ENTRY_SIZE = 32

# Bytes around the servers of a configuration in a snapshot's chunk, beside the chunk's data
_CHUNK_SIZE = 62


_ID_MASK = 0xFFFF_FFFF

_TYPE_OF: dict[type[m.RaftRequest], MessageType] = {
    m.VoteRequest: MessageType.REQUEST_VOTE_REQUEST,
    m.PreVoteRequest: MessageType.PRE_VOTE_REQUEST,
    m.TransferRequest: MessageType.REQUEST_VOTE_REQUEST,
    m.ReadIndexRequest: MessageType.READ_INDEX_REQUEST,
    m.ForwardRequest: MessageType.FORWARD_REQUEST,
    m.AppendRequest: MessageType.APPEND_ENTRIES_REQUEST,
    m.ClientRequest: MessageType.CLIENT_REQUEST,
    m.AddServerRequest: MessageType.ADD_SERVER_REQUEST,
    m.RemoveServerRequest: MessageType.REMOVE_SERVER_REQUEST,
    m.SyncRequest: MessageType.SYNC_LOG_REQUEST,
    m.JoinRequest: MessageType.JOIN_CLUSTER_REQUEST,
    m.LeaveRequest: MessageType.LEAVE_CLUSTER_REQUEST,
    m.SnapshotRequest: MessageType.INSTALL_SNAPSHOT_REQUEST,
}

_RESPONSE_TYPE: dict[type[m.RaftResponse], MessageType] = {
    m.RESPONSE_OF[kind]: RESPONSE_OF[number] for kind, number in _TYPE_OF.items()
}


def value_size_max(limits: Limits) -> int:
    """The longest value that fits every frame that has to carry it, with everything around it."""
    return min(limits.log_size_max, limits.inflated_size_max) // 2


def fitting(limits: Limits) -> RaftLimits:
    """The core's limits, lowered so that every request fits the frames of the other servers."""
    room = value_size_max(limits)
    entries_max = max(1, min(limits.entries_max, room // (2 * _ENTRY_SIZE)))
    return replace(
        limits.raft,
        append_entries_max=min(limits.raft.append_entries_max, entries_max),
        append_size_max=min(limits.raft.append_size_max, room),
        chunk_size=max(1, min(limits.raft.chunk_size, room)),
        chunk_size_max=min(limits.raft.chunk_size_max, room),
        servers_max=min(limits.raft.servers_max, limits.servers_max),
        endpoint_size_max=min(limits.raft.endpoint_size_max, limits.endpoint_size_max),
        configuration_size_max=min(limits.raft.configuration_size_max, max(0, room - _CHUNK_SIZE)),
    )


class _Common(TypedDict):
    """The fields that all requests of the core have."""

    source: int
    destination: int
    term: int
    sequence: int


class Translator:
    """Translates with limits; remembers the last log it encoded, for the next peer."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._last_key: tuple[int, int, int] | None = None
        self._last_log = b""
        # Of the last pack: destination and term, and the offsets of its beginning and its end
        self._pack: tuple[tuple[int, int], dict[int, int]] = ((0, 0), {})

    # From the core to the wire

    def encode_request(self, message: m.RaftRequest) -> RequestFrame:
        """The frame of a request of the core."""
        last_log_term, last_log_index, commit_index, log = self._fields(message)
        return RequestFrame(
            type=_TYPE_OF[type(message)],
            source=message.source,
            destination=message.destination,
            term=message.term,
            last_log_term=last_log_term,
            last_log_index=last_log_index,
            commit_index=commit_index,
            log=log,
        )

    def encode_response(self, message: m.RaftResponse) -> ResponseFrame:
        """The frame of a response of the core."""
        return ResponseFrame(
            type=_RESPONSE_TYPE[type(message)],
            source=message.source,
            destination=message.destination & _ID_MASK,
            term=message.term,
            next_index=message.next_index,
            accepted=message.accepted,
        )

    def _fields(self, message: m.RaftRequest) -> tuple[int, int, int, bytes]:
        """Last log term, last log index, commit index, log."""
        term = message.term
        match message:
            case m.AppendRequest():
                log = self._encode_log(message)
                return message.previous_term, message.previous_index, message.commit_index, log
            case m.VoteRequest():
                transfer = 1 if message.transfer else 0
                return message.last_log_term, message.last_log_index, transfer, b""
            case m.PreVoteRequest():
                return message.last_log_term, message.last_log_index, 0, b""
            case m.TransferRequest():
                return term, message.last_log_index, 0, b""
            case m.ReadIndexRequest():
                return 0, 0, 0, b""
            case m.SyncRequest():
                log = _single(term, ValueType.LOG_PACK, self._encode_pack(message))
                return 0, message.previous_index, message.commit_index, log
            case m.SnapshotRequest():
                chunk = SnapshotSyncRequest(
                    snapshot=message.snapshot,
                    offset=message.offset,
                    data=message.data,
                    done=message.done,
                ).encode()
                log = _single(term, ValueType.SNAPSHOT_SYNC_REQUEST, chunk)
                snapshot = message.snapshot
                return snapshot.term, snapshot.index, message.commit_index, log
            case m.JoinRequest():
                value = encode_configuration(message.configuration)
                log = _single(term, ValueType.CONFIGURATION, value)
                return 0, message.last_log_index, message.commit_index, log
            case m.LeaveRequest():
                return 0, message.last_log_index, message.commit_index, b""
            case m.ClientRequest() | m.ForwardRequest():
                values = [LogEntry(0, ValueType.APPLICATION, value) for value in message.values]
                return 0, 0, 0, encode_entries(values)
            case m.AddServerRequest():
                server = encode_server(message.server)
                return 0, 0, 0, _single(0, ValueType.CLUSTER_SERVER, server)
            case m.RemoveServerRequest():
                server_id = encode_server_id(message.server_id)
                return 0, 0, 0, _single(0, ValueType.CLUSTER_SERVER, server_id)
            case _:
                raise AssertionError(message)

    def _encode_log(self, message: m.AppendRequest) -> bytes:
        if not message.entries:
            return b""
        # A term has one leader, which tells all the same about the same place.
        key = (message.term, message.previous_index, len(message.entries))
        if key != self._last_key:
            self._last_key, self._last_log = key, encode_log(message.entries)
        return self._last_log

    def _encode_pack(self, message: m.SyncRequest) -> bytes:
        """A pack whose offsets continue where the one before it ended.

        JRaft writes the offsets of a pack into its own index as they are, so they count
        from the first entry that the joiner is given (or that follows its snapshot).
        """
        key, offsets = self._pack
        if key != (message.destination, message.term):
            key, offsets = (message.destination, message.term), {}
        start = offsets.get(message.previous_index, 0)
        pack = LogPack([packed(entry) for entry in message.entries], start)
        end = message.previous_index + len(pack.entries)
        self._pack = (key, {message.previous_index: start, end: start + pack.size})
        return pack.encode()

    # From the wire to the core

    def decode_request(self, request: RequestFrame, sequence: int) -> m.RaftRequest:
        """The core's request of a frame; raises `RemoteProtocolError`."""
        common: _Common = {
            "source": request.source,
            "destination": request.destination,
            "term": request.term,
            "sequence": sequence,
        }
        return self._DECODERS[request.type](self, request, common)

    def decode_response(self, asked: m.RaftRequest, response: ResponseFrame) -> m.RaftResponse:
        """The core's response to its own request `asked`."""
        return m.RESPONSE_OF[type(asked)](
            source=response.source,
            destination=response.destination,
            term=response.term,
            sequence=asked.sequence,
            next_index=response.next_index,
            accepted=response.accepted,
        )

    def _one(self, request: RequestFrame, kind: ValueType) -> bytes:
        """The value of the only entry, which must be of that type."""
        entries = decode_entries(request.log, self._limits)
        if len(entries) != 1 or entries[0].type is not kind:
            raise _wrong(request, f"one {kind.name} is wanted")
        return entries[0].value

    def _none(self, request: RequestFrame) -> None:
        if request.log:
            raise _wrong(request, "no entries are wanted")

    def _vote(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        self._none(request)
        if request.term and request.last_log_term == request.term:
            return m.TransferRequest(**common, last_log_index=request.last_log_index)
        return m.VoteRequest(
            **common,
            last_log_index=request.last_log_index,
            last_log_term=request.last_log_term,
            transfer=request.commit_index == 1,
        )

    def _pre_vote(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        self._none(request)
        return m.PreVoteRequest(
            **common, last_log_index=request.last_log_index, last_log_term=request.last_log_term
        )

    def _read_index(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        self._none(request)
        return m.ReadIndexRequest(**common)

    def _append(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        return m.AppendRequest(
            **common,
            previous_index=request.last_log_index,
            previous_term=request.last_log_term,
            commit_index=request.commit_index,
            entries=decode_log(request.log, self._limits),
        )

    def _sync(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        pack = LogPack.decode(self._one(request, ValueType.LOG_PACK), self._limits)
        return m.SyncRequest(
            **common,
            previous_index=request.last_log_index,
            commit_index=request.commit_index,
            entries=[replicated(entry, self._limits) for entry in pack.entries],
        )

    def _snapshot(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        value = self._one(request, ValueType.SNAPSHOT_SYNC_REQUEST)
        chunk = SnapshotSyncRequest.decode(value, self._limits)
        return m.SnapshotRequest(
            **common,
            snapshot=chunk.snapshot,
            offset=chunk.offset,
            data=chunk.data,
            done=chunk.done,
            commit_index=request.commit_index,
        )

    def _join(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        value = self._one(request, ValueType.CONFIGURATION)
        return m.JoinRequest(
            **common,
            configuration=decode_configuration(value, self._limits),
            last_log_index=request.last_log_index,
            commit_index=request.commit_index,
        )

    def _leave(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        self._none(request)
        return m.LeaveRequest(
            **common, last_log_index=request.last_log_index, commit_index=request.commit_index
        )

    def _values(self, request: RequestFrame) -> list[bytes]:
        """The values to append; each fits the frames that will carry it."""
        entries = decode_entries(request.log, self._limits)
        if any(entry.type is not ValueType.APPLICATION for entry in entries):
            raise _wrong(request, "only application values are wanted")
        if any(len(entry.value) > value_size_max(self._limits) for entry in entries):
            raise RemoteProtocolError(ErrorCode.LOG_TOO_LARGE, "a value fits no frame")
        return [entry.value for entry in entries]

    def _forward(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        return m.ForwardRequest(**common, values=self._values(request))

    def _client(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        return m.ClientRequest(**common, values=self._values(request))

    def _add(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        value = self._one(request, ValueType.CLUSTER_SERVER)
        return m.AddServerRequest(**common, server=decode_server(value, self._limits))

    def _remove(self, request: RequestFrame, common: _Common) -> m.RaftRequest:
        value = self._one(request, ValueType.CLUSTER_SERVER)
        return m.RemoveServerRequest(**common, server_id=decode_server_id(value))

    _DECODERS: ClassVar[Mapping[MessageType, Callable[..., m.RaftRequest]]] = {
        MessageType.REQUEST_VOTE_REQUEST: _vote,
        MessageType.PRE_VOTE_REQUEST: _pre_vote,
        MessageType.READ_INDEX_REQUEST: _read_index,
        MessageType.FORWARD_REQUEST: _forward,
        MessageType.APPEND_ENTRIES_REQUEST: _append,
        MessageType.CLIENT_REQUEST: _client,
        MessageType.ADD_SERVER_REQUEST: _add,
        MessageType.REMOVE_SERVER_REQUEST: _remove,
        MessageType.SYNC_LOG_REQUEST: _sync,
        MessageType.JOIN_CLUSTER_REQUEST: _join,
        MessageType.LEAVE_CLUSTER_REQUEST: _leave,
        MessageType.INSTALL_SNAPSHOT_REQUEST: _snapshot,
    }


def _single(term: int, kind: ValueType, value: bytes) -> bytes:
    return encode_entries((LogEntry(term, kind, value),))


def _wrong(request: RequestFrame, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.WRONG_ENTRIES, f"{request.type.name}: {message}")
