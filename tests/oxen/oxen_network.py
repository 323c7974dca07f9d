"""A network with eavesdroppers, on which no node is flooded that did not ask for it.

Source of the latter: RFC 9000, section 8.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence

from culm.oxen.messages import (
    Broadcast,
    Gossip,
    MessageData,
    OneToOne,
    Piece,
    Synchronize,
    decode_parcel,
    read_message,
)
from culm.oxen.seal import open_box
from culm.testing.network import Conditions, Deliver, Network

VICTIM = b"V"
"""The first letter of the names that others falsely send in."""

_MENTION = b"3:" + VICTIM
_REPLAYS_MAX = 200
_TENTH_MAX = 200  # datagrams from one node to another in a tenth of a second
_SAVED_MAX = 400  # bytes that one source's hearsay may have paid for
_KEPT_OF = 7  # every seventh sealed one
_KEPT = re.compile(rb"1:m1:[st]")
_START = b"1:m1:s"
_ID = re.compile(rb"2:idi(\d+)e")
_SIDS = re.compile(rb"(?:3|32):(N\d\d-*|V\d\d)")


class Numbers(dict[tuple[bytes, bytes], tuple[int, int]]):
    """By sender and receiver: the last numbers sent in order, broadcasts first.

    A later life of the sender has greater ones.
    """

    def overhear(self, parcel: bytes) -> None:
        body = decode_parcel(parcel).body if parcel else None
        if not isinstance(body, MessageData):
            return
        broadcast = one = 0
        match read_message(body.d):
            case Synchronize(broadcast, one):
                pass
            case Broadcast(broadcast) | Piece(b"b", broadcast):
                pass
            case OneToOne(one) | Piece(_, one):
                pass
        known = self.get((body.fr, body.to), (0, 0))
        self[body.fr, body.to] = max(known[0], broadcast), max(known[1], one)


class OverheardNetwork(Network):
    """A network with an eavesdropper that notes the numbers of all traffic that is not sealed."""

    def __init__(self, *, seed: int, conditions: Conditions) -> None:
        super().__init__(seed=seed, conditions=conditions)
        self.numbers = Numbers()

    def send(self, source: Hashable, destination: Hashable, payload: bytes) -> None:
        if payload.startswith(b"d"):
            self.numbers.overhear(payload)
        super().send(source, destination, payload)


class WatchedNetwork(Network):
    """A network with an eavesdropper that keeps the synchronize messages and tags on it.

    To an address without proof a node sends at most three times the bytes that came from there.
    Proof is the answer to a keepalive, the acknowledgement of something sent there, the word of the
    node's user, or that of any other server.  Names that begin with `VICTIM` belong to no server
    and have no proof: to them and about them a node sends at most three times the bytes in which it
    was told of them, in any name.

    No node sends another one more datagrams than its window explains: otherwise two of them answer
    each other without end, and where datagrams are doubled ever more of them.

    A sealed datagram counts once in the life of its receiver, and nowhere else.

    To a member that has fallen silent (`fall_silent`), a node that has long tried in vain, directly
    or by way of others, sends at most three times the bytes in which it hears that others are in
    touch with the member; and it saves no more of those than two small messages take.  The member
    has paid in the same way with its own words that began an association: that may have made it a
    stranger.  Messages that a node forwards do not count.

    keys: for sealing datagrams; with keys, a sealed datagram is proof, and no other is.
        Some of all datagrams are kept to be sent again, to anybody.
    overhears: whether an eavesdropper notes the numbers of the traffic.
    thief: may take a message instead of its receiver, which then never sees it.
    """

    def __init__(
        self,
        *,
        seed: int,
        keys: Sequence[bytes] = (),
        overhears: bool = False,
        thief: Callable[[MessageData], bool] | None = None,
    ) -> None:
        super().__init__(seed=seed)
        self.thief = thief
        self._keys = keys
        self._overhears = overhears
        self.numbers = Numbers()
        self._count = 0
        self._tenth, self._in_tenth = 0, Counter[tuple[Hashable, Hashable]]()
        self.starts: list[tuple[Hashable, Hashable, bytes]] = []
        self._credit: dict[tuple[Hashable, Hashable], int] = defaultdict(int)
        self._rumours: dict[Hashable, int] = defaultdict(int)
        self._known: set[tuple[Hashable, Hashable]] = set()
        self._sent: set[tuple[Hashable, Hashable, bytes]] = set()
        self._had: dict[Hashable, set[tuple[Hashable, bytes]]] = {}
        self._silent: Hashable = None
        self._patience_s = 0.0
        self._patient_until: dict[Hashable, float] = {}
        self._hearsay: dict[Hashable, int] = defaultdict(int)
        self._words: dict[tuple[Hashable, Hashable], int] = defaultdict(int)
        self.walls: set[tuple[Hashable, Hashable]] = set()
        """Ends of links that no weather opens, in both directions."""
        self.sid_sizes: dict[Hashable, int] = {}
        """Bytes of the longest names that nodes take; longer ones have no address there."""
        self.width: int | None = None
        """Bytes of the largest datagram that passes, if not all do."""
        self.worthless: dict[Hashable, int] = {}
        """Datagrams that a life has received twice, or that were not sealed for it."""

    def introduce(self, to: Hashable, sid: Hashable) -> None:
        """Node `to` has reason to speak with `sid`."""
        self._known.add((to, sid))

    def fall_silent(self, sid: Hashable, patience_s: float) -> None:
        """From now on `sid` answers nothing; each other node may try freely for `patience_s`."""
        self._silent, self._patience_s = sid, patience_s
        self._patient_until.clear()
        self._hearsay.clear()

    def speak(self) -> None:
        """The silent one may be heard again."""
        self._silent = None

    def attach(self, address: Hashable, deliver: Deliver) -> None:
        self._had[address], self.worthless[address] = set(), 0

        def watched(payload: bytes, source: Hashable) -> None:
            if address in self.sid_sizes and len(source) > self.sid_sizes[address]:  # type: ignore[arg-type]
                return
            if self._keys and source != address:
                again = (source, payload) in self._had[address]
                if again or not self._look_into(source, address, payload):
                    self.worthless[address] += 1
                self._had[address].add((source, payload))
            self._received(address, source, payload)
            deliver(payload, source)

        super().attach(address, watched)

    def replay(self, start: tuple[Hashable, Hashable, bytes]) -> None:
        """Send one of `starts` again, or a forgery made from it."""
        super().send(*start)

    def _look_into(self, source: Hashable, destination: Hashable, payload: bytes) -> bytes:
        if not self._keys:
            return payload
        assert isinstance(source, bytes)
        assert isinstance(destination, bytes)
        for key in self._keys:
            parcel = open_box(payload, key=key, source=source, to=destination)
            if parcel is not None:
                return parcel
        return b""

    def send(self, source: Hashable, destination: Hashable, payload: bytes) -> None:
        parcel = self._look_into(source, destination, payload)
        if self._overhears:
            self.numbers.overhear(parcel)
        self._count += 1
        self._check_rate(source, destination)
        kept = self._count % _KEPT_OF == 0 if self._keys else bool(_KEPT.search(parcel))
        if kept and len(self.starts) < _REPLAYS_MAX:
            self.starts.append((source, destination, payload))
        if not _is_victim(source) and (_is_victim(destination) or _MENTION in parcel):
            self._rumours[source] -= len(payload)
            assert self._rumours[source] >= 0, (source, destination, payload)
        if self._silent is not None and self._is_for_silent(source, parcel):
            now = self.clock.now
            if now >= self._patient_until.setdefault(source, now + self._patience_s):
                self._spend_hearsay(source, payload)
        if self.thief is not None:
            body = decode_parcel(parcel).body
            if isinstance(body, MessageData) and self.thief(body):
                return
        if not _is_victim(source) and (source, destination) not in self._known:
            self._sent.update(_ids(parcel, b"2:md", source, destination))
            self._credit[source, destination] -= len(payload)
            assert self._credit[source, destination] >= 0, (source, destination, payload)
        passes = self.width is None or len(payload) <= self.width
        if passes and (source, destination) not in self.walls:
            super().send(source, destination, payload)

    def _check_rate(self, source: Hashable, destination: Hashable) -> None:
        if (tenth := int(10 * self.clock.now)) != self._tenth:
            self._tenth = tenth
            self._in_tenth.clear()
        self._in_tenth[source, destination] += 1
        assert self._in_tenth[source, destination] <= _TENTH_MAX, (source, destination)

    def _spend_hearsay(self, source: Hashable, payload: bytes) -> None:
        """Pay for a message to the silent one: from hearsay first, then from its own last words."""
        self._hearsay[source] -= len(payload)
        if self._hearsay[source] < 0:
            self._words[source, self._silent] += self._hearsay[source]
            self._hearsay[source] = 0
        assert self._words[source, self._silent] >= 0, (source, payload)

    def _received(self, address: Hashable, source: Hashable, payload: bytes) -> None:
        if _is_victim(source) or _MENTION in payload:
            self._rumours[address] += 3 * len(payload)
        if _START in payload:
            self._words[address, source] += 3 * len(payload)
        if self._silent is not None and self._tells_of_silent(payload):
            saved = self._hearsay[address] + 3 * len(payload)
            self._hearsay[address] = min(saved, _SAVED_MAX)
        if (address, source) not in self._known:
            self._credit[address, source] += 3 * len(payload)
        if not _is_victim(source):
            parcel = self._look_into(source, address, payload)
            proven = not self._sent.isdisjoint(_ids(parcel, b"2:ma", address, source))
            if b"2:kk" in parcel or proven or (self._keys and parcel):
                self._known.add((address, source))
            for sid in _SIDS.findall(parcel):
                if sid != source:
                    self._known.add((address, sid))

    def _is_for_silent(self, source: Hashable, parcel: bytes) -> bool:
        """Whether it has a message of `source` itself to the silent one."""
        body = decode_parcel(parcel).body
        return isinstance(body, MessageData) and (body.fr, body.to) == (source, self._silent)

    def _tells_of_silent(self, parcel: bytes) -> bool:
        """Whether it says that another node is in touch with the silent one."""
        body = decode_parcel(parcel).body
        return isinstance(body, Gossip) and any(
            time > 0 and self._silent in (fr, to)
            for fr, times in body.rows.items()
            for to, time in zip(body.columns, times, strict=True)
        )


def _ids(
    parcel: bytes, body: bytes, one: Hashable, other: Hashable
) -> list[tuple[Hashable, Hashable, bytes]]:
    """The IDs in a parcel with such a body, each with the two nodes that it is between."""
    return [(one, other, id) for id in _ID.findall(parcel)] if body in parcel else []


def _is_victim(address: Hashable) -> bool:
    return isinstance(address, bytes) and address.startswith(VICTIM)
