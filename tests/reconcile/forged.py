"""Items forged to have the hash of another one: for an attacker, the work of a moment.

For 32 bytes, four words a, b, c and d, XXH3-128 keeps ``(k + fold(a, b)) ^ (c + d)`` and
``fold(c, d) ^ (a + b)``, where `fold` is 0 if its first word is one of the secret's, which is
public.
"""

from __future__ import annotations

from struct import Struct

__all__ = ["SIZE", "crafted", "forged"]

SIZE = 32

_WORDS = Struct("<4Q")
_SECRET = _WORDS.unpack(
    bytes.fromhex("b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f")
)
_MASK = 2**64 - 1
_START = SIZE * 0x9E3779B185EBCA87 & _MASK


def forged(item: bytes) -> bytes:
    """Another item with the same XXH3-128, which begins with the same eight bytes."""
    a, b, c, d = _WORDS.unpack(item)
    low = (_START + _fold(a, b, 0)) & _MASK ^ (c + d) & _MASK
    high = _fold(c, d, 2) ^ (a + b) & _MASK
    b = (high - a) & _MASK
    both = (_START + _fold(a, b, 0)) & _MASK ^ low
    return _WORDS.pack(a, b, _SECRET[2], (both - _SECRET[2]) & _MASK)


def crafted(high: int) -> bytes:
    """Items that all share the low 64 bits of XXH3-128."""
    both = _START ^ (12345 - high) & _MASK
    return _WORDS.pack(
        _SECRET[0], (high - _SECRET[0]) & _MASK, _SECRET[2], (both - _SECRET[2]) & _MASK
    )


def _fold(first: int, second: int, at: int) -> int:
    product = (first ^ _SECRET[at]) * (second ^ _SECRET[at + 1])
    return product & _MASK ^ product >> 64
