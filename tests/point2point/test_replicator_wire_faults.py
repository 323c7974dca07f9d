"""One invalid frame of any kind at any place of a valid conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

import pytest
from p2p_support import (
    GREEDY,
    SAFE,
    adjust,
    cancel,
    grant,
    marker,
    metadata,
    propose,
    raw,
    setup_bytes,
    switch,
    varu64,
    write,
)
from replicator_raw import RawPeer
from replicator_support import key_of, news_of

from culm.bamboo.entry import LogKey
from culm.bamboo.records import NewEntry
from culm.bymux import ErrorCode as MuxCode
from culm.machine import Closed
from culm.point2point import ErrorCode, Limits, Setup
from culm.point2point.replication import PayloadProgress, ReplicatorLimits
from culm.testing.stores import contents
from effort import seeds

MAX = 2**64 - 1
NO_HASH = bytes([0, 64]) + bytes(64)  # of no existing entry
LIMITS = ReplicatorLimits(
    payload_inline_max=64,
    batch_count_max=5,
    batch_size_max=256,
    connection=Limits(packet_size_max=48, data_window_max=4096, requests_max=8),
)
SETUPS = {"safe": SAFE, "greedy": GREEDY}
CHUNK_SIZES = {"whole": MAX, "in sevens": 7, "byte by byte": 1}

# The replicator has the beginning of the first log; the peer offers the others one by one.
FIRST = news_of((20, 0, 90, 3), log_id=0)
SECOND = news_of((5, 600, 30), log_id=1)
THIRD = news_of((7,), log_id=2)
LOGS = {key_of(news): len(news) for news in (FIRST, SECOND, THIRD)}


def control(*messages: bytes) -> bytes:
    return write(0, b"".join(messages))


def data(*packets: bytes) -> bytes:
    return write(1, b"".join(packets))


def offer(request_id: int, news: Sequence[NewEntry]) -> bytes:
    """The proposal of everything after a log: it tells the log's length."""
    return control(propose(request_id, len(news) + 1, log=key_of(news), hash=NO_HASH))


def sent(request_id: int, *news: NewEntry) -> Iterator[bytes]:
    """Entries, with their payloads in two pieces."""
    yield data(switch(request_id))
    for new in news:
        assert new.payload
        half = len(new.payload) // 2
        yield data(metadata(new.entry, backlink=False))
        yield data(raw(new.payload[:half]))
        yield data(raw(new.payload[half:]))


PARTS = [
    [bytes([0x00, 1, 0]), control(grant(100))],
    [control(adjust(1, "all")), *sent(1, *FIRST[2:]), offer(0, SECOND)],
    [control(adjust(3, "all")), *sent(3, SECOND[0]), control(cancel(0)), data(marker(0))],
    [*sent(3, *SECOND[1:]), bytes([0x40, 0]), offer(2, THIRD)],
    [control(adjust(5, "all")), *sent(5, *THIRD)],
]
"""The peer's messages after its setup, in frames.

Each part answers the replicator's reply to the part before.
"""
PLACES = [(part, at) for part, frames in enumerate(PARTS) for at in range(len(frames) + 1)]


STRANGE = [LogKey(key_of(FIRST).author, number) for number in range(9, 29)]


def mine(*messages: bytes) -> bytes:
    """About a request of the peer that only this frame mentions."""
    return control(propose(100, log=STRANGE[0]), *messages)


def with_another_signature(new: NewEntry) -> bytes:
    packet = metadata(new.entry, backlink=False)
    return packet[:-1] + bytes([packet[-1] ^ 1])


def many_proposals() -> bytes:
    return control(*(propose(100 + 2 * n, log=log) for n, log in enumerate(STRANGE)))


