"""A cut, changed or invented capture is read as far as it goes, or refused."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Set
from inspect import isfunction, signature
from itertools import count, pairwise
from random import Random
from struct import pack
from typing import Any

import cbor2
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from culm.capture import (
    Capture,
    CaptureError,
    ErrorCode,
    Header,
    RecordedError,
    Recorder,
    Redact,
    Replay,
    Step,
    read,
    replay,
)
from culm.capture.blocks import MAGIC, BlockReader, block_of, checksum_of, write_block
from culm.capture.redaction import SECRET_CALLS
from culm.capture.values import from_value, to_value
from culm.machine import Closed
from culm.machines import lookup, names
from culm.oxen import Node
from culm.wire import lzfoo

HEADER = Header(machine="bymux", session="seven", culm="0", python="3", began=1.5)


def step(number: int, data: bytes = b"x") -> Step:
    return Step(0.25, 0, "receive_data", [data * number], {}, None)


def capture_of(*blocks: list[Step]) -> bytes:
    parts = [HEADER.encode(), *(each.encode() for each in blocks[0])]
    rest = [b"".join(each.encode() for each in block) for block in blocks[1:]]
    return MAGIC + b"".join(map(write_block, [b"".join(parts), *rest]))


WHOLE = capture_of([step(1)], [step(100), step(3)], [step(5)])
STEPS = [step(1), step(100), step(3), step(5)]
FIRST = len(capture_of([step(1)]))


def code_of(data: bytes) -> ErrorCode | None:
    try:
        for _ in read(data):
            pass
    except CaptureError as error:
        return error.code
    return None


def test_steps_come_back_as_they_were() -> None:
    capture = read(WHOLE)
    assert capture.header == HEADER
    assert list(capture) == STEPS
    assert capture.torn == 0


@given(st.lists(st.integers(1, len(WHOLE))))
def test_it_is_read_in_any_pieces(cuts: list[int]) -> None:
    places = sorted({0, len(WHOLE), *cuts})
    pieces = [WHOLE[one:two] for one, two in pairwise(places)]
    assert list(Capture(pieces)) == STEPS


@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_a_capture_cut_at_any_byte_keeps_its_complete_blocks(size: int) -> None:
    if size < FIRST:
        assert code_of(WHOLE[:size]) in {ErrorCode.NO_CAPTURE, ErrorCode.BAD_RECORD}
        return
    capture = read(WHOLE[:size])
    found = list(capture)
    assert found == STEPS[: len(found)]
    assert capture.torn or len(found) in {1, 3}


@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_any_byte_may_have_changed(at: int) -> None:
    for bit in range(8):
        changed = bytearray(WHOLE)
        changed[at] ^= 1 << bit
        code_of(bytes(changed))  # nothing else is raised


@given(st.binary(max_size=200))
def test_any_bytes_may_be_in_a_block(data: bytes) -> None:
    code_of(MAGIC + write_block(data or b"\0"))
    code_of(MAGIC + write_block(HEADER.encode() + data))


def test_what_is_no_capture() -> None:
    assert code_of(b"") is ErrorCode.NO_CAPTURE
    assert code_of(b"GIF89a..") is ErrorCode.NO_CAPTURE
    assert code_of(MAGIC[:-1] + b"\3") is ErrorCode.UNKNOWN_VERSION
    assert code_of(MAGIC[:-1] + b"\2\7") is ErrorCode.UNKNOWN_COMPRESSION
    assert code_of(MAGIC[:-1] + b"\2") is ErrorCode.NO_CAPTURE
    assert code_of(MAGIC + write_block(step(1).encode())) is ErrorCode.BAD_RECORD


def test_a_changed_block_in_the_middle_is_told_with_its_place() -> None:
    changed = bytearray(WHOLE)
    changed[FIRST + 20] ^= 1
    with pytest.raises(CaptureError) as caught:
        list(read(bytes(changed)))
    assert (caught.value.code, caught.value.offset) == (ErrorCode.DAMAGED, FIRST)


def test_a_block_may_not_declare_more_than_the_limit() -> None:
    with pytest.raises(CaptureError) as caught:
        Capture([MAGIC, pack(">III", 4, 1 << 31, 0)], size_max=1 << 20)
    assert caught.value.code is ErrorCode.TOO_LARGE


def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    size = 1 << 20
    packed = lzfoo.compress(b"\x81" * size, (1 << 16) - 1)
    block = pack(">III", len(packed), size, checksum_of(packed)) + packed
    lists = pack(">III", len(packed), 2 * size, checksum_of(packed)) + packed
    tracemalloc.start()
    assert code_of(MAGIC + block) is ErrorCode.BAD_RECORD
    assert code_of(MAGIC + lists) is ErrorCode.DAMAGED
    flat = cbor2.dumps([0] * size)
    assert code_of(MAGIC + write_block(flat)) is ErrorCode.BAD_RECORD
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * size


@pytest.mark.parametrize(
    "found",
    [
        [],
        [0, 0, 0, [], {}],
        [-1, 0, 0, [], {}, None],
        [0, -1, 0, [], {}, None],
        [0, 0, 99, [], {}, None],
        [0, 0, 0, {}, {}, None],
        [0, 0, 0, [], [], None],
        [0, 0, 0, [], {}, None, 1],
        [0, 0, 0, [], {}, None, {"state": 1}],
        {"machine": "bymux"},
        7,
    ],
    ids=repr,
)
def test_what_is_no_step(found: object) -> None:
    assert (
        code_of(MAGIC + write_block(HEADER.encode() + cbor2.dumps(found))) is ErrorCode.BAD_RECORD
    )


@pytest.mark.parametrize(
    "found",
    [
        {"machine": 1},
        {"config": []},
        {"began": "now"},
        {"redacted": ["everything"]},
        {"redacted": 1},
        {"redacted": [[]]},
    ],
    ids=repr,
)
def test_what_is_no_header(found: object) -> None:
    assert code_of(MAGIC + write_block(cbor2.dumps(found))) is ErrorCode.BAD_RECORD


# Values


@pytest.mark.parametrize(
    "value",
    [
        None,
        1.5,
        -(1 << 64),
        1 << 200,
        (1, (b"two", "three")),
        {"b": 1, "a": 2},  # the order of its keys is kept
        {1: 2, None: 3},
        {"": "tuple"},
        frozenset({1, 2}),
        range(3, 9, 2),
    ],
    ids=repr,
)
def test_a_value_comes_back(value: object) -> None:
    written = cbor2.loads(cbor2.dumps(to_value(value), canonical=True))
    found = from_value(written, lambda _: None)
    assert found == value
    assert repr(found) == repr(value)


def test_an_error_of_the_store_has_a_stand_in() -> None:
    written = to_value(OSError("disk full"))
    found = from_value(written, lambda _: None)
    assert found.args == RecordedError("OSError", "disk full").args
    assert (to_value(found), str(found)) == (written, "disk full")


@pytest.mark.parametrize(
    "value",
    [
        {"": "os:system", "fields": {}},
        {"": "subprocess:Popen", "fields": {"args": ["true"]}},
        {"": "culm.capture.values:from_value", "fields": {}},
        {"": "culm.capture.values:os.path", "fields": {}},
        {"": "culm.bamboo.entry:LogKey", "fields": {"nonsense": 1}},
        {"": "culm.machine:LocalProtocolError", "fields": {}},
        {"": "culm.wire.multihash:HashFamily", "constant": "replace"},
        {"": "culm.no_such_module:Thing", "fields": {}},
        {"": "tuple"},
        {"": 7},
    ],
    ids=str,
)
def test_nothing_else_is_built(value: dict[str, object]) -> None:
    with pytest.raises(CaptureError) as caught:
        from_value(value, lambda _: None)
    assert caught.value.code is ErrorCode.BAD_VALUE


# Recording and replaying


def recorder_of(machine: str, config: dict[str, object]) -> tuple[list[bytes], Recorder]:
    pieces: list[bytes] = []
    return pieces, Recorder(pieces.append, machine=machine, config=config)


def test_a_process_that_is_killed_loses_what_was_not_flushed() -> None:
    pieces, recorder = recorder_of("bymux", {})
    machine = recorder.stand_in(lookup("bymux").make({}))
    machine.receive_data(b"\0")
    recorder.flush()
    machine.receive_data(b"\1")
    assert len(list(read(b"".join(pieces)))) == 1


def test_the_end_of_a_machine_is_flushed() -> None:
    pieces, recorder = recorder_of("bymux", {})
    machine = recorder.stand_in(lookup("bymux").make({}))
    machine.receive_eof()
    while machine.next_event() is not None:
        pass
    assert [each.name for each in read(b"".join(pieces))][:2] == ["receive_eof", "next_event"]


class Sender:
    """A machine that moves large datagrams."""

    def receive_datagram(self, data: bytes, *, source: str) -> None:
        """It has no effect."""

    def datagrams_to_send(self) -> list[tuple[str, bytes]]:
        return [("a", bytes(60_000))]

    def advance(self, now: float) -> None:
        """It has no effect."""


def test_what_waits_is_bounded_whatever_it_is() -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append)
    sender = recorder.stand_in(Sender())
    random = Random(1).randbytes(60_000)
    for number in range(300):
        sender.receive_datagram(random, source="a")
        sender.datagrams_to_send()
        assert len(recorder.waiting) < 1 << 18, number
    for number in range(20_000):
        sender.advance(float(number))
        assert len(recorder.waiting) < 1 << 17
    recorder.flush()
    steps = list(Capture(pieces, size_max=1 << 19))
    assert len(steps) == 300 * 2 + 20_000
    assert steps[0].arguments == [random]
    assert max(map(len, pieces)) < 1 << 18


def test_large_pieces_that_do_not_shrink_are_stored_as_they_are() -> None:
    random = Random(1).randbytes(100_000)
    head, *rest = block_of([b"abc", random, b"de", b"f"])
    assert rest == [random, b"def"]
    assert head[-3:] == b"abc"
    (records,) = BlockReader().feed(MAGIC + head + b"".join(rest))
    assert records == b"abc" + random + b"def"
    (packed,) = block_of([b"abc", bytes(100_000), random[:10]])
    assert len(packed) < 2000
    mixed = [random[:20_000], b"x" * 50_000, random[:10]]  # by its largest piece
    assert len(b"".join(block_of(mixed))) < 21_000
    assert [*BlockReader().feed(MAGIC + b"".join(block_of(mixed)))] == [b"".join(mixed)]


class Fickle:
    """A machine whose output depends on more than its input."""

    outside = count()

    def receive_data(self, data: bytes) -> None:
        pass

    def data_to_send(self) -> bytes:
        return bytes([next(self.outside)])


def test_a_replay_goes_back_to_an_earlier_step() -> None:
    pieces, recorder = recorder_of("bymux", {})
    machine = recorder.stand_in(lookup("bymux").make({}))
    machine.receive_eof()
    while machine.next_event() is not None:
        pass
    capture = b"".join(pieces)
    player = Replay(read(capture).header)
    states = []
    for step in read(capture):
        states.append(player.machine.state)
        assert player.do(step) is None
    for number, state in enumerate(states):
        player.go_back_to(number, read(capture))
        assert (player.number, player.machine.state) == (number, state)


def test_nondeterminism_is_found_and_named() -> None:
    pieces, recorder = recorder_of("", {})
    machine = recorder.stand_in(Fickle())
    machine.receive_data(b"x")
    machine.data_to_send()
    recorder.flush()
    difference = replay(read(b"".join(pieces)), lambda *_: Fickle())
    assert difference is not None
    assert difference.found is not None
    assert (difference.number, difference.recorded.name) == (2, "data_to_send")
    assert (difference.recorded.result, difference.found.result) == (b"\0", b"\1")


def test_a_capture_of_nobody_knows_what() -> None:
    with pytest.raises(CaptureError) as caught:
        replay(read(MAGIC + write_block(Header().encode())))
    assert caught.value.code is ErrorCode.NO_MACHINE
    with pytest.raises(CaptureError) as caught:
        replay(read(MAGIC + write_block(Header(machine="no such").encode())))
    assert caught.value.code is ErrorCode.NO_MACHINE


@pytest.mark.parametrize("redact", [frozenset[Redact](), {Redact.KEYS}], ids=["whole", "keys"])
def test_keys_are_left_out_unless_they_are_asked_for(redact: Set[Redact]) -> None:
    key = SigningKey(bytes(range(32)))
    secrets = not redact
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, redact=redact)
    machine = recorder.stand_in(Taker())
    machine.take(key)
    recorder.flush()
    capture = b"".join(pieces)
    assert (bytes(key) in capture) is secrets
    if secrets:
        assert replay(read(capture), lambda *_: Taker()) is None
        return
    with pytest.raises(CaptureError) as caught:
        replay(read(capture), lambda *_: Taker())
    assert caught.value.code is ErrorCode.OPAQUE


def handshake(redact: Set[Redact]) -> bytes:
    """A server's handshake with a client, as recorded."""
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine="ssb-handshake", redact=redact)
    server: Any = recorder.stand_in(lookup("ssb-handshake").make({}))
    client: Any = lookup("ssb-handshake").make({"role": "CLIENT"})
    for _ in range(3):
        server.receive_data(client.data_to_send())
        drained(server)
        client.receive_data(server.data_to_send())
        drained(client)
    recorder.flush()
    return b"".join(pieces)


