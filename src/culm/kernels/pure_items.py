"""The own items of the pure twin of `Exchange`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from nacl.bindings import crypto_shorthash_siphashx24

from culm.kernels import pure_fingerprint as fingerprints

_CHANCE_BITS = 24
_PAIR_ITEMS_MAX = 1 << 18
_WORD_MASK = 2**64 - 1


class View(Protocol):
    """A tree of `culm.kernels.pure_tree`, in whatever form."""

    @property
    def kind(self) -> int: ...
    @property
    def item_size(self) -> int: ...
    @property
    def varying(self) -> bool: ...
    def still(self) -> View: ...
    def __len__(self) -> int: ...
    def __contains__(self, item: bytes) -> bool: ...
    def rank(self, bound: bytes) -> int: ...
    def select(self, rank: int) -> bytes: ...
    def read(self, start: int, count: int) -> list[bytes]: ...
    def shorts(self, start: int, count: int) -> bytes: ...
    def sum(self, start: int, count: int) -> bytes: ...


class Items:
    """Our items, their shorts, sums of them, and the state of the union of both sides."""

    def __init__(self, view: View, width: int, salt: int, key: bytes) -> None:
        self.view, self._salt, self._key = view, salt, key
        self._mask: int = 256**width - 1
        self._bits = 8 * width - _CHANCE_BITS
        self._kind = fingerprints.SUM if key else view.kind
        self._count = len(view)
        if key:
            states = [self._lift(item) for item in view.read(0, len(view))]
            self._shorts = [int.from_bytes(state[8:], "big") for state in states]
            self._state = self._combine(fingerprints.neutral(self._kind), states)
        else:
            packed = view.shorts(0, len(view))
            self._shorts = [
                int.from_bytes(packed[at : at + 8], "little") for at in range(0, len(packed), 8)
            ]
            self._state = view.sum(0, len(view))

    def _lift(self, item: bytes) -> bytes:
        if self._key:
            hashed: bytes = crypto_shorthash_siphashx24(item, self._key)
            return hashed[::-1]
        return fingerprints.lift(self._kind, item)

    def _combine(self, state: bytes, states: Iterable[bytes]) -> bytes:
        for other in states:
            state = fingerprints.combine(self._kind, state, other)
        return state

    def add(self, item: bytes) -> int:
        """One of the other side's items belongs to the union; its short."""
        lifted = self._lift(item)
        self._count += 1
        self._state = self._combine(self._state, [lifted])
        if self._kind == fingerprints.LTHASH:
            return int.from_bytes(lifted[:8], "little")
        return int.from_bytes(lifted[-8:], "big")

    @property
    def union(self) -> tuple[int, bytes]:
        """The count and the state of our items and of all that were added."""
        return self._count, self._state

    def minus(self, first: int, second: int) -> int:
        """The difference of two shorts."""
        if self._kind == fingerprints.XOR:
            return first ^ second
        if self._kind == fingerprints.SUM:
            return (first - second) & _WORD_MASK
        lanes = [((first >> at) - (second >> at) & 0xFFFF) << at for at in range(0, 64, 16)]
        return sum(lanes)

    def sum(self, start: int, count: int) -> int:
        """The part of the state of a range of ranks that travels."""
        total = 0
        for short in self._shorts[start : start + count]:
            total = self.minus(total, self.minus(0, short))
        return total & self._mask

    def shorts(self, start: int, count: int) -> list[int]:
        """The shorts of the items in a range of ranks."""
        return self._shorts[start : start + count]

    def ids(self, start: int, count: int) -> list[int]:
        """The ids of the items in a range of ranks: 32 bits each."""
        return [self._id_of(short) for short in self._shorts[start : start + count]]

    def _id_of(self, short: int) -> int:
        mixed = (short + self._salt) * 0x9E3779B97F4A7C15 & _WORD_MASK
        mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 & _WORD_MASK
        return mixed >> 32

    def can_name(self, difference: int, count: int) -> bool:
        """Whether `difference` items can be named, among `count`, by the sum of their states.

        Other items have the same sum with a probability of 2**-24 at most.
        """
        if difference not in (1, 2) or (difference == 2 and count > _PAIR_ITEMS_MAX):
            return False
        return difference * count.bit_length() <= self._bits

    def named(self, difference: int, wanted: int, start: int, count: int) -> list[int]:
        """The ranks of the one or two items in a range whose states combine to `wanted`.

        Of two, the later one is the first that has a partner before it, and that its first.
        """
        seen: dict[int, int] = {}
        for rank in range(start, start + count):
            short = self._shorts[rank]
            if difference == 1:
                if not (short ^ wanted) & self._mask:
                    return [rank]
                continue
            partner = self.minus(wanted, short) & self._mask
            if partner in seen:
                return [seen[partner], rank]
            seen.setdefault(short & self._mask, rank)
        return []
