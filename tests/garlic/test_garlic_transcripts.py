"""Frames of real JRaft nodes decode, and encode to the same bytes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import vectors
from culm.garlic.limits import Limits
from culm.garlic.messages import (
    REQUEST_HEADER_SIZE,
    RESPONSE_SIZE,
    MessageType,
    RequestFrame,
    ResponseFrame,
    is_request,
)
from culm.garlic.values import (
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
)

LIMITS = Limits()
TRANSCRIPTS = (
    "a_election",
    "b_heartbeats",
    "c_append_3_in_one_request",
    "c2_append_3_requests",
    "d_add_server",
    "e_remove_server",
    "f_install_snapshot",
    "g_client_request_to_follower",
    "i2_diverged_old_leader_overwritten",
)


def frames(name: str) -> list[dict[str, Any]]:
    lines = vectors.load_json_lines(f"jraft/{name}.jsonl")
    return [line for line in lines if line["ev"] == "frame"]


def request_of(data: bytes) -> RequestFrame:
    header = data[:REQUEST_HEADER_SIZE]
    log = data[REQUEST_HEADER_SIZE:]
    assert RequestFrame.log_size(header, LIMITS) == len(log)
    return RequestFrame.decode(header, log, LIMITS)


def reencode(kind: MessageType, entry: Any) -> bytes:
    """The value of an entry through its own codec and back."""
    value: bytes = entry.value
    match entry.type:
        case ValueType.APPLICATION:
            return value
        case ValueType.CONFIGURATION:
            return encode_configuration(decode_configuration(value, LIMITS))
        case ValueType.CLUSTER_SERVER if kind is MessageType.ADD_SERVER_REQUEST:
            return encode_server(decode_server(value, LIMITS))
        case ValueType.CLUSTER_SERVER:
            return encode_server_id(decode_server_id(value))
        case ValueType.LOG_PACK:
            return LogPack.decode(value, LIMITS).encode()
        case ValueType.SNAPSHOT_SYNC_REQUEST:
            return SnapshotSyncRequest.decode(value, LIMITS).encode()
    raise AssertionError(entry.type)


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_every_frame_is_encoded_to_the_bytes_it_was_decoded_from(name: str) -> None:
    for frame in frames(name):
        data = bytes.fromhex(frame["hex"])
        if frame["dir"] == "resp":
            assert len(data) == RESPONSE_SIZE
            response = ResponseFrame.decode(data, LIMITS)
            assert response.encode() == data
            assert response.next_index == frame["dec"]["nextIndex"]
            assert response.accepted == (frame["dec"]["accepted"] == 1)
            continue
        request = request_of(data)
        assert request.encode() == data
        decoded = frame["dec"]
        assert request.type.name.replace("_", "").lower() == decoded["type"].lower()
        assert (request.source, request.destination, request.term) == (
            decoded["src"],
            decoded["dst"],
            decoded["term"],
        )
        assert (request.last_log_term, request.last_log_index, request.commit_index) == (
            decoded["lastLogTerm"],
            decoded["lastLogIndex"],
            decoded["commitIndex"],
        )
        entries = decode_entries(request.log, LIMITS)
        again = [entry._replace(value=reencode(request.type, entry)) for entry in entries]
        assert encode_entries(again) == request.log
        if request.type is MessageType.APPEND_ENTRIES_REQUEST:
            assert encode_log(decode_log(request.log, LIMITS)) == request.log


def test_the_transcripts_hold_all_message_and_value_types() -> None:
    kinds: Counter[MessageType] = Counter()
    values: Counter[ValueType] = Counter()
    for name in TRANSCRIPTS:
        for frame in frames(name):
            data = bytes.fromhex(frame["hex"])
            kinds[MessageType(data[0])] += 1
            if is_request(MessageType(data[0])):
                values.update(entry.type for entry in decode_entries(request_of(data).log, LIMITS))
    assert set(kinds) == {kind for kind in MessageType if kind < 64}
    assert set(values) == set(ValueType)
