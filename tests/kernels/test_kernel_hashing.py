"""Columns of messages: one suite for the compiled kernel and its pure twin."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from array import array
from itertools import accumulate
from random import Random

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from kernel_twins import twin
from nacl.signing import SigningKey

from culm.bamboo.entry import Entry, decode, sign
from culm.bamboo.links import SEQNUM_MAX, has_lipmaalink, lipmaa
from culm.wire.errors import DecodeError
from culm.wire.multihash import YAMF, YASMF, HashFamily

BLAKE2B, BLAKE3, SHA256 = FUNCTIONS = range(3)
DIGESTS = {
    BLAKE2B: lambda message: hashlib.blake2b(message).digest(),
    BLAKE3: lambda message: blake3(message).digest(),
    SHA256: lambda message: hashlib.sha256(message).digest(),
}
KEYS = [SigningKey(bytes([number] * 32)) for number in range(3)]
# Around every boundary of blocks, chunks and methods of hashing.
SIZES = [0, 1, 2, 63, 64, 65, 127, 128, 129, 252, 399, 400, 401, 1023, 1024, 1025, 3000]

sizes = st.sampled_from(SIZES) | st.integers(0, 1100)
messages = st.lists(
    sizes.flatmap(lambda size: st.binary(min_size=size, max_size=size)), max_size=20
)


def column(parts: list[bytes], code: str = "i", before: bytes = b"", after: bytes = b""):
    """Data and offsets of a column that lies between other bytes."""
    offsets = array(code, accumulate(map(len, parts), initial=len(before)))
    return before + b"".join(parts) + after, offsets


# Hashes


@given(st.sampled_from(FUNCTIONS), messages, st.sampled_from([b"", b"\0\x40"]), st.data())
def test_a_hash_of_many_is_that_of_each(hashing, function, parts, prefix, data):
    code = data.draw(st.sampled_from("iq"))
    before, after = data.draw(st.binary(max_size=9)), data.draw(st.binary(max_size=9))
    hashes = hashing.hash_many(function, *column(parts, code, before, after), prefix)
    assert hashes == b"".join([prefix + DIGESTS[function](part) for part in parts])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_hashes_of_all_sizes(hashing, function):
    noise = Random(1).randbytes(1200)
    parts = [noise[:size] for size in range(1200)] + [noise * 30, noise * 1000]
    parts += [(noise * 2)[:size] for size in (2047, 2048, 2049)]
    wanted = b"".join(map(DIGESTS[function], parts))
    assert hashing.hash_many(function, *column(parts, "q"), b"") == wanted


@pytest.mark.parametrize("function", [-1, 3])
def test_there_are_three_functions(hashing, function):
    with pytest.raises(ValueError, match="no hash function has the number"):
        hashing.hash_many(function, b"", array("i", [0]), b"")


# Signatures


@st.composite
def signed(draw: st.DrawFn) -> tuple[bytes, bytes, bytes, bool]:
    """A key, a signature, a message, and whether the signature is valid."""
    key, message = draw(st.sampled_from(KEYS)), draw(st.binary(max_size=300))
    signature = bytearray(key.sign(message).signature)
    public = bytearray(key.verify_key.encode())
    match draw(
        st.sampled_from(["right", "right", "signature", "key", "message", "scalar", "order"])
    ):
        case "right":
            return bytes(public), bytes(signature), message, True
        case "signature":
            signature[draw(st.integers(0, 63))] ^= 1 << draw(st.integers(0, 7))
        case "key":
            public[draw(st.integers(0, 31))] ^= 1 << draw(st.integers(0, 7))
        case "message":
            message += b"\0"
        case "scalar":  # the same scalar, larger by the order of the group
            order = 2**252 + 27742317777372353535851937790883648493
            scalar = int.from_bytes(signature[32:], "little") + order
            signature[32:] = scalar.to_bytes(32, "little")
        case "order":  # a key of small order
            public[:] = bytes(32)
    return bytes(public), bytes(signature), message, False


@given(st.lists(signed(), max_size=12), st.integers(0, 70), st.sampled_from("iq"))
def test_signatures_are_verified_each_for_itself(hashing, rows, unsigned, code):
    parts = [message + bytes(unsigned) for _, _, message, _ in rows]
    keys, signatures = (b"".join(row[at] for row in rows) for at in (0, 1))
    valid = hashing.verify_many(keys, signatures, *column(parts, code, b"x"), unsigned)
    assert valid == bytes(right for *_, right in rows)


def test_a_message_shorter_than_what_is_not_signed_of_it_is_not_signed(hashing):
    key = KEYS[0]
    signature = key.sign(b"").signature
    parts = [bytes(9), bytes(10), bytes(11)]
    keys = bytes(key.verify_key) * 3
    assert hashing.verify_many(keys, signature * 3, *column(parts), 10) == b"\0\1\0"
    assert hashing.verify_many(keys, signature * 3, *column(parts), 2**62) == b"\0\0\0"


def test_keys_and_signatures_have_to_be_as_many_as_messages(hashing):
    data, offsets = column([b"one", b"two"])
    for keys, signatures in ((63, 128), (64, 127), (96, 128), (64, 192), (0, 0)):
        with pytest.raises(ValueError, match="32 bytes of key and 64 of signature"):
            hashing.verify_many(bytes(keys), bytes(signatures), data, offsets, 0)
    with pytest.raises(ValueError, match="fewer than 0"):
        hashing.verify_many(bytes(64), bytes(128), data, offsets, -1)


#: Works on a column in a separate interpreter, and reports the libraries called.
_CALLS = """
import hashlib, nacl.bindings, nacl._sodium
from array import array
called = set()
def counted(name, function):
    def call(*arguments):
        called.add(name)
        return function(*arguments)
    return call