def drained(machine: Any) -> list[Any]:
    return list(iter(machine.next_event, None))


def authenticated(capture: bytes) -> Step:
    steps = [each for each in read(capture) if isinstance(each.result, dict)]
    return next(each for each in steps if "Authenticated" in each.result[""])


def test_the_keys_of_a_session_are_left_out_and_the_rest_is_replayed() -> None:
    capture = handshake({Redact.KEYS})
    keys = authenticated(capture).result["fields"]["keys"]["fields"]["send"]["fields"]
    assert keys["key"] == keys["nonce"] == {"": "secret", "type": "bytes"}
    assert read(capture).header.redacted == {Redact.KEYS}
    assert replay(read(capture)) is None
    whole = authenticated(handshake(frozenset())).result["fields"]["keys"]["fields"]
    assert len(whole["send"]["fields"]["key"]) == 32


SECRETS = {bytes: bytes(range(32)), str: "a password, as it were"}


@pytest.mark.parametrize("name", names())
def test_secret_settings_and_arguments_are_left_out(name: str) -> None:
    kind = lookup(name)
    config = {key.name: SECRETS[key.type] for key in kind.keys if key.secret}  # type: ignore[index]
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine=name, config=config)
    machine = recorder.stand_in(kind.make(config))
    if hasattr(machine, "rekey"):
        machine.rekey([SECRETS[bytes], bytes(32)])
        machine.rekey(keys=[SECRETS[bytes]])
        recorder.verb("rekey", Node.rekey, machine, {"keys": [SECRETS[bytes]]})
    recorder.flush()
    capture = read(b"".join(pieces))
    written = repr([capture.header, *capture])
    assert not [secret for secret in SECRETS.values() if repr(secret)[1:] in written]
    if config:
        with pytest.raises(CaptureError) as caught:
            replay(read(b"".join(pieces)))
        assert caught.value.code is ErrorCode.OPAQUE


