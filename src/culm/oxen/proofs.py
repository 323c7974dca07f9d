"""Which servers have proved that they get what is sent to them.

Source: RFC 9000, section 8.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["AMPLIFICATION_MAX", "Proofs"]

AMPLIFICATION_MAX = 3
"""Bytes that are sent for one that somebody has sent who may not be where he says."""

_SHARE_MAX = 192  # bytes: enough for a synchronize message between servers with long IDs


class Proofs:
    """Bytes that may be sent to servers, by their IDs.

    A server that answers a keepalive gets what is sent there.  Any other may be the victim of
    somebody who sends datagrams in its name, and gets at most three times the bytes that came in
    that name; except those that our user has named.  A server of which one tells that has proved
    itself may be made up, too, by somebody who speaks in that one's name: as long as it has not
    acknowledged anything, whatever is sent there is paid for by the bytes that told of it.

    size_max: strangers to keep account of.  Those that are forgotten have no credit.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self.trusted: set[bytes] = set()
        """Who may be sent whatever there is, and is believed what it says of others."""
        self.pending: dict[bytes, int | None] = {}
        """Those that have acknowledged nothing, and the bytes that those who told of them have paid
        for; ``None`` if nobody has told who is trusted."""
        self._credit: dict[bytes, int] = {}

    def trust(self, sid: bytes) -> None:
        """`sid` has proved itself, or was named by our user."""
        self.trusted.add(sid)
        self._credit.pop(sid, None)
        self.pending.pop(sid, None)

    def expect(self, sid: bytes, *, told: bool) -> None:
        """Seek contact with `sid`, of which somebody trusted has told, or nobody."""
        if told:
            self.pending[sid] = self.pending.get(sid) or 0
        elif sid not in self.trusted:
            self.pending[sid] = None

    def accept(self, sid: bytes) -> None:
        """`sid` has acknowledged what was sent to it alone; who told of it was right."""
        if self.pending.pop(sid, None) is not None:
            self.trusted.add(sid)

    def remove(self, sid: bytes) -> None:
        """`sid` is a stranger again."""
        self.trusted.discard(sid)
        self.pending.pop(sid, None)

    def receive(self, source: bytes, size: int) -> None:
        """A datagram of so many bytes came in the name of `source`, which is not trusted."""
        credit = self._credit
        if source not in credit and len(credit) >= self._size_max:
            del credit[next(iter(credit))]
        credit[source] = credit.get(source, 0) + AMPLIFICATION_MAX * size

    def hear_rumour(self, sids: Iterable[bytes], size: int) -> None:
        """A datagram of so many bytes, of one that is trusted, told of these.

        Those that have least are given enough for a message each, as far as that goes.
        """
        left = AMPLIFICATION_MAX * size
        told = {sid: had for sid in sids if (had := self.pending.get(sid)) is not None}
        for sid in sorted(told, key=told.__getitem__):
            share = min(left, max(0, _SHARE_MAX - told[sid]))
            self.pending[sid] = told[sid] + share
            left -= share

    def spend(self, sid: bytes, size: int) -> bool:
        """Whether so many bytes may be sent to `sid`, which is not trusted; if so, they count."""
        left = self._credit.get(sid, 0) - size
        if left >= 0:
            self._credit[sid] = left
            return True
        left = (self.pending.get(sid) or 0) - size
        if left >= 0:
            self.pending[sid] = left
        return left >= 0
