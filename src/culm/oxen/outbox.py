"""Parcels on their way out: bodies, and the keepalives that travel with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from culm.oxen.messages import Body, Dialect, encode_parcel

# If a peer asks more often than this before we answer, its latest questions count.
_OWED_MAX = 16


class Occasion(Enum):
    """Why a parcel is sent, which decides whether it also asks for a keepalive."""

    BODY = "body"
    ANSWER = "answer"
    PING = "ping"


Ask = Callable[[bytes, Occasion], "int | None"]


class Outbox:
    """Parcels by destination, at most `size_max`."""

    def __init__(self, *, size_max: int, parcel_size_max: int, dialect: Dialect) -> None:
        self._size_max = size_max
        self._parcel_size_max = parcel_size_max
        self._dialect = dialect
        self._bodies: dict[bytes, list[Body]] = {}
        self._owed: dict[bytes, deque[int]] = {}
        self._pings: set[bytes] = set()
        self._size = 0

    def put(self, hop: bytes, body: Body) -> bool:
        """Send `body` to `hop`; false if there is no room."""
        if self._size >= self._size_max:
            return False
        self._size += 1
        bodies = self._bodies.get(hop)
        if bodies is None:
            self._bodies[hop] = [body]
        else:
            bodies.append(body)
        return True

    def owe(self, hop: bytes, id: int) -> bool:
        """Answer `hop`'s keepalive `id`; false if there is no room."""
        owed = self._owed.get(hop)
        if owed is None:
            if len(self._owed) >= self._size_max:
                return False
            self._owed[hop] = owed = deque[int](maxlen=_OWED_MAX)
        owed.append(id)
        return True

    def ping(self, hop: bytes) -> None:
        """Ask `hop` for a sign of life, even if nothing else is sent there."""
        self._pings.add(hop)

    def take(self, ask: Ask) -> list[tuple[bytes, bytes]]:
        """Take the datagrams, each after its destination, in the order of server IDs.

        ask: gives the keepalive ID (``ka``) for a parcel to a neighbour, if one is due.
        """
        if not (self._bodies or self._owed or self._pings):
            return []
        bodies, self._bodies = self._bodies, {}
        owed, self._owed = self._owed, {}
        pings, self._pings = self._pings, set()
        self._size = 0
        datagrams: list[tuple[bytes, bytes]] = []
        for hop in sorted({*bodies, *owed, *pings}):
            reason = Occasion.BODY if hop in bodies else Occasion.ANSWER
            ka = ask(hop, Occasion.PING if hop in pings else reason)
            self._take_for(hop, bodies.get(hop, []), owed.get(hop, deque()), ka, datagrams)
        return datagrams

    def _take_for(
        self,
        hop: bytes,
        bodies: list[Body],
        owed: deque[int],
        ka: int | None,
        datagrams: list[tuple[bytes, bytes]],
    ) -> None:
        dialect = self._dialect
        for body in bodies:
            kk = owed.popleft() if owed else None
            encoded = encode_parcel((ka, kk, body), dialect)
            if len(encoded) <= self._parcel_size_max:
                ka = None
            else:  # the body fills a datagram: keepalives follow in parcels of their own
                encoded = encode_parcel((None, None, body), dialect)
                if kk is not None:
                    owed.appendleft(kk)
            datagrams.append((hop, encoded))
        while ka is not None or owed:
            kk = owed.popleft() if owed else None
            datagrams.append((hop, encode_parcel((ka, kk, None), dialect)))
            ka = None