CONTROL = {
    ErrorCode.UNUSED_CONTROL_BYTE: [control(b"\x88")],
    ErrorCode.CREDIT_OVERFLOW: [control(grant(MAX), grant(1))],
    ErrorCode.NO_CREDIT: [many_proposals()],
    ErrorCode.WRONG_ID_PARITY: [control(propose(101))],
    ErrorCode.ID_IN_USE: [mine(propose(100))],
    ErrorCode.UNKNOWN_REQUEST: [control(adjust(98, "all")), control(cancel(99))],
    ErrorCode.REQUEST_CANCELLED: [mine(cancel(100), cancel(100))],
    ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS: [control(adjust(1, flags=16))],
    ErrorCode.END_BEFORE_START: [control(propose(100, 5, end=(4, 5)))],
    ErrorCode.UPPER_CERTPOOL_BEFORE_END: [control(propose(100, 5, end=(9, 8)))],
    ErrorCode.LOWER_CERTPOOL_AFTER_START: [control(propose(100, 5, lower=6))],
    ErrorCode.LOWER_CERTPOOL_NOT_IN_POOL: [control(propose(100, 8, lower=7))],
    ErrorCode.SIZE_MIN_DECREASED: [
        mine(adjust(100, flags=2, extra=b"\x09"), adjust(100, flags=2, extra=b"\x08"))
    ],
    ErrorCode.SIZE_MAX_INCREASED: [
        mine(adjust(100, flags=1, extra=b"\x08"), adjust(100, flags=1, extra=b"\x09"))
    ],
    ErrorCode.ZERO_SEQNUM: [control(propose(100, 0, lower=1))],
    ErrorCode.SPARSE_WITHOUT_END: [control(propose(100, flags=2))],
    ErrorCode.BAD_HASH: [control(propose(100, 5, hash=bytes([9, 64]) + bytes(64)))],
    ErrorCode.BOGUS_PROOF: [control(cancel(1, 133, FIRST[0].entry.encode()))],
    ErrorCode.BAD_CANCEL_CONFIRMATION: [control(cancel(1, 131))],
}
DATA = {
    ErrorCode.UNUSED_DATA_BYTE: [data(b"\x01"), data(b"\x82")],
    ErrorCode.SWITCH_TO_UNKNOWN_REQUEST: [data(switch(99))],
    ErrorCode.NO_CURRENT_REQUEST: [data(b"\x06")],
    ErrorCode.ALREADY_MARKED_CANCELLED: [mine() + data(marker(100), marker(100))],
    ErrorCode.PIECE_OUT_OF_TURN: [data(raw(b"x")), data(metadata(THIRD[0].entry) * 2)],
    ErrorCode.PAYLOAD_SIZE_EXCEEDED: [data(b"\x08" + varu64(MAX)), data(raw(bytes(601)))],
    ErrorCode.EAGERNESS_VIOLATED: [data(b"\x02"), data(b"\x03\x02")],
    ErrorCode.SKIP_DISPROVED: [data(b"\x04"), data(b"\x05")],
    ErrorCode.BAD_COMPRESSION: [data(b"\x09\x03\x04\x81\x00\x01x")],
    ErrorCode.NON_CANONICAL: [data(b"\x80" + varu64(3, width=2) + bytes(130))],
    ErrorCode.BACKLINK_REDUNDANT: [
        data(metadata(each.entry, backlink=True)) for each in (FIRST[3], SECOND[1])
    ],
    ErrorCode.CATCH_UP_ONLY: [data(b"\x07\x01")],
    ErrorCode.EMPTY_PACKET: [data(raw(b"")), data(b"\x03\x00"), data(b"\x07\x00")],
}
MODES = {
    "safe": {
        ErrorCode.INVALID_DATA: [
            data(with_another_signature(SECOND[1])),
            data(with_another_signature(THIRD[0])),
            data(raw(bytes(90))),
        ],
        ErrorCode.APOLOGY_IN_SAFE_MODE: [data(b"\x10")],
    },
    "greedy": {
        ErrorCode.APOLOGY_FOR_VALID_DATA: [data(b"\x10")],
        ErrorCode.SECOND_APOLOGY: [data(raw(b"x"), b"\x10", raw(b"x"), b"\x10")],
        ErrorCode.APOLOGY_OWED: [
            data(with_another_signature(SECOND[1]), raw(b"x")),
            data(raw(bytes(90)), b"\x02"),
        ],
    },
}
CLOSE, STOP_READ = bytes([0x80, 1]), bytes([0xA0, 1])  # of the data stream
MUX = {
    MuxCode.UNKNOWN_PACKET_TYPE: [b"\xc0", b"\xe0"],
    MuxCode.UNKNOWN_STREAM: [bytes([0x40, 9])],
    MuxCode.CREDIT_ON_INFINITE: [bytes([0x00, 0, 1])],
    MuxCode.WRITE_PAST_CREDIT: [bytes([0x23, 1]) + MAX.to_bytes(8, "big")],
    MuxCode.WRITE_AFTER_CLOSE: [CLOSE + data(b"\x02")],
    MuxCode.SECOND_CLOSE: [CLOSE * 2],
    MuxCode.CREDIT_AFTER_STOP_READ: [STOP_READ + bytes([0x00, 1, 1])],
    MuxCode.SECOND_STOP_READ: [STOP_READ * 2],
    MuxCode.GLOBAL_PING_AFTER_END: [b"\x50"],
    MuxCode.GLOBAL_PONG_AFTER_END: [b"\x70"],
    MuxCode.GLOBAL_SECOND_CLOSE: [b"\x90"],
    MuxCode.GLOBAL_SECOND_STOP_READ: [b"\xb0"],
    MuxCode.GLOBAL_CREDIT_AFTER_STOP_READ: [bytes([0x10, 1])],
    MuxCode.CREATION_AFTER_CLOSE: [bytes([0x30, 2])],
}


