"""Fingerprints of sets, in several monoids.

A fingerprint is the number of items of a set together with the combination of their hashes.  The
fingerprints of disjoint sets combine, in any order, to that of their union, so that a tree can keep
them for its parts.  All monoids here are groups: a combination can be undone by subtraction.

    >>> monoid = named("xxh3-sum")
    >>> both = monoid.combine(monoid.lift(b"one"), monoid.lift(b"two"))
    >>> monoid.subtract(both, monoid.lift(b"one")) == monoid.lift(b"two")
    True

Sources: Meyer, "Range-Based Set Reconciliation" (2023), for fingerprints in a monoid; for
each monoid see `MONOIDS`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from blake3 import blake3

from culm.buffer import Buffer
from culm.kernels import fingerprint as _kernel
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

#: The greatest number of bytes of an item.
ITEM_SIZE_MAX = _kernel.ITEM_SIZE_MAX

_COUNT = Struct(">Q")
_SHORT_SIZE = 8


class Fingerprint(NamedTuple):
    """The number of items, and the state of the monoid that their hashes combine to.

    In a difference, the count may be negative.
    """

    count: int  # type: ignore[assignment]  # tuples have a method of that name
    state: bytes


@dataclass(frozen=True, slots=True)
class Monoid:
    """One way to combine the hashes of items; `named` finds it.

    `digest_size` is the number of bytes of a full digest.  With `is_additive` the digest is the
    state itself, any number of its last bytes works as a state as well, and the difference of two
    of them names an item that only one set has; otherwise the digest is a hash of the state.  If it
    `is_strong`, two sets with the same fingerprint are infeasible to make.
    """

    name: str
    digest_size: int
    is_additive: bool
    is_strong: bool
    kernel_number: int = field(repr=False)

    @property
    def neutral(self) -> Fingerprint:
        """The fingerprint of the empty set."""
        return Fingerprint(0, _kernel.neutral(self.kernel_number))

    def lift(self, item: bytes) -> Fingerprint:
        """The fingerprint of one item; raises ``ValueError`` above `ITEM_SIZE_MAX` bytes."""
        return Fingerprint(1, _kernel.lift(self.kernel_number, item))

    def lift_many(self, data: Buffer, item_size: int) -> Fingerprint:
        """The fingerprint of the items in `data`, of `item_size` bytes each.

        Raises ``ValueError`` if the last one is incomplete.
        """
        state = _kernel.lift_many(self.kernel_number, data, item_size)
        return Fingerprint(memoryview(data).nbytes // item_size, state)

    def lift_cut(self, data: Buffer, offsets: array[int]) -> Fingerprint:
        """The fingerprint of the items between the `offsets` (an array of type Q) into `data`.

        Raises ``ValueError`` unless they ascend within it.
        """
        state = _kernel.lift_cut(self.kernel_number, data, offsets)
        return Fingerprint(max(len(offsets) - 1, 0), state)

    def combine(self, first: Fingerprint, second: Fingerprint) -> Fingerprint:
        """The fingerprint of the union of two disjoint sets."""
        state = _kernel.combine(self.kernel_number, first.state, second.state)
        return Fingerprint(first.count + second.count, state)

    def subtract(self, first: Fingerprint, second: Fingerprint) -> Fingerprint:
        """The fingerprint that combined with `second` gives `first`."""
        state = _kernel.subtract(self.kernel_number, first.state, second.state)
        return Fingerprint(first.count - second.count, state)

    def digest(self, fingerprint: Fingerprint, size: int | None = None) -> bytes:
        """The `size` bytes that stand for a state on the wire; by default all of them."""
        size = self.digest_size if size is None else size
        if not 1 <= size <= self.digest_size:
            raise ValueError(f"a digest in {self.name} has 1 to {self.digest_size} bytes")
        if self.is_additive:
            return fingerprint.state[-size:]
        return blake3(fingerprint.state).digest(length=self.digest_size)[:size]

    def subtract_digests(self, first: bytes, second: bytes) -> bytes:
        """The digest of a difference, of two digests of one size in an additive monoid."""
        if not self.is_additive or len(first) != len(second):
            raise ValueError(f"no digests in {self.name} that have a difference")
        states = (digest.rjust(self.digest_size, b"\0") for digest in (first, second))
        return _kernel.subtract(self.kernel_number, *states)[-len(first) :]

    def encode(self, fingerprint: Fingerprint) -> bytes:
        """The digest in full, then the count: 8 bytes, big-endian."""
        return self.digest(fingerprint) + _COUNT.pack(fingerprint.count)

    def decode(self, data: Buffer) -> Fingerprint:
        """Decode a result of `encode`; raises `DecodeError` for any other number of bytes.

        In a monoid that is not additive the state is the digest, which can only be compared.
        """
        encoded = bytes(data)
        size = self.digest_size + _COUNT.size
        if len(encoded) < size:
            raise Truncated(len(encoded))
        if len(encoded) > size:
            raise DecodeError(WireErrorCode.TRAILING_DATA, size, "bytes after a fingerprint")
        (count,) = _COUNT.unpack_from(encoded, self.digest_size)
        return Fingerprint(count, encoded[: self.digest_size])

    def short(self, item: bytes) -> int:
        """The lowest 64 bits of an item's state, which a tree keeps."""
        state = self.lift(item).state
        if self.kernel_number == _kernel.LTHASH:
            return int.from_bytes(state[:_SHORT_SIZE], "little")
        return int.from_bytes(state[-_SHORT_SIZE:], "big")


#: All monoids, by name.
#:
#: ``xxh3-sum``, the default: the sum modulo 2**128 of XXH3-128 (Cyan4973/xxHash,
#: doc/xxhash_spec.md).  ``xxh3-xor``: the exclusive or of the same.  ``blake3-lthash``: 1024 sums
#: modulo 2**16 of BLAKE3 drawn out to 2048 bytes (Bellare and Micciancio 1997, "A new paradigm
#: for collision-free hashing"; Lewi et al. 2019, "Securing update propagation with
#: homomorphic hashing"); its digest is their BLAKE3.
MONOIDS = {
    monoid.name: monoid
    for monoid in (
        Monoid("xxh3-sum", 16, True, False, _kernel.SUM),
        Monoid("xxh3-xor", 16, True, False, _kernel.XOR),
        Monoid("blake3-lthash", 32, False, True, _kernel.LTHASH),
    )
}

#: The name of the default monoid.
DEFAULT = "xxh3-sum"


def named(name: str) -> Monoid:
    """The monoid of this name; raises ``ValueError`` if there is none."""
    try:
        return MONOIDS[name]
    except KeyError:
        raise ValueError(f"no monoid is named {name!r}: {', '.join(MONOIDS)}") from None