@pytest.mark.parametrize("name", names())
def test_what_is_called_a_secret_is_one(name: str) -> None:
    kind = lookup(name)
    words = re.compile("secret|password|keys?")
    settings = {key.name for key in kind.keys if words.fullmatch(key.name)}
    assert settings == {key.name for key in kind.keys if key.secret}
    machine = type(kind.make({}))
    public = [each for each in dir(machine) if not each.startswith("_")]
    functions = {each: getattr(machine, each) for each in public} | dict(kind.verbs)
    calls = {
        each
        for each, function in functions.items()
        if isfunction(function) and any(map(words.fullmatch, signature(function).parameters))
    }
    assert calls <= SECRET_CALLS


@pytest.mark.parametrize("config", [{"no such": 1}, {"role": 7}, {"role": None}, {"role": "X"}])
def test_settings_of_no_machine(config: dict[str, Any]) -> None:
    header = Header(machine="bymux", config=config)
    with pytest.raises(CaptureError) as caught:
        replay(read(MAGIC + write_block(header.encode())))
    assert caught.value.code is ErrorCode.NO_MACHINE


@pytest.mark.parametrize("began", [float("nan"), float("inf"), -1, 2.0**41])
def test_a_beginning_at_no_time(began: float) -> None:
    with pytest.raises(CaptureError) as caught:
        read(MAGIC + write_block(Header(began=began).encode()))
    assert caught.value.code is ErrorCode.BAD_RECORD


