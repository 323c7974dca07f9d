"""Proofs of servers that datagrams to their IDs reach them.

Source: RFC 9000, section 8.
"""

from __future__ import annotations

from collections.abc import Iterable

AMPLIFICATION_MAX = 3
"""Bytes sent for each byte from a sender whose address may be forged."""


class Proofs:
    """Bytes that may be sent to servers, by their IDs.

    A server that answers a keepalive, or that our user has named, gets any number of bytes.  Any
    other may be the victim of an attacker who sends datagrams in its name, and gets at most three
    times the bytes that came in that name.  Even a server reported by a proven one may be made up
    by an attacker who speaks in the latter's name: until it acknowledges something, the bytes of
    the reports pay for the bytes sent to it.

    size_max: strangers to keep account of.  Those that are forgotten have no credit.
    share_max: bytes of the largest message that seeks contact, beside its receiver's ID; reports
        pay for one in advance.
    """

    def __init__(self, size_max: int, *, share_max: int) -> None:
        self._size_max, self._share_max = size_max, share_max
        self.trusted: set[bytes] = set()
        """Servers that may be sent anything, and whose reports of others are believed."""
        self.pending: dict[bytes, int | None] = {}
        """Servers that have acknowledged nothing, and the bytes that reports of them have paid for;
        ``None`` without a report by a trusted server."""
        self._credit: dict[bytes, int] = {}

    def trust(self, sid: bytes) -> None:
        """Trust `sid`, which has proved itself or was named by our user."""
        self.trusted.add(sid)
        self._credit.pop(sid, None)
        self.pending.pop(sid, None)

    def expect(self, sid: bytes, *, told: bool) -> None:
        """Seek contact with `sid`.

        told: whether a trusted server has told of it.
        """
        if told:
            self.pending[sid] = self.pending.get(sid) or 0
        elif sid not in self.trusted:
            self.pending[sid] = None

    def accept(self, sid: bytes) -> None:
        """Trust `sid` if it was reported: it has acknowledged a message sent to it alone."""
        if self.pending.pop(sid, None) is not None:
            self.trusted.add(sid)

    def remove(self, sid: bytes) -> None:
        """Treat `sid` as a stranger again."""
        self.trusted.discard(sid)
        self.pending.pop(sid, None)

    def receive(self, source: bytes, size: int) -> None:
        """Count a datagram of `size` bytes in the name of `source`, which is not trusted."""
        credit = self._credit
        if source not in credit and len(credit) >= self._size_max:
            del credit[next(iter(credit))]
        credit[source] = credit.get(source, 0) + AMPLIFICATION_MAX * size

    def hear_rumour(self, sids: Iterable[bytes], size: int) -> None:
        """Share the credit for `size` bytes in which a trusted server tells of `sids` among them.

        Servers with the least credit get enough for a message each, as far as it goes; then each
        gets enough for another one, as an answer to its own message is due as well.
        """
        left = AMPLIFICATION_MAX * size
        told = [sid for sid in sids if self.pending.get(sid) is not None]
        for messages in (1, 2):
            for sid in sorted(told, key=lambda sid: self.pending[sid] or 0):
                had = self.pending[sid] or 0
                share = min(left, max(0, messages * (self._share_max + len(sid)) - had))
                self.pending[sid] = had + share
                left -= share

    def spend(self, sid: bytes, size: int) -> bool:
        """Whether `size` bytes may be sent to `sid`, which is not trusted; if so, they count."""
        left = self._credit.get(sid, 0) - size
        if left >= 0:
            self._credit[sid] = left
            return True
        left = (self.pending.get(sid) or 0) - size
        if left >= 0:
            self.pending[sid] = left
        return left >= 0
