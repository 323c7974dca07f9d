from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm_io.programs.directory.records import (
    CHUNK_SIZE,
    PACK_SIZE_MAX,
    PAYLOAD_SIZE_MAX,
    PREFIX_SIZE,
    STAGING,
    Directory,
    File,
    Link,
    Record,
    RecordError,
    Removed,
    decode,
    encode,
    encode_pack,
    is_inside,
)

NAMES = (
    st.binary(min_size=1, max_size=20)
    .map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_"))
    .filter(lambda name: name not in {b".", b"..", STAGING})
)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(b"/".join)
MODES = st.integers(0, 0o777)


@st.composite
def files(draw: st.DrawFn) -> File:
    chunks = draw(st.integers(1, 1 << 32))
    chunk = draw(st.integers(0, chunks - 1))
    mtime = draw(st.integers(-(1 << 63), (1 << 63) - 1))
    zeros = draw(st.integers(0, (1 << 63) - 1))
    return File(draw(PATHS), draw(MODES), mtime, chunk, chunks, zeros)


RECORDS = st.one_of(
    files(),
    st.builds(Directory, PATHS, MODES),
    st.builds(Link, PATHS, PATHS),
    st.builds(Removed, PATHS),
)


@given(RECORDS, st.binary(max_size=300))
def test_what_is_encoded_decodes(record: Record, content: bytes) -> None:
    if not isinstance(record, File):
        content = b""
    payload = encode(record, content)
    (piece,) = decode(payload, len(payload))
    assert piece.record == record
    assert payload[piece.offset :] == content
    assert piece.size == len(content)


PACKED = st.one_of(
    files().map(lambda file: replace(file, chunk=0, chunks=1)),
    RECORDS.filter(lambda record: not isinstance(record, File)),
)


@given(st.lists(st.tuples(PACKED, st.binary(max_size=30)), min_size=1, max_size=20))
def test_a_pack_is_its_records_in_their_order(items: list[tuple[Record, bytes]]) -> None:
    records = [record for record, _ in items]
    contents = [content if isinstance(record, File) else b"" for record, content in items]
    payload = encode_pack(records, contents)
    pieces = decode(payload, len(payload))
    assert [piece.record for piece in pieces] == records
    assert [payload[piece.offset :][: piece.size] for piece in pieces] == contents


def test_a_pack_says_what_its_records_say_by_themselves() -> None:
    records = [Directory(b"a", 0o755), File(b"a/b", 0o644, 5, 0, 1), Removed(b"c")]
    alone = [cbor2.loads(encode(record))[0] for record in records]
    assert cbor2.loads(encode_pack(records, [b"", b"text", b""])) == [
        {"kind": "pack", "records": alone, "sizes": [0, 4, 0]},
        b"text",
    ]


@pytest.mark.parametrize(
    ("record", "content"),
    [
        (File(b"a", 0o644, 5, 0, 2), b""),
        (File(b"a", 0o644, 5, 1, 2), b""),
        (Removed(b"a"), b"content"),
        (File(b"a", 0o644, 5, 0, 1), bytes(PACK_SIZE_MAX)),
        (File(b"..", 0o644, 5, 0, 1), b""),
    ],
)
def test_what_does_not_go_into_a_pack(record: Record, content: bytes) -> None:
    with pytest.raises(RecordError):
        encode_pack([record], [content])


@pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 65535, 65536, CHUNK_SIZE])
def test_the_beginning_of_a_payload_is_enough(size: int) -> None:
    record = File(b"/".join([b"n" * 255] * 15), 0o644, 1 << 60, 0, 1)
    payload = encode(record, bytes(size))
    assert len(payload) <= PAYLOAD_SIZE_MAX
    prefix = payload if len(payload) <= PACK_SIZE_MAX else payload[:PREFIX_SIZE]
    assert decode(prefix, len(payload)) == [(record, len(payload) - size, size)]


def test_a_payload_is_cbor_with_names() -> None:
    assert cbor2.loads(encode(File(b"a", 0o644, 5, 0, 2), b"text")) == [
        {"kind": "file", "path": b"a", "mode": 0o644, "mtime": 5, "chunk": 0, "chunks": 2},
        b"text",
    ]