hash_one, hashlib.blake2b = hashlib.blake2b, counted("blake2b", hashlib.blake2b)
nacl.bindings.crypto_sign_open = counted("crypto_sign_open", nacl.bindings.crypto_sign_open)
{first}
from nacl.signing import SigningKey
from culm.kernels import load
kernel = load("hashing", "compiled")
data, offsets = b"onetwothree", array("i", [0, 3, 6, 11])
parts = [b"one", b"two", b"three"]
assert kernel.hash_many(0, data, offsets, b"!") == b"".join(
    b"!" + hash_one(part).digest() for part in parts)
key = SigningKey(bytes(32))
signatures = b"".join(key.sign(part).signature for part in (b"one", b"too", b"three"))
keys = bytes(key.verify_key) * 3
assert kernel.verify_many(keys, signatures, data, offsets, 0) == bytes([1, 0, 1])
assert kernel.verify_many(keys, signatures, data, offsets, 4) == bytes([0, 0, 0])
for wrong in ([0, 3, 2, 11], [-1, 3, 6, 11], [0, 3, 6, 12]):
    for call in (lambda: kernel.hash_many(0, data, array("i", wrong), b""),
                 lambda: kernel.verify_many(keys, signatures, data, array("i", wrong), 0)):
        try:
            call()
        except ValueError:
            continue
        raise AssertionError(wrong)
