"""Dissection: a field for every byte, the codec's own values, and faults by name."""

from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Iterator, Sequence
from random import Random
from subprocess import run
from typing import Any

import pytest
from capture_conversations import CASES, recorded
from hypothesis import example, given
from hypothesis import strategies as st
from nacl.signing import SigningKey

import vectors
from culm import p2panda
from culm.capture import read
from culm.capture.dissect import (
    PROTOCOLS,
    Dissection,
    Field,
    bytes_of,
    dissect,
    fields_of,
    leaves,
)
from culm.capture.dissect.fields import UNREAD
from culm.ssb import Authenticated, Keys, ServerHandshake
from culm.testing.spec import Conversation, MachineSpec


def check_whole(found: Dissection, size: int) -> None:
    """Fields without gaps, up to the end, and nested ones likewise."""
    assert ends(found.fields, 0) == size


def ends(fields: Sequence[Field], at: int) -> int:
    for each in fields:
        assert each.offset == at, each
        assert each.size > 0
        if each.inside:
            assert ends(each.inside, at) == at + each.size
        at += each.size
    return at


def check_complete(found: Dissection, size: int) -> None:
    assert found.fault is None
    check_whole(found, size)
    for leaf in leaves(found.fields):
        assert leaf.name != UNREAD
        assert not leaf.continues or leaf.name.startswith("data of stream")


# Captures: every machine, every conversation of the suite.


