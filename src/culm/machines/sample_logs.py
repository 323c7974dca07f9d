"""Logs that are the same in every run: for verbs that name entries by number, and for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from nacl.signing import SigningKey

from culm.bamboo.author import LogAuthor
from culm.bamboo.records import NewEntry
from culm.wire.multihash import HashFamily

LOG_LENGTH = 14  # entries of a log for tests: lipmaalinks of three levels


def alike(number: int) -> bytes:
    """A payload of `number` times 7 bytes, which are easy to compress."""
    return bytes([number % 256]) * (7 * number)


def varied(number: int) -> bytes:
    """A payload of `number` times 7 bytes, no two of which are the same (up to 36 times)."""
    return bytes((31 * number + place) % 256 for place in range(7 * number))


@cache
def make_log(
    family: HashFamily,
    log_id: int = 0,
    count: int = LOG_LENGTH,
    *,
    branch: bytes = b"",
    seed: int = 1,
    payload: Callable[[int], bytes] = alike,
) -> tuple[NewEntry, ...]:
    """A log of `count` entries, each with `branch` and then its `payload` (by number from 0).

    Logs with the same `seed` (which makes the key) and log id but another `branch` fork each
    other at entry 1.
    """
    author = LogAuthor(SigningKey(bytes([seed]) * 32), family=family, log_id=log_id)
    return tuple(author.publish(branch + payload(number)) for number in range(count))