def test_payloads_are_left_out_on_demand_and_sizes_are_kept() -> None:
    capture = handshake({Redact.KEYS, Redact.PAYLOADS})
    first = next(iter(read(capture)))
    assert first.arguments == [{"": "payload", "type": "bytes", "size": 64}]
    assert authenticated(capture).state is not None
    with pytest.raises(CaptureError) as caught:
        replay(read(capture))
    assert caught.value.code is ErrorCode.OPAQUE
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, redact={Redact.PAYLOADS})
    recorder.stand_in(Teller()).told({"a name": [1, b"some bytes"]}, text="some text")
    recorder.flush()
    found = b"".join(pieces)
    assert b"name" not in found
    assert b"some" not in found
    assert b"told" in found


class Teller:
    """Takes any input."""

    def told(self, *_arguments: object, text: str) -> Exception:
        return ValueError(len(text))


class Taker:
    """Takes a key."""

    def take(self, key: SigningKey) -> int:
        return len(bytes(key))


def test_a_sink_that_raises_ends_the_capture_and_not_the_machine() -> None:
    pieces: list[bytes] = []

    def sink(piece: bytes) -> None:
        if len(pieces) > 1:
            raise OSError(28, "the disk is full")
        pieces.append(piece)

    recorder = Recorder(sink, machine="bymux", config={})
    machine = recorder.stand_in(lookup("bymux").make({}))
    recorder.flush()
    for _ in range(10_000):
        machine.receive_data(b"")
        assert len(recorder.waiting) < 1 << 17  # nothing accumulates
    assert recorder.error is not None
    machine.receive_eof()
    assert type(machine.next_event()) is Closed
    with pytest.raises(OSError, match="full"):
        recorder.flush()
    assert list(read(b"".join(pieces))) == []


def test_a_checksum_is_of_xxh3_however_the_bytes_are_cut() -> None:
    data = bytes(range(256)) * 9
    assert checksum_of(data) == int(xxhash.xxh3_64_hexdigest(data)[-8:], 16)
    assert checksum_of(data[:5], b"", data[5:]) == checksum_of(data)