print(*sorted(called))
"""


def called(first: str = "") -> list[str]:
    twin("hashing", "compiled")
    command = [sys.executable, "-c", _CALLS.format(first=first)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_without_the_addresses_of_libsodium_the_result_is_the_same():
    """PyNaCl and hashlib are called instead."""
    assert called("nacl._sodium.ffi = None") == ["blake2b", "crypto_sign_open"]


def test_the_addresses_of_libsodium_are_found():
    assert called() == []


# Entries


@pytest.fixture(params=[YAMF, YASMF], ids=repr, scope="session")
def family(request: pytest.FixtureRequest) -> HashFamily:
    return request.param


numbers = st.one_of(
    st.integers(0, 300), st.sampled_from([2**k for k in range(64)]), st.integers(0, SEQNUM_MAX)
)


@st.composite
def entries(draw: st.DrawFn, family: HashFamily) -> bytes:
    seqnum = max(1, draw(numbers))
    link = family.prefix + draw(st.binary(min_size=family.digest_size, max_size=family.digest_size))
    return sign(
        draw(st.sampled_from(KEYS)),
        family=family,
        log_id=draw(numbers),
        seqnum=seqnum,
        payload_size=draw(numbers),
        payload_hash=family.hash(b""),
        backlink=link if seqnum > 1 else None,
        lipmaalink=link[:-1] + b"\7" if has_lipmaalink(seqnum) else None,
        end_of_log=draw(st.booleans()),
    ).encode()


@st.composite
def nearly(draw: st.DrawFn, family: HashFamily) -> bytes:
    """An entry, valid or nearly so."""
    data = bytearray(draw(entries(family)))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        at = draw(st.integers(0, len(data)) | st.integers(0, min(60, len(data))))
        match draw(st.sampled_from(["cut", "insert", "set", "append", "wide"])):
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(max_size=3))
            case "set":
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "append":
                data += draw(st.binary(max_size=2))
            case "wide":  # a number written longer than necessary
                data[at : at + 1] = bytes([248]) + data[at : at + 1]
    return bytes(data)


def by_rows(columns: dict[str, bytes], count: int) -> list[dict[str, bytes]]:
    """The values of each row, which have one size in a column."""
    rows = []
    for index in range(count):
        row = {}
        for name, values in columns.items():
            size = len(values) // count
            row[name] = values[size * index : size * (index + 1)]
        rows.append(row)
    return rows


def number(value: bytes) -> int:
    return int.from_bytes(value, sys.byteorder)


def check_row(row: dict[str, bytes], encoded: bytes, family: HashFamily) -> None:
    if row["faults"] != b"\0":
        fault = row.pop("faults")
        with pytest.raises(DecodeError) as raised:
            decode(encoded, family=family)
        assert fault == bytes([raised.value.code])
        assert not any(map(any, row.values()))
        return
    entry = decode(encoded, family=family)
    absent = bytes(family.encoded_size)
    assert row == {
        "faults": b"\0",
        "ends": bytes([entry.end_of_log]),
        "authors": entry.author,
        "log_ids": row["log_ids"],
        "seqnums": row["seqnums"],
        "places": b"".join(
            [entry.author, entry.log_id.to_bytes(8, "big"), entry.seqnum.to_bytes(8, "big")]
        ),
        "targets": row["targets"],
        "lipmaalinks": entry.lipmaalink or absent,
        "backlinks": entry.backlink or absent,
        "payload_sizes": row["payload_sizes"],
        "payload_hashes": entry.payload_hash,
        "signatures": entry.signature,
    }
    found = [number(row[name]) for name in ("log_ids", "seqnums", "targets", "payload_sizes")]
    assert found == [entry.log_id, entry.seqnum, lipmaa(entry.seqnum), entry.payload_size]


@given(st.data())
def test_entries_are_decoded_as_one_by_one(hashing, family, data):
    parts = data.draw(st.lists(nearly(family), max_size=6))
    code, before = data.draw(st.sampled_from("iq")), data.draw(st.binary(max_size=3))
    columns = hashing.decode_entries(*column(parts, code, before), family.digest_size)
    for row, encoded in zip(by_rows(columns, len(parts)), parts, strict=True):
        check_row(row, encoded, family)


def test_an_entry_cut_anywhere_is_truncated(hashing, family):
    entry = sign(
        KEYS[0],
        family=family,
        log_id=2**40,
        seqnum=13,
        payload=b"payload",
        backlink=family.hash(b"back"),
        lipmaalink=family.hash(b"lipmaa"),
    )
    encoded = entry.encode()
    parts = [encoded[:size] for size in range(len(encoded) + 1)]
    columns = hashing.decode_entries(*column(parts), family.digest_size)
    assert columns["faults"] == b"\1" * len(encoded) + b"\0"
    assert isinstance(decode(encoded, family=family), Entry)


@pytest.mark.parametrize("size", [-1, 0, 248, 2**40])
def test_digests_have_a_size(hashing, size):
    with pytest.raises(ValueError, match="a digest has 1 to 247 bytes"):
        hashing.decode_entries(b"", array("i", [0]), size)


# Columns


def calls(hashing, data, offsets):
    count = max(len(offsets) - 1, 0) if hasattr(offsets, "__len__") else 0
    yield lambda: hashing.decode_entries(data, offsets, 32)
    yield lambda: hashing.verify_many(bytes(32 * count), bytes(64 * count), data, offsets, 0)
    for function in FUNCTIONS:
        yield lambda function=function: hashing.hash_many(function, data, offsets, b"")


@pytest.mark.parametrize("code", ["i", "l", "q"])
@pytest.mark.parametrize(
    "offsets",
    [
        [-1],
        [11],
        [0, 11],
        [-1, 3],
        [3, 2],
        [0, 5, 4, 10],
        [0, 2**31 - 1],
        [-(2**31), 0],
        [9, 10, 11],
    ],
)
def test_offsets_ascend_and_stay_inside(hashing, code, offsets):
    for call in calls(hashing, bytes(10), array(code, offsets)):
        with pytest.raises(ValueError, match="offsets ascend and stay inside"):
            call()


@pytest.mark.parametrize("offsets", [[2**63 - 1, 2**63 - 1], [0, 2**63 - 1], [-(2**63), 0]])
def test_offsets_at_the_end_of_numbers(hashing, offsets):
    for call in calls(hashing, bytes(10), array("q", offsets)):
        with pytest.raises(ValueError, match="offsets ascend and stay inside"):
            call()


@pytest.mark.parametrize("offsets", [[], [0], [7], [10]])
def test_no_message_is_nothing(hashing, offsets):
    for call in calls(hashing, bytes(10), array("i", offsets)):
        made = call()
        assert made == b"" or set(made.values()) == {b""}


@pytest.mark.parametrize("code", ["I", "Q", "h", "d", "b", "B"])
def test_offsets_of_another_type_are_refused(hashing, code):
    for call in calls(hashing, bytes(10), array(code, [0, 4])):
        with pytest.raises(TypeError, match="signed integers of 32 or 64 bits"):
            call()


@pytest.mark.parametrize("wrong", [None, 7, "text", [b"one"]])
def test_what_is_no_buffer_is_refused(hashing, wrong):
    for call in [*calls(hashing, wrong, array("i", [0])), *calls(hashing, b"", wrong)]:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        hashing.hash_many(BLAKE2B, b"", array("i", [0]), wrong)


def test_buffers_of_any_kind_serve(hashing):
    data, offsets = column([b"one", b"two", b"three"], "q")
    wanted = hashing.hash_many(BLAKE2B, data, offsets, b"")
    shifted = memoryview(b"12345" + offsets.tobytes())[5:].cast("q")  # not aligned
    for kind in (bytearray, memoryview, lambda data: memoryview(data).cast("b")):
        assert hashing.hash_many(BLAKE2B, kind(data), shifted, b"") == wanted


def test_other_threads_run_meanwhile():
    """Each of two threads waits for the other: without that, one would finish first."""
    kernel = twin("hashing", "compiled")
    key = KEYS[0]
    count = 3000
    data, offsets = column([b"message"] * count)
    keys, signatures = bytes(key.verify_key) * count, key.sign(b"message").signature * count
    running, seen = threading.Event(), []

    def verify() -> None:
        running.set()
        seen.append(kernel.verify_many(keys, signatures, data, offsets, 0))

    thread = threading.Thread(target=verify)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # the thread with the lock is not forced to release it
    try:
        thread.start()
        running.wait()
        while_it_ran = not seen
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert while_it_ran
    assert seen == [bytes([1]) * count]
