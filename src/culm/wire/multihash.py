"""Self-describing hashes: YAMF (AljoschaMeyer/yamf-hash) and YASMF (bamboo-rs/yasmf-hash-spec).

Both are STLVs whose type names the hash function and whose value is the digest.  Both
give the number 0 to their only function, so bytes alone do not tell the families
apart: callers that read or write hashes say which family they mean.

Everywhere in culm a hash is its whole encoding, prefix included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from blake3 import blake3

from culm.arguments import check_type
from culm.buffer import Buffer
from culm.wire import stlv, varu64
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

_TYPE = 0  # the one hash function that each family has


class _Digester(Protocol):
    """The interface that hashlib and blake3 objects share."""

    def update(self, data: Buffer, /) -> object: ...
    def digest(self) -> bytes: ...
    def copy(self) -> Any: ...


class Hasher:
    """A hash of data that comes in pieces."""

    __slots__ = ("_digester", "_prefix")

    def __init__(self, prefix: bytes, digester: _Digester) -> None:
        self._prefix = prefix
        self._digester = digester

    def copy(self) -> Hasher:
        """A copy that has seen the same data."""
        return Hasher(self._prefix, self._digester.copy())

    def update(self, data: Buffer) -> None:
        self._digester.update(data)

    def hash(self) -> bytes:
        """The encoded hash of all data so far."""
        return self._prefix + self._digester.digest()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HashFamily:
    """A family of self-describing hashes; the instances are `YAMF` and `YASMF`.

    Sizes are in bytes.  `prefix` stands before the digest in the canonical encoding;
    `encoded_size` is the size of both together.
    """

    name: str
    digest_size: int
    _digester: Callable[..., _Digester]
    prefix: bytes = field(init=False)
    encoded_size: int = field(init=False)

    def __post_init__(self) -> None:
        prefix = stlv.encode(_TYPE, bytes(self.digest_size))[: -self.digest_size]
        object.__setattr__(self, "prefix", prefix)
        object.__setattr__(self, "encoded_size", len(prefix) + self.digest_size)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name

    def check(self, name: str, value: bytes) -> None:
        """Raise `TypeError` or `ValueError` unless `value` is an encoded hash of this family."""
        check_type(name, value, bytes)
        if len(value) != self.encoded_size or not value.startswith(self.prefix):
            raise ValueError(f"{name} is not an encoded {self.name} hash")

    def hash(self, data: Buffer) -> bytes:
        """The encoded hash of `data`."""
        return self.prefix + self._digester(data).digest()

    def hasher(self) -> Hasher:
        """Start a hash of data that comes in pieces."""
        return Hasher(self.prefix, self._digester())

    def decode(self, data: Buffer, offset: int = 0) -> tuple[bytes, int]:
        """Take the encoded hash that starts at `offset`, and the index just after it.

        Raises `Truncated`, or `DecodeError` with ``NON_CANONICAL``, ``BAD_TYPE`` (not a
        function of this family) or ``BAD_LENGTH`` (not the size of its digest).
        """
        end = offset + self.encoded_size
        encoded = bytes(data[offset:end])
        if len(encoded) == self.encoded_size and encoded.startswith(self.prefix):
            return encoded, end
        type, size_at = varu64.decode(data, offset, canonical=True)
        if type != _TYPE:
            raise DecodeError(
                WireErrorCode.BAD_TYPE, offset, f"hash function {type} is not of {self.name}"
            )
        size, _ = varu64.decode(data, size_at, canonical=True)
        if size != self.digest_size:
            raise DecodeError(
                WireErrorCode.BAD_LENGTH,
                size_at,
                f"digest of {size} bytes, {self.name} has {self.digest_size}",
            )
        raise Truncated(len(data))


YAMF = HashFamily("YAMF", 64, hashlib.blake2b)
"""BLAKE2b-512: ``00 40`` and 64 bytes.  Original Bamboo."""

YASMF = HashFamily("YASMF", 32, blake3)
"""BLAKE3: ``00 20`` and 32 bytes.  The Bamboo of p2panda."""

FAMILIES = {family.name: family for family in (YAMF, YASMF)}
"""Both families by name."""
