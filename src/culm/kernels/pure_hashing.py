"""Whole columns of messages: the specification of `culm.kernels._hashing`.

A column is a buffer of `data` and `offsets` into it, one more than there are messages, as in
Arrow: message i lies between offset i and offset i + 1.  Offsets are signed integers of 32 or
64 bits (an ``array('i')``, a memoryview cast to ``q``) that ascend inside the buffer.

Compiled, all of it lets other threads run.  Data and offsets must not change meanwhile: if they
do, the results are worthless, though nothing outside of the buffers is ever read.

Wrong calls raise: ``ValueError`` for offsets that do not ascend inside the buffer, buffers of a
wrong size, an unknown function; ``TypeError`` for anything but a buffer, or offsets of another
type.

Sources: BLAKE2, RFC 7693; BLAKE3, the paper; SHA-256, FIPS 180-4; Ed25519 as libsodium
verifies it; Bamboo, "Encoding".
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import itemgetter
from struct import Struct

from blake3 import blake3
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from culm.kernels.pure_lipmaa import lipmaa
from culm.kernels.pure_varu64 import NON_CANONICAL, decode

__all__ = ["BLAKE2B", "BLAKE3", "SHA256", "decode_entries", "hash_many", "verify_many"]

Buffer = bytes | bytearray | memoryview

BLAKE2B = 0
BLAKE3 = 1
SHA256 = 2

# Faults of an entry: the numbers of `culm.wire.errors.WireErrorCode`.
_TRUNCATED, _NON_CANONICAL, _BAD_TYPE, _BAD_LENGTH, _BAD_VALUE, _TRAILING_DATA = 1, 2, 3, 4, 6, 7

_FUNCTIONS: dict[int, Callable[[bytes], bytes]] = {
    BLAKE2B: lambda message: hashlib.blake2b(message).digest(),
    BLAKE3: lambda message: blake3(message).digest(),
    SHA256: lambda message: hashlib.sha256(message).digest(),
}
_KEY_SIZE, _SIGNATURE_SIZE = 32, 64
_DIGEST_SIZE_MAX = 247
_NUMBER = Struct("=Q")
_PLACE = Struct(">32sQQ")


def hash_many(
    function: int, data: Buffer, offsets: array[int] | memoryview, prefix: bytes
) -> bytes:
    """The hash of each message, after `prefix`, in one piece.

    `function` is ``BLAKE2B`` (64 bytes), ``BLAKE3`` or ``SHA256`` (32 bytes each).
    """
    if function not in _FUNCTIONS:
        raise ValueError(f"no hash function has the number {function}")
    digest = _FUNCTIONS[function]
    _check_bytes("prefix", prefix)
    return b"".join([prefix + digest(message) for message in _messages(data, offsets)])


def verify_many(
    keys: Buffer, signatures: Buffer, data: Buffer, offsets: array[int] | memoryview, unsigned: int
) -> bytes:
    """For each message 1 or 0, in a byte: whether its key has signed it with Ed25519.

    `keys` has 32 bytes for each message, `signatures` 64.  The last `unsigned` bytes of each
    message are not signed; one that is shorter than that has no valid signature.
    """
    if unsigned < 0:
        raise ValueError("a message does not end with fewer than 0 bytes")
    messages = list(_messages(data, offsets))
    keys, signatures = bytes(memoryview(keys)), bytes(memoryview(signatures))
    if len(keys) != _KEY_SIZE * len(messages) or len(signatures) != _SIGNATURE_SIZE * len(messages):
        raise ValueError("there are 32 bytes of key and 64 of signature for each message")
    valid = bytearray()
    for index, message in enumerate(messages):
        signature = signatures[_SIGNATURE_SIZE * index : _SIGNATURE_SIZE * (index + 1)]
        key = keys[_KEY_SIZE * index : _KEY_SIZE * (index + 1)]
        signed = message[: len(message) - unsigned]
        valid.append(unsigned <= len(message) and _is_signed(key, signature, signed))
    return bytes(valid)


def decode_entries(
    data: Buffer, offsets: array[int] | memoryview, digest_size: int
) -> dict[str, bytes]:
    """Decode Bamboo entries whose hashes have digests of `digest_size` bytes, 1 to 247.

    Returns columns, the values of each one after the other; numbers have 64 bits, in the
    machine's order of bytes:

    - ``faults``: a byte, 0 or the number of a `culm.wire.errors.WireErrorCode`.  Of an entry
      with a fault all else is zeros.
    - ``ends``: a byte, 1 if the entry ends the log.
    - ``authors``: 32 bytes.  ``log_ids``, ``seqnums``: numbers.
    - ``places``: author, log id and sequence number in 48 bytes, big-endian, so that they sort.
    - ``targets``: numbers, of the entry to which a lipmaalink points; 0 for entry 1.
    - ``lipmaalinks``, ``backlinks``: encoded hashes.  Zeros where there is none: no backlink
      in entry 1, no lipmaalink where it points to the entry before, too.
    - ``payload_sizes``: numbers.  ``payload_hashes``: encoded hashes.
    - ``signatures``: 64 bytes.
    """
    if not 1 <= digest_size <= _DIGEST_SIZE_MAX:
        raise ValueError(f"a digest has 1 to {_DIGEST_SIZE_MAX} bytes")
    rows = [_decode(message, digest_size) for message in _messages(data, offsets)]
    return {name: b"".join(map(itemgetter(name), rows)) for name in _nothing(0, digest_size)}


def _messages(data: Buffer, offsets: array[int] | memoryview) -> Iterator[bytes]:
    cuts = memoryview(offsets)
    if cuts.format not in {"i", "l", "q"} or cuts.ndim != 1:
        raise TypeError("offsets are signed integers of 32 or 64 bits")
    view = memoryview(data).cast("B")
    stop = 0
    for cut in cuts:
        if not stop <= cut <= len(view):
            raise ValueError("offsets ascend and stay inside the buffer")
        stop = cut
    return (bytes(view[start:end]) for start, end in pairwise(cuts))


def _check_bytes(name: str, value: object) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"{name} is bytes, not {type(value).__name__}")


def _is_signed(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        crypto_sign_open(signature + message, key)
    except BadSignatureError:
        return False
    return True


class _Fault(Exception):
    """The end of decoding, with the number of the fault."""


def _decode(data: bytes, digest_size: int) -> dict[str, bytes]:
    try:
        return _fields(data, digest_size)
    except _Fault as fault:
        return _nothing(fault.args[0], digest_size)


def _nothing(fault: int, digest_size: int) -> dict[str, bytes]:
    number, hash = bytes(8), bytes(digest_size + 2)
    return {
        "faults": bytes([fault]),
        "ends": bytes(1),
        "authors": bytes(_KEY_SIZE),
        "log_ids": number,
        "seqnums": number,
        "places": bytes(_PLACE.size),
        "targets": number,
        "lipmaalinks": hash,
        "backlinks": hash,
        "payload_sizes": number,
        "payload_hashes": hash,
        "signatures": bytes(_SIGNATURE_SIZE),
    }


def _fields(data: bytes, digest_size: int) -> dict[str, bytes]:
    if not data:
        raise _Fault(_TRUNCATED)
    if data[0] > 1:
        raise _Fault(_BAD_TYPE)
    author = data[1 : 1 + _KEY_SIZE]
    log_id, at = _varu64(data, 1 + _KEY_SIZE)
    seqnum, at = _varu64(data, at)
    if not seqnum:
        raise _Fault(_BAD_VALUE)
    lipmaalink = backlink = bytes(digest_size + 2)
    if lipmaa(seqnum) < seqnum - 1:
        lipmaalink, at = _hash(data, at, digest_size)
    if seqnum > 1:
        backlink, at = _hash(data, at, digest_size)
    payload_size, at = _varu64(data, at)
    payload_hash, at = _hash(data, at, digest_size)
    signature = data[at : at + _SIGNATURE_SIZE]
    if len(signature) < _SIGNATURE_SIZE:
        raise _Fault(_TRUNCATED)
    if len(data) > at + _SIGNATURE_SIZE:
        raise _Fault(_TRAILING_DATA)
    return {
        "faults": bytes(1),
        "ends": data[:1],
        "authors": author,
        "log_ids": _NUMBER.pack(log_id),
        "seqnums": _NUMBER.pack(seqnum),
        "places": _PLACE.pack(author, log_id, seqnum),
        "targets": _NUMBER.pack(lipmaa(seqnum)),
        "lipmaalinks": lipmaalink,
        "backlinks": backlink,
        "payload_sizes": _NUMBER.pack(payload_size),
        "payload_hashes": payload_hash,
        "signatures": signature,
    }


def _varu64(data: bytes, at: int) -> tuple[int, int]:
    value, end = decode(data, at, True)
    if end < 0:
        raise _Fault(_NON_CANONICAL if end == NON_CANONICAL else _TRUNCATED)
    return value, end


def _hash(data: bytes, at: int, digest_size: int) -> tuple[bytes, int]:
    """The encoded hash at `at`, and where it ends."""
    function, size_at = _varu64(data, at)
    if function != 0:
        raise _Fault(_BAD_TYPE)
    size, digest_at = _varu64(data, size_at)
    if size != digest_size:
        raise _Fault(_BAD_LENGTH)
    end = digest_at + digest_size
    if end > len(data):
        raise _Fault(_TRUNCATED)
    return data[at:end], end
