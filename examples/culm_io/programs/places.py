"""The places of a server: who has one, who waits for one, and who has to leave."""

from __future__ import annotations

from collections import Counter
from typing import Generic, Protocol, TypeVar

__all__ = ["Client", "Newcomer", "Places"]

# Newcomers that may wait, and for how long (seconds).  Each holds a socket.
_WAITING_MAX = 256
_WAIT_MAX_S = 20.0


class Client(Protocol):
    """A client that has a place."""

    @property
    def address(self) -> str: ...

    @property
    def leaving(self) -> bool:
        """Whether it has been told to go."""
        ...

    def rank(self) -> tuple[bool, float] | None:
        """The lowest has to go first; ``None``: it is not idle."""
        ...

    def make_way(self) -> None:
        """Leave at once."""
        ...


C = TypeVar("C", bound=Client)
C_co = TypeVar("C_co", bound=Client, covariant=True)


class Newcomer(Protocol[C_co]):
    """A connection of which nothing has been read."""

    @property
    def address(self) -> str: ...

    def come_in(self) -> C_co:
        """There is a place."""
        ...

    def turn_away(self) -> None:
        """There is none."""
        ...


class Places(Generic[C]):
    """Gives places to newcomers in their order, if need be those of clients that are idle.

    Who finds no place waits: a client that takes nothing is known as such a moment later.
    """

    def __init__(self, *, clients_max: int, address_max: int) -> None:
        self.clients: set[C] = set()
        self._waiting: dict[Newcomer[C], float] = {}  # and since when
        self._clients_max = clients_max
        self._address_max = address_max

    @property
    def waiting(self) -> int:
        """How many have no place yet."""
        return len(self._waiting)

    def arrive(self, newcomer: Newcomer[C], now: float) -> None:
        """A newcomer wants a place."""
        if len(self._waiting) >= _WAITING_MAX:
            newcomer.turn_away()
        else:
            self._waiting[newcomer] = now
            self.look(now)

    def leave(self, newcomer: Newcomer[C]) -> None:
        """A newcomer does not wait any more."""
        self._waiting.pop(newcomer, None)

    def close(self) -> None:
        """There will be no more places."""
        for newcomer in list(self._waiting):
            self.leave(newcomer)
            newcomer.turn_away()

    def look(self, now: float) -> None:
        """See who can have a place by now, and who has waited for too long."""
        if not self._waiting:
            return
        staying = [client for client in self.clients if not client.leaving]
        ranks = {client: rank for client in staying if (rank := client.rank()) is not None}
        idle = sorted(ranks, key=lambda client: ranks[client])
        counts = Counter(client.address for client in staying)
        for newcomer, since in list(self._waiting.items()):
            address = newcomer.address
            if counts[address] >= self._address_max:
                leaver = next((client for client in idle if client.address == address), None)
            elif counts.total() >= self._clients_max:
                leaver = next(iter(idle), None)
            else:
                self._admit(newcomer)
                counts[address] += 1
                continue
            if leaver is not None:
                idle.remove(leaver)
                leaver.make_way()
                self._admit(newcomer)
                counts.update({leaver.address: -1, address: 1})
            elif now >= since + _WAIT_MAX_S:
                self.leave(newcomer)
                newcomer.turn_away()

    def _admit(self, newcomer: Newcomer[C]) -> None:
        self.leave(newcomer)
        self.clients.add(newcomer.come_in())
