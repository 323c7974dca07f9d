"""A replicator over a store, and a peer made of bytes, which may do anything.

The bytes are framed by hand (`p2p_support`), so that the peer can break every rule.  The
store answers as soon as it is asked, unless it is told to be slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from p2p_support import SAFE, Bytes, metadata, raw, split, switch
from replicator_support import KEEP, SMALL, check_store

from culm.bamboo.records import NewEntry
from culm.bamboo.store import LogStore, MemoryStore
from culm.machine import Effect
from culm.point2point import Role, Setup
from culm.point2point.replication import Interest, Replicator, ReplicatorLimits, Timing
from culm.wire.multihash import YAMF


class RawPeer(Bytes):
    """The replicator under test (reactive: its ids are odd), and its output so far."""

    def __init__(
        self,
        *logs: tuple[NewEntry, ...],
        interest: Interest = KEEP,
        limits: ReplicatorLimits = SMALL,
        timing: Timing | None = None,
        setup: Setup = SAFE,
        peer: Setup = SAFE,
        credit: int = 100,
        data_credit: int | None = None,  # without end
        store: LogStore | None = None,
        slow: bool = False,
    ) -> None:
        super().__init__()
        self.store: LogStore = MemoryStore(family=YAMF) if store is None else store
        for news in logs:
            self.store.append(news[0].entry.log, list(news))
        self.machine = Replicator(
            role=Role.REACTIVE,
            setup=setup,
            interest=interest,
            limits=limits,
            timing=timing or Timing(),
            family=YAMF,
        )
        self.respond: Callable[[Effect], object] = lambda effect: self.store.perform(effect)
        self.slow = slow
        self.takes = True  # all output of the replicator
        self.unread = b""  # bytes that it does not want to read yet
        self.control_seen = self.data_seen = b""
        self.effects: deque[Effect] = deque()
        self.opening(peer, credit, data_credit)

    # Actions of the peer

    def receive(self, data: bytes) -> None:
        """Bytes of the peer, in the sizes that are welcome."""
        left = data
        while left:
            size = self.machine.read_size()
            if not size:
                self.unread = left
                return
            self.machine.receive_data(left[:size])
            left = left[size:]
            self.drain()
        self.unread = b""

    def entries(self, request_id: int, *news: NewEntry) -> None:
        """Whole entries, from the first of a log or from where the request continues."""
        parts = [switch(request_id)]
        for new in news:
            assert new.payload is not None
            parts += [metadata(new.entry, backlink=False), raw(new.payload)]
        self.data(*parts)

    # Actions of the replicator

    def drain(self) -> None:
        going_on = True
        while going_on:
            going_on = False
            while (event := self.machine.next_event()) is not None:
                self.events.append(event)
                going_on = True
            while (effect := self.machine.next_effect()) is not None:
                self.effects.append(effect)
                going_on = True
            while self.effects and not self.slow:
                self.answer()
                going_on = True
            if self.takes and (data := self.machine.data_to_send()):
                control, packets = split(self.behind_setup(data))
                self.control_seen += control
                self.data_seen += packets
                going_on = True

    def answer(self) -> None:
        """Answer the oldest effect."""
        effect = self.effects.popleft()
        self.machine.complete(effect.ticket, self.respond(effect))

    def stored(self, news: NewEntry) -> None:
        """The node stores an entry from elsewhere."""
        self.store.append(news.entry.log, [news])
        self.machine.stored(news.entry.log)
        self.drain()

    def check(self) -> None:
        """Everything in the store verifies."""
        check_store(self.store)