GOOD: dict[str, Any] = {
    "kind": "file",
    "path": b"a",
    "mode": 0o644,
    "mtime": 5,
    "chunk": 0,
    "chunks": 1,
}
PACK: dict[str, Any] = {"kind": "pack", "records": [GOOD, GOOD | {"path": b"b"}], "sizes": [1, 2]}
LINK = {"kind": "link", "path": b"d/l"}
DEEP = b"\x81" * 5000


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"/",
        b"/etc/passwd",
        b"..",
        b"../a",
        b"a/../../b",
        b"a/..",
        b"a/./b",
        b".",
        b"a//b",
        b"a/",
        b"a\0b",
        b"n" * 256,
        b"/".join([b"n"] * 3000),
        STAGING,
        STAGING + b"/file",
        "a",
        5,
        None,
    ],
)
def test_a_path_that_names_nothing_inside_is_refused(path: object) -> None:
    payload = cbor2.dumps([GOOD | {"path": path}, b""])
    with pytest.raises(RecordError, match="path"):
        decode(payload, len(payload))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x82",
        b"\x82\xa0",
        cbor2.dumps({}),
        cbor2.dumps([GOOD]),
        cbor2.dumps([GOOD, b"", b""]),
        cbor2.dumps([GOOD, ""]),
        cbor2.dumps([GOOD, b""]) + b"x",
        cbor2.dumps([GOOD, b"x"])[:-1],
        cbor2.dumps([GOOD, None]),
        cbor2.dumps([GOOD])[:1] + b"\x82",
        b"\x82" + cbor2.dumps(GOOD) + b"\x5f\x41x\xff",  # indefinite
        b"\x82" + cbor2.dumps(GOOD) + b"\x5c",  # reserved
        b"\x82" + cbor2.dumps(GOOD) + b"\x5b",  # cut
        cbor2.dumps([list(GOOD.items()), b""]),
        cbor2.dumps([GOOD | {"kind": "fifo"}, b""]),
        cbor2.dumps([GOOD | {"kind": []}, b""]),
        cbor2.dumps([GOOD | {"owner": 0}, b""]),
        cbor2.dumps([{name: GOOD[name] for name in GOOD if name != "mode"}, b""]),
        cbor2.dumps([GOOD | {"mode": 0o1000}, b""]),
        cbor2.dumps([GOOD | {"mode": -1}, b""]),
        cbor2.dumps([GOOD | {"mode": True}, b""]),
        cbor2.dumps([GOOD | {"mode": 1.0}, b""]),
        cbor2.dumps([GOOD | {"mode": 1 << 20000}, b""]),
        cbor2.dumps([GOOD | {"mtime": 1 << 63}, b""]),
        cbor2.dumps([GOOD | {"chunks": 0}, b""]),
        cbor2.dumps([GOOD | {"chunk": 1}, b""]),
        cbor2.dumps([GOOD | {"chunk": -1}, b""]),
        cbor2.dumps([GOOD | {"chunks": (1 << 32) + 1}, b""]),
        cbor2.dumps([{"kind": "removed", "path": b"a"}, b"content"]),
        cbor2.dumps([{"kind": "directory", "path": b"a", "mode": 0o755}, b"content"]),
        cbor2.dumps([LINK | {"target": b"../../a"}, b""]),
        cbor2.dumps([LINK | {"target": "a"}, b""]),
        cbor2.dumps([GOOD | {"path": b"a" * PREFIX_SIZE}, b""]),
        cbor2.dumps([GOOD | {"zeros": -1}, b""]),
        cbor2.dumps([GOOD | {"zeros": 1 << 63}, b""]),
        cbor2.dumps([{"kind": "removed", "path": b"a", "zeros": 1}, b""]),
        cbor2.dumps([PACK, b""]),
        cbor2.dumps([PACK, b"abcd"]),
        cbor2.dumps([PACK | {"sizes": [3]}, b"abc"]),
        cbor2.dumps([PACK | {"sizes": [4, -1]}, b"abc"]),
        cbor2.dumps([PACK | {"sizes": [True, 2]}, b"abc"]),
        cbor2.dumps([PACK | {"sizes": {1: 1, 2: 2}}, b"abc"]),
        cbor2.dumps([PACK | {"records": [GOOD, PACK]}, b"abc"]),
        cbor2.dumps([PACK | {"records": [GOOD, GOOD | {"path": b"../b"}]}, b"abc"]),
        cbor2.dumps([PACK | {"records": [GOOD, GOOD | {"chunks": 2}]}, b"abc"]),
        cbor2.dumps([PACK | {"records": [GOOD, {"kind": "removed", "path": b"b"}]}, b"abc"]),
        cbor2.dumps([PACK | {"records": 5}, b"abc"]),
        cbor2.dumps([PACK | {"mode": 5}, b"abc"]),
        cbor2.dumps([{"kind": "pack", "sizes": []}, b""]),
        cbor2.dumps([PACK | {"sizes": [0, PACK_SIZE_MAX]}, bytes(PACK_SIZE_MAX)]),
        b"\x82" + DEEP + b"\x00\x40",
        b"\x82\xc2\x42" + b"\xff\xff\x40",
        b"\x82\xd8\x23\x61(\x40",  # an invalid regular expression
    ],
)
def test_what_is_no_record_is_refused(payload: bytes) -> None:
    with pytest.raises(RecordError):
        decode(payload[:PREFIX_SIZE], len(payload))


def test_a_payload_larger_than_any_is_refused() -> None:
    payload = cbor2.dumps([GOOD, bytes(PAYLOAD_SIZE_MAX)])
    with pytest.raises(RecordError, match=f"a payload of {len(payload)} bytes"):
        decode(payload[:PREFIX_SIZE], len(payload))


@given(st.data())
def test_no_change_of_bytes_raises_anything_else(data: st.DataObject) -> None:
    records = data.draw(st.lists(PACKED, min_size=1, max_size=4))
    pack = encode_pack(records, [b""] * len(records))
    payload = bytearray(data.draw(st.sampled_from([encode(data.draw(RECORDS)), pack])))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RecordError):
        decode(bytes(payload), len(payload))


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        (b"l", b"a", True),
        (b"l", b"a/b/", True),
        (b"l", b"./a", True),
        (b"l", b".", True),
        (b"d/l", b"..", True),
        (b"d/l", b"../a", True),
        (b"d/e/l", b"../../a", True),
        (b"l", b"..", False),
        (b"l", b"../a", False),
        (b"d/l", b"../../a", False),
        (b"d/l", b"/a", False),
        (b"d/l", b"", False),
        (b"d/l", b"a\0", False),
        # Where "a" is replaced by a link, this is outside.
        (b"d/l", b"a/../../b", False),
        (b"d/e/l", b"a/..", False),
        (b"d/l", b"./../a", False),
    ],
)
def test_where_a_link_may_lead(path: bytes, target: bytes, inside: bool) -> None:
    assert is_inside(path, target) is inside
