"""Which servers have proved that they get what is sent to them.

Source: RFC 9000, section 8.
"""

from __future__ import annotations

__all__ = ["Proofs"]

_AMPLIFICATION_MAX = 3


class Proofs:
    """Bytes that may be sent to servers, by their IDs.

    A server that answers a keepalive gets what is sent there.  Any other may be the victim of
    somebody who sends datagrams in its name, and gets at most three times the bytes that came in
    that name; except those that our user has named, or a server that has proved itself: they
    are in the cluster, or are asked to help us into it.

    size_max: strangers to keep account of.  Those that are forgotten have no credit.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self.trusted: set[bytes] = set()
        """Who may be sent whatever there is, and is believed what it says of others."""
        self._credit: dict[bytes, int] = {}

    def trust(self, sid: bytes) -> None:
        """`sid` has proved itself, or was named by somebody that is trusted."""
        self.trusted.add(sid)
        self._credit.pop(sid, None)

    def remove(self, sid: bytes) -> None:
        """`sid` is a stranger again."""
        self.trusted.discard(sid)

    def receive(self, source: bytes, size: int) -> None:
        """A datagram of so many bytes came in the name of `source`, which is not trusted."""
        credit = self._credit
        if source not in credit and len(credit) >= self._size_max:
            del credit[next(iter(credit))]
        credit[source] = credit.get(source, 0) + _AMPLIFICATION_MAX * size

    def spend(self, hop: bytes, size: int) -> bool:
        """Whether so many bytes may be sent to `hop`, which is not trusted; if so, they count."""
        left = self._credit.get(hop, 0) - size
        if left < 0:
            return False
        self._credit[hop] = left
        return True