KINDS = [
    pytest.param(mode, code, frame, id=f"{mode} {code.name.lower()} {number}")
    for mode in SETUPS
    for code, frames in (CONTROL | DATA | MODES[mode] | MUX).items()
    for number, frame in enumerate(frames)
]
# Codes that take another setup, another range, time, or the end of the bytes.
ELSEWHERE = {
    ErrorCode.MUX_VIOLATION,  # the multiplexer has its own codes
    ErrorCode.UNEXPECTED_EOF,
    ErrorCode.PEER_SILENT,
    ErrorCode.PEER_STALLED,
    ErrorCode.NOT_CONFIRMED,  # or confirmed, as the store is fast
    ErrorCode.ALREADY_CONFIRMED,
    ErrorCode.SPARSE_END_FIXED,
    ErrorCode.TOO_MANY_ADJUSTMENTS,
    ErrorCode.PAST_END,
    ErrorCode.PAYLOAD_MANDATORY,
    ErrorCode.COMPRESSION_WINDOW,
    ErrorCode.INFLATION,
    ErrorCode.BACKLINK_MISSING,
    ErrorCode.UNWANTED_PAYLOAD,
    ErrorCode.AFTER_END_OF_LOG,
    ErrorCode.UNKNOWN_PAYLOAD_SIZE,
}
# Codes that take other streams than the two of Point-2-Point, or are raised at the caller.
MUX_ELSEWHERE = {
    MuxCode.CREDIT_OVERFLOW,
    MuxCode.GLOBAL_CREDIT_OVERFLOW,
    MuxCode.PING_AFTER_END,
    MuxCode.PONG_AFTER_END,
    MuxCode.CREATION_WITHOUT_CREDIT,
    MuxCode.WRONG_PARITY,
    MuxCode.ID_ACTIVE,
    MuxCode.STREAMS_LIMIT,
    MuxCode.EOF_IN_PACKET,
    MuxCode.EOF_WITH_STREAMS,
    MuxCode.CONSUMED_TOO_MUCH,
}


def test_each_code_is_looked_at() -> None:
    own = {*CONTROL, *DATA, *MODES["safe"], *MODES["greedy"]}
    assert own ^ ELSEWHERE == set(ErrorCode)
    assert {*MUX} ^ MUX_ELSEWHERE == set(MuxCode)


