"""Places for connections that others have made: of servers, of guests, of strangers."""

from __future__ import annotations

from collections.abc import Iterable

from culm.garlic.errors import ErrorCode
from culm.garlic.link import Link
from culm.machine import RemoteProtocolError


class Places:
    """The places of accepted connections.

    Each server of the configuration has a place of its own, for one connection.  Guests are other
    peers that are authenticated or, without a handshake, have made a request; all others are
    strangers.

    guests_max, strangers_max
        Their numbers of places.  An idle guest makes way for another, any that does not lead for
        one that does, and the oldest stranger for the next one.
    """

    def __init__(self, guests_max: int, strangers_max: int) -> None:
        self._guests_max, self._strangers_max = guests_max, strangers_max
        self._servers: dict[int, Link] = {}  # by the server's id
        self._guests: dict[int, Link] = {}  # by number of the link, as the strangers are
        self._strangers: dict[int, Link] = {}

    def come(self, link: Link) -> Link | None:
        """Take a new connection; returns the one that makes way for it, if any."""
        self._strangers[link.number] = link
        if len(self._strangers) > self._strangers_max:
            return self._strangers.pop(next(iter(self._strangers)))
        return None

    def authenticated(self, link: Link, before: float) -> Link | None:
        """Make a stranger a guest, if a place is free or held by an idle guest.

        Otherwise it may still be a server.  Returns the link that makes way, if any.  A guest is
        idle if no byte has moved since `before`, and no request of it is unanswered.
        """
        if link.number not in self._strangers:
            return None
        idle = None
        if len(self._guests) >= self._guests_max:
            idle = _idlest(self._guests.values(), before)
            if idle is None:
                return None
            del self._guests[idle.number]
        self._guests[link.number] = self._strangers.pop(link.number)
        return idle

    def asked(self, link: Link, before: float, server: int | None) -> Link | None:
        """The peer has made its first request; returns the link that makes way, if any.

        server: the server of the configuration for which it speaks, if any.

        Raises `RemoteProtocolError` (``CROWDED_OUT``) if there is no place for it.
        """
        if server is not None:
            host = self._servers.get(server)
            if host is None or host.idle_since(before) is not None:
                self._leave(link)
                self._servers[server] = link
                return host
        idle = self.authenticated(link, before)
        if link.number not in self._strangers:
            return idle
        # Our leader may be unknown here, and a removed server ask for votes without a pause.
        outbid = next((guest for guest in self._guests.values() if guest.outbid), None)
        if outbid is None or not link.leads:
            raise RemoteProtocolError(ErrorCode.CROWDED_OUT)
        del self._guests[outbid.number]
        self._guests[link.number] = self._strangers.pop(link.number)
        return outbid

    def ended(self, link: Link) -> None:
        """Free the link's place."""
        self._leave(link)
        if link.peer is not None and self._servers.get(link.peer) is link:
            del self._servers[link.peer]

    def _leave(self, link: Link) -> None:
        self._guests.pop(link.number, None)
        self._strangers.pop(link.number, None)


def _idlest(links: Iterable[Link], before: float) -> Link | None:
    """The link that has been idle for longest."""
    idle = [
        (since, link.number, link)
        for link in links
        if (since := link.idle_since(before)) is not None
    ]
    return min(idle)[2] if idle else None