@pytest.mark.costly
@pytest.mark.parametrize("with_keys", [False, True], ids=["sealed", "opened"])
@pytest.mark.parametrize(("spec", "told"), CASES)
def test_the_bytes_of_every_step_are_in_fields(
    spec: MachineSpec, told: Conversation, with_keys: bool
) -> None:
    capture = recorded(spec, told, with_keys=with_keys)
    header = read(capture).header
    moved = {number: list(bytes_of(step)) for number, step in enumerate(read(capture), 1)}
    found = fields_of(header, read(capture))
    assert {number: [each.moved for each in parts] for number, parts in found.items()} == {
        number: each for number, each in moved.items() if each
    }
    for parts in found.values():
        for each in parts:
            check_whole(Dissection(each.fields), len(each.moved.data))
            assert each.fault is None or each.moved.received or each.fault.code == "TRUNCATED"


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "told"), CASES)
def test_broken_bytes_are_split_up_to_the_fault(spec: MachineSpec, told: Conversation) -> None:
    """Every protocol gets the bytes of each conversation, cut, changed and of other protocols."""
    rng = Random(told.name)
    data = b"".join(moved.data for step in read(recorded(spec, told)) for moved in bytes_of(step))
    if not data:
        return
    for protocol in PROTOCOLS:
        changed = bytearray(data[rng.randrange(len(data)) :][:512])
        for _ in range(rng.randrange(4)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        found = dissect(protocol, changed)
        check_whole(found, len(changed))
        if found.fields[-1].name == UNREAD:
            assert found.fault is not None
            assert found.fault.offset <= len(changed)


@given(st.binary(max_size=64))
@example(b"\x81\x80")
def test_any_bytes_may_be_dissected(raw: bytes) -> None:
    for protocol in PROTOCOLS:
        check_whole(dissect(protocol, raw), len(raw))


def named(found: Dissection, name: str) -> list[Any]:
    return [each.value for each in everything(found.fields) if each.name == name]


def everything(fields: Sequence[Field]) -> Iterator[Field]:
    for each in fields:
        yield each
        yield from everything(each.inside)


# Sessions of real peers

JRAFT = (
    *("a_election", "b_heartbeats", "c2_append_3_requests", "c_append_3_in_one_request"),
    *("d_add_server", "e_remove_server", "f_install_snapshot", "g_client_request_to_follower"),
    "i2_diverged_old_leader_overwritten",
)


@pytest.mark.parametrize("name", JRAFT)
def test_every_frame_of_jraft_is_complete(name: str) -> None:
    streams: dict[tuple[Any, ...], bytearray] = {}
    decoded: dict[tuple[Any, ...], list[Any]] = {}
    for line in vectors.load_json_lines(f"jraft/{name}.jsonl"):
        if line["ev"] == "frame":
            key = (line["conn"], line["dir"])
            streams.setdefault(key, bytearray()).extend(bytes.fromhex(line["hex"]))
            decoded.setdefault(key, []).append(line["dec"])
    assert streams
    for key, stream in streams.items():
        found = dissect("garlic", stream)
        check_complete(found, len(stream))
        types = [each["type"].upper() for each in decoded[key]]
        assert [each.name.replace("_", "") for each in found.fields] == types
        assert named(found, "source") == [each["src"] for each in decoded[key]]


def test_malformed_frames_of_jraft_are_split_up_to_the_fault() -> None:
    for line in vectors.load_json_lines("jraft/m_malformed_and_edge.jsonl"):
        if line["ev"] == "frame":
            data = bytes.fromhex(line["hex"])
            check_whole(dissect("garlic", data), len(data))


@pytest.mark.parametrize("name", ["session-3-messages", "session-close", "session-reconnect"])
def test_every_packet_of_ssb_is_complete(name: str) -> None:
    streams: dict[tuple[Any, ...], bytearray] = {}
    numbers: dict[tuple[Any, ...], list[int]] = {}
    for line in vectors.load_json_lines(f"ssb/{name}.jsonl"):
        key = (line["session"], line["dir"])
        streams.setdefault(key, bytearray()).extend(bytes.fromhex(line["hex"]))
        numbers.setdefault(key, []).append(line["req"])
    assert streams
    for key, stream in streams.items():
        found = dissect("ssb-muxrpc", stream)
        check_complete(found, len(stream))
        requests = named(found, "request")
        assert requests == [each for each in numbers[key] if each]


@pytest.mark.parametrize("side", ["client", "server"])
def test_boxes_of_a_real_session_are_complete_down_to_their_messages(side: str) -> None:
    lines = vectors.load_json_lines("ssb/session-3-messages-tcp.jsonl")
    sent = b"".join(bytes.fromhex(each["hex"]) for each in lines if each["dir"].startswith(side))
    keys = real_keys()[side]
    found = dissect("ssb-handshake", sent, role=side, key=keys.key, nonce=keys.nonce)
    check_complete(found, len(sent))
    assert named(found, "request")
    if side == "server":
        assert named(found, "sequence") == [1, 2, 3]


def real_keys() -> dict[str, Keys]:
    lines = vectors.load_json_lines("ssb/session-3-messages-tcp.jsonl")
    sent = {
        side: b"".join(bytes.fromhex(each["hex"]) for each in lines if each["dir"].startswith(side))
        for side in ("client", "server")
    }
    keys = vectors.load_json("ssb/keys.json")
    alice = SigningKey(b64decode(keys["alice"]["private"].removesuffix(".ed25519"))[:32])
    seed = bytes.fromhex(keys["shs_ephemeral"]["server"]["seed_hex"])
    server = ServerHandshake(identity=alice, ephemeral=SigningKey(seed).to_curve25519_private_key())
    server.receive_data(sent["client"])
    event = server.next_event()
    assert isinstance(event, Authenticated)
    return {"server": event.keys.send, "client": event.keys.receive}


@pytest.mark.parametrize(
    "group", ["validFirstEntry", "fiveValidEntries", "valid_partial_replicated_seq_100"]
)
def test_entries_of_bamboo_rs_are_complete(group: str) -> None:
    found = vectors.load_json("bamboo-rs.json")[group]
    for row in found.get("entries", [found]):
        data = bytes.fromhex(row["encoded"])
        check_complete(split := dissect("bamboo", data, family="YAMF"), len(data))
        assert named(split, "seqnum") == [row["decoded"]["seqNum"]]


def p2panda_rows() -> list[dict[str, Any]]:
    rows = vectors.load_json_lines("p2panda/p2panda-rs.jsonl")
    rows += [
        each
        for log in vectors.load_json("p2panda/p2panda-js.json")["logs"]
        for each in log["entries"]
    ]
    return [row for row in rows if "entry" in row]


def test_entries_and_operations_of_p2panda_are_complete() -> None:
    for row in p2panda_rows():
        entry, operation = bytes.fromhex(row["entry"]), bytes.fromhex(row["operation"])
        check_complete(dissect("bamboo", entry, family="YASMF"), len(entry))
        check_complete(dissect("p2panda-operation", operation), len(operation))


HAVES = bytes.fromhex(
    "840001008167626c6f625f763184010000" + "8167626c6f625f7631" + "830a0080" + "830300f4"
)
"""An announcement, a request, heights and an end, as a peer sends them."""


@given(st.integers(0, len(HAVES) - 1), st.binary(max_size=6), st.integers(0, 4))
@example(len(HAVES) - 4, bytes.fromhex("a3"), 1)  # a map in place of a list
@example(len(HAVES) - 4, bytes.fromhex("a2030081820001"), 4)  # with a list for a key
@example(len(HAVES) - 8, bytes.fromhex("830a00a181820001"), 8)
def test_what_the_codec_of_p2panda_refuses_has_a_fault(at: int, put: bytes, size: int) -> None:
    data = HAVES[:at] + put + HAVES[at + size :]
    machine = p2panda.Connection(local_peer=b"a", remote_peer=b"b")
    machine.receive_data(data)
    ends = [each for each in iter(machine.next_event, None) if isinstance(each, p2panda.Closed)]
    if ends and ends[0].error is not None and ends[0].error.code in OF_FORM:
        assert dissect("p2panda", data).fault is not None


OF_FORM = {
    p2panda.ErrorCode.MALFORMED,
    p2panda.ErrorCode.UNKNOWN_MESSAGE,
    p2panda.ErrorCode.MESSAGE_TOO_LARGE,
}


WITHOUT_LIBRARIES = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("nacl", "blake3", "cbor2", "xxhash"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from culm.capture.dissect import dissect

for protocol, digits in (("bymux", "000105"), ("oxen", "64323a6b6169316565")):
    found = dissect(protocol, bytes.fromhex(digits))
    print(found.fields[0].name, found.fault)
print(dissect("garlic", bytes(26)).fault.code)
"""


def test_protocols_without_cryptography_are_dissected_without_its_libraries() -> None:
    """As in a browser, where some of the libraries are not available."""
    found = run([sys.executable, "-c", WITHOUT_LIBRARIES], capture_output=True, text=True)
    assert found.stderr == ""
    assert found.stdout.splitlines() == ["CREDIT None", "keepalive None", "UNKNOWN_MESSAGE_TYPE"]


def test_a_protocol_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"has the name tcp; there are: bamboo, bymux, .*muxrpc$"):
        dissect("tcp", b"")