class Unopened(RawPeer):
    """A replicator without any input so far, not even the setup."""

    def opening(self, peer: Setup, credit: int, data_credit: int | None) -> None:
        """The peer's first bytes are part of the conversation."""

    def is_at_fault(self, code: ErrorCode | MuxCode) -> bool:
        """Whether the peer was blamed with that code."""
        error = next((each.error for each in self.of(Closed)), None)
        if isinstance(code, ErrorCode):
            return error is not None and error.code is code
        name = code.name.lower().replace("_", " ")
        return error is not None and error.message.partition(":")[0] == name

    def telling(self) -> list[object]:
        """The events; of the end its code.

        The store's progress with logs mentioned only by the invalid frame, and with a payload that
        is then thrown away, depends on the cuts in that frame.
        """
        events = [
            each
            for each in self.events
            if getattr(each, "log", None) not in STRANGE
            and not isinstance(each, (Closed, PayloadProgress))
        ]
        return [*events, self.code]

    def kept(self) -> set[tuple[LogKey, int]]:
        """Whole entries in the store."""
        return {
            (log, entry.seqnum)
            for log in self.store.logs()
            for entry in self.store.entries(log)
            if entry.payload_complete
        }


def told(mode: str, parts: Sequence[Sequence[bytes]], *, size: int = MAX) -> Unopened:
    """A replicator that received these parts, the last one in chunks of `size`."""
    peer = Unopened(FIRST[:2], limits=LIMITS, setup=SETUPS[mode])
    peer.receive(setup_bytes(SETUPS[mode]))
    for number, part in enumerate(parts, 1):
        said = b"".join(part)
        step = min(size, len(said)) if number == len(parts) else len(said)
        for at in range(0, len(said), max(1, step)):
            peer.receive(said[at : at + step])
    peer.check()
    return peer


def before(place: tuple[int, int]) -> list[list[bytes]]:
    part, at = place
    return [*PARTS[:part], PARTS[part][:at]]


@cache
def kept_before(mode: str, place: tuple[int, int]) -> set[tuple[LogKey, int]]:
    """The entries kept if the conversation gets that far, frame by frame."""
    return told(mode, [[frame] for part in before(place) for frame in part]).kept()


def spoilt(place: tuple[int, int], frame: bytes) -> list[list[bytes]]:
    """The conversation up to the end of the part with that frame at that place."""
    part, at = place
    *whole, begun = before(place)
    return [*whole, [*begun, frame, *PARTS[part][at:]]]


@pytest.mark.parametrize("mode", SETUPS)
@pytest.mark.parametrize("size", CHUNK_SIZES.values(), ids=CHUNK_SIZES)
def test_the_conversation_is_valid(mode: str, size: int) -> None:
    peer = told(mode, PARTS, size=size)
    assert peer.code is None
    assert peer.kept() == {(log, n) for log, count in LOGS.items() for n in range(1, count + 1)}


@pytest.mark.costly
@pytest.mark.parametrize(("mode", "code", "frame"), KINDS)
def test_an_invalid_frame_loses_nothing_that_came_before(
    mode: str, code: ErrorCode | MuxCode, frame: bytes
) -> None:
    """However it was cut, and wherever the frame comes; at some place it is exactly that fault."""
    rng = Random(f"{mode} {code!r} {frame!r}")
    places = rng.sample(PLACES, len(PLACES))
    for place in places[: len(seeds("WIRE_FAULTS", 2, len(PLACES)))]:
        whole, *cut = (told(mode, spoilt(place, frame), size=size) for size in CHUNK_SIZES.values())
        assert whole.kept() >= kept_before(mode, place)
        for peer in cut:
            assert peer.telling() == whole.telling()
            assert contents(peer.store) == contents(whole.store)
    assert any(told(mode, spoilt(place, frame)).is_at_fault(code) for place in places)
