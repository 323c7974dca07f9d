"""Reading ahead for several requests, with room for one of them."""

from __future__ import annotations

from replicator_support import SERVE, key_of, news_of

from culm.bamboo.effects import ReadEntries
from culm.bamboo.entry import LogKey
from culm.bamboo.store import MemoryStore
from culm.machine import Effect, Event
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    Connection,
    Limits,
    PayloadReceived,
    Proposal,
    Proposed,
    Role,
)
from culm.point2point.replication import Replicator, ReplicatorLimits, Want
from culm.wire.multihash import YAMF

NEWS = [news_of((40,), log_id=number) for number in range(3)]
LIMITS = ReplicatorLimits(read_ahead_size_max=1, connection=Limits(packet_size_max=100))


class Reader:
    """A replicator that serves; the peer has none.

    The store does not answer reads of entries while it is `slow`.
    """

    def __init__(self) -> None:
        self.store = MemoryStore(family=YAMF)
        for news in NEWS:
            self.store.append(key_of(news), news)
        self.machine = Replicator(role=Role.REACTIVE, interest=SERVE, limits=LIMITS, family=YAMF)
        self.peer = Connection(role=Role.PROACTIVE, family=YAMF)
        self.effects: list[Effect] = []
        self.slow = False
        self.came: list[Event] = []

    def ask_for(self, log: LogKey) -> None:
        self.peer.propose(Proposal.of_range(log, 1, 1, eagerness=EVERYTHING))
        self.run()

    def run(self) -> None:
        going_on = True
        while going_on:
            going_on = False
            for sender, receiver in ((self.machine, self.peer), (self.peer, self.machine)):
                data = sender.data_to_send()
                receiver.receive_data(data)
                going_on |= bool(data)
            while self.machine.next_event() is not None:
                going_on = True
            while (event := self.peer.next_event()) is not None:
                self.came.append(event)
            while (effect := self.machine.next_effect()) is not None:
                self.effects.append(effect)
            for done in [*self.effects]:
                if not (self.slow and isinstance(done, ReadEntries)):
                    self.effects.remove(done)
                    self.machine.complete(done.ticket, self.store.perform(done))
                    going_on = True


def test_a_request_that_no_longer_needs_its_turn_to_read_leaves_it_to_the_next() -> None:
    """Else those behind it would wait for ever, and their peer would be called silent."""
    reader = Reader()
    reader.run()
    first, mine, last = (key_of(news) for news in NEWS)
    reader.slow = True  # the first is read, and the others wait for that
    reader.ask_for(first)
    reader.machine.replicate(mine, Want(first=1, last=3))
    reader.run()
    proposed = [each for each in reader.came if isinstance(each, Proposed)]
    fetching = next(each.request_id for each in proposed if each.proposal.end)
    request = reader.peer.request(fetching)
    request.confirm(EVERYTHING)
    reader.run()
    reader.ask_for(last)
    request.adjust(eagerness=NOTIFY)
    reader.run()
    reader.slow = False
    reader.run()
    assert sum(isinstance(each, PayloadReceived) for each in reader.came) == 2
