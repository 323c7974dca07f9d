"""Datagrams that only holders of the cluster's key can read, and that count only once each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from operator import attrgetter
from random import Random
from typing import NamedTuple

from nacl.bindings import crypto_secretbox, crypto_secretbox_open
from nacl.exceptions import CryptoError

from culm.arguments import check_bytes, read_buffers
from culm.buffer import Buffer
from culm.oxen.clock import Clock
from culm.oxen.errors import DropReason

KEY_SIZE = 32
KEYS_MAX = 8
"""Keys that are accepted at the same time: each is tried."""

NONCE = (("milliseconds", 6), ("salt", 10), ("counter", 8))
"""The parts of a nonce, which a sealed datagram begins with, and their bytes."""

_TIME_SIZE, _SALT_SIZE, _COUNTER_SIZE = (size for _, size in NONCE)
_LIFE_SIZE = _TIME_SIZE + _SALT_SIZE
_NONCE_SIZE = _LIFE_SIZE + _COUNTER_SIZE
_TAG_SIZE = 16
OVERHEAD = _NONCE_SIZE + _TAG_SIZE
"""Bytes of a sealed datagram beyond those of its parcel."""

# A datagram counts as seen once this many later ones of its sender, to any server, precede it.
_WINDOW = 2**14

_TIME_MAX = (1 << 8 * _TIME_SIZE) - 1

# No real clock is this far ahead of ours, so a life that began later is forged. Without such a
# bound the last possible life, announced once, would shut its server out for ever.
_AHEAD_MAX = 100 * 365 * 86_400 * 1000


def close_box(parcel: bytes, nonce: bytes, *, key: bytes, source: bytes, to: bytes) -> bytes:
    """The datagram that holds `parcel` on its way from server `source` to server `to`."""
    return nonce + crypto_secretbox(parcel, nonce, _key_between(key, source, to))


def open_box(datagram: bytes, *, key: bytes, source: bytes, to: bytes) -> bytes | None:
    """The parcel in a datagram from `source` to `to`; ``None`` if it was not sealed with `key`."""
    box = datagram[_NONCE_SIZE:]
    if len(box) < _TAG_SIZE:
        return None
    try:
        return crypto_secretbox_open(box, datagram[:_NONCE_SIZE], _key_between(key, source, to))
    except CryptoError:
        return None


def _key_between(key: bytes, source: bytes, to: bytes) -> bytes:
    """The key for one direction between two servers, so that datagrams are useless elsewhere."""
    names = b"%d:%b%b" % (len(source), source, to)
    return blake2b(names, key=key, digest_size=KEY_SIZE, person=b"culm oxen seal").digest()


class Opened(NamedTuple):
    """The parcel in a datagram.

    fresh: whether it is of the sender's latest life and arrives for the first time.
    later: start of the sender's latest life, in milliseconds, if the sender should be told of it.
    """

    parcel: bytes
    fresh: bool
    later: int | None = None


class _Life:
    """One life of a server, and the datagrams that have arrived from it.

    name: orders the lives of a server.
    told: when the server was last told of this life or of an earlier one.
    """

    __slots__ = ("_advanced", "_newest", "_seen", "name", "told")

    def __init__(self, name: bytes, told: float = -math.inf) -> None:
        self.name = name
        self.told = told
        self._advanced = -math.inf  # when a number greater than all before last arrived
        self._newest = 0
        self._seen = 0  # a bit for each datagram: the lowest is the newest

    def tell(self, now: float, again_s: float) -> bool:
        """Whether to tell its sender, at most every `again_s`, to go on as a later life."""
        if now - self.told < again_s:
            return False
        self.told = now
        return True

    def is_behind(self, now: float, patience_s: float) -> bool:
        """Whether no number greater than all before has arrived within `patience_s`."""
        return now - self._advanced >= patience_s

    def admit(self, counter: int, now: float) -> bool:
        """Note a datagram; returns whether it certainly arrives for the first time."""
        ahead = counter - self._newest
        if ahead > 0:
            kept = self._seen << ahead if ahead < _WINDOW else 0
            self._seen = kept & (1 << _WINDOW) - 1 | 1
            self._newest = counter
            self._advanced = now
        else:
            bit = 1 << -ahead if -ahead < _WINDOW else 0
            if not bit or self._seen & bit:
                return False
            self._seen |= bit
        return True


class Seal:
    """Seals this server's datagrams with the first of the keys, and opens those of others.

    The nonce is the time at which the server started, random bytes drawn then, and a counter. So
    no nonce is used twice, and receivers recognize datagrams seen before: they listen only to the
    latest life that they know of each server, never to an earlier one.  A server whose clock was
    set back is told of its latest life, and goes on as a later one.  So is one whose numbers have
    not risen for `patience_s`, as somebody with the key may have used up those that follow.

    again_s: shortest time between two such messages to a server.
    sources_max: servers to keep account of, more than there are peers.  Beyond that, of the others
        that are no peers the one with the earliest life is forgotten, and from then on no unknown
        server is heard unless its life is later than that one.
    """

    def __init__(
        self,
        me: bytes,
        keys: Sequence[bytes],
        *,
        again_s: float,
        patience_s: float,
        sources_max: int,
        rng: Random,
        clock: Clock,
        dropped: Counter[DropReason],
    ) -> None:
        self._me = me
        self._keys = checked_keys(keys)
        self._again_s, self._patience_s = again_s, patience_s
        self._sources_max = sources_max
        self._rng = rng
        self._clock = clock
        self._dropped = dropped
        self._life = b""
        self._counter = 0
        self._sources: dict[bytes, _Life] = {}
        self._kept: set[bytes] = set()
        self._forgotten = _Life(b"")  # the latest life of a forgotten server

    overhead = OVERHEAD

    def begin(self) -> None:
        """Begin this server's life; the time must be known."""
        self._begin(self._milliseconds())

    def _milliseconds(self) -> int:
        """The time in milliseconds, bounded so that a later life is always possible."""
        return min(max(0, int(self._clock.unix * 1000)), _TIME_MAX - _AHEAD_MAX - 1)

    def _begin(self, milliseconds: int) -> None:
        salt = self._rng.getrandbits(8 * _SALT_SIZE)
        self._life = milliseconds.to_bytes(_TIME_SIZE) + salt.to_bytes(_SALT_SIZE)

    def keep(self, source: bytes) -> None:
        """Never forget server `source` while it is a peer."""
        self._kept.add(source)

    def release(self, source: bytes) -> None:
        """Allow server `source`, which is no longer a peer, to be forgotten."""
        self._kept.discard(source)

    def outlive(self, milliseconds: int) -> None:
        """Begin a life later than the one that a peer knows of, unless the present one is later."""
        is_possible = milliseconds <= self._milliseconds() + _AHEAD_MAX
        if is_possible and milliseconds >= int.from_bytes(self._life[:_TIME_SIZE]):
            self._begin(milliseconds + 1)

    def rekey(self, keys: Sequence[bytes]) -> None:
        """Seal with the first of these keys from now on, and open with each of them."""
        self._keys = checked_keys(keys)

    def close(self, to: bytes, parcel: bytes) -> bytes:
        """The datagram to send to server `to`."""
        self._counter += 1
        nonce = self._life + self._counter.to_bytes(_COUNTER_SIZE)
        return close_box(parcel, nonce, key=self._keys[0], source=self._me, to=to)

    def open(self, source: bytes, datagram: Buffer) -> Opened | None:
        """The content of a datagram from server `source`; ``None`` if it cannot be trusted."""
        datagram = bytes(datagram)
        for key in self._keys:
            parcel = open_box(datagram, key=key, source=source, to=self._me)
            if parcel is not None:
                break
        else:
            self._dropped[DropReason.UNAUTHENTICATED] += 1
            return None
        name = datagram[:_LIFE_SIZE]
        if int.from_bytes(name[:_TIME_SIZE]) > self._milliseconds() + _AHEAD_MAX:
            self._dropped[DropReason.REPLAYED] += 1
            return None
        life = self._life_of(source, name)
        now, is_latest = self._clock.now, life.name == name and life is not self._forgotten
        if is_latest and life.admit(int.from_bytes(datagram[_LIFE_SIZE:_NONCE_SIZE]), now):
            return Opened(parcel, True)
        self._dropped[DropReason.REPLAYED] += 1
        if is_latest and not life.is_behind(now, self._patience_s):
            return None
        if not life.tell(now, self._again_s):
            return Opened(parcel, False)
        return Opened(parcel, False, int.from_bytes(life.name[:_TIME_SIZE]))

    def _life_of(self, source: bytes, name: bytes) -> _Life:
        """The latest life of `source`, which is `name` unless a later one is known."""
        life = self._sources.get(source, self._forgotten)
        if name <= life.name:
            return life
        self._sources[source] = life = _Life(name, life.told)
        if len(self._sources) > self._sources_max:
            others = [sid for sid in self._sources if sid != source and sid not in self._kept]
            earliest = min(others or [source], key=lambda sid: self._sources[sid].name)
            forgotten = self._sources.pop(earliest)
            self._forgotten = max(self._forgotten, forgotten, key=attrgetter("name"))
        return life


def checked_keys(keys: Sequence[bytes]) -> list[bytes]:
    """Copies of `keys`, in that order.

    Raises `ValueError` or `TypeError` unless they are one to `KEYS_MAX` keys of 32 bytes.
    """
    found = read_buffers("keys", keys)
    if not 1 <= len(found) <= KEYS_MAX:
        raise ValueError(f"keys must be 1 to {KEYS_MAX}, not {len(found)}")
    for key in found:
        check_bytes("key", key, KEY_SIZE)
    return found
