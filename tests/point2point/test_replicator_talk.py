"""A replicator whose peer decides for itself what it confirms, changes and sends."""

from __future__ import annotations

import pytest
from replicator_support import SERVE, key_of, news_of

from culm.bamboo.effects import ReadEntries, ReadEntry
from culm.bamboo.entry import LogKey
from culm.bamboo.records import NewEntry
from culm.bamboo.store import MemoryStore
from culm.machine import Closed, Effect, Event, LocalProtocolError
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Connection,
    Limits,
    PayloadReceived,
    Proposal,
    Proposed,
    Request,
    Role,
    State,
)
from culm.point2point.replication import (
    EntryStored,
    LogOffered,
    LogRefused,
    LogSynced,
    Replicator,
    ReplicatorLimits,
    Settled,
    Want,
)
from culm.wire.multihash import YAMF

NEWS = [news_of((40,), log_id=number) for number in range(3)]
LIMITS = ReplicatorLimits(read_ahead_size_max=1, connection=Limits(packet_size_max=100))


class Talk:
    """A replicator that serves, and the connection of a peer that has none.

    The store does not answer effects that are `slow`.
    """

    def __init__(self, *logs: tuple[NewEntry, ...]) -> None:
        self.store = MemoryStore(family=YAMF)
        for news in (*NEWS, *logs):
            self.store.append(key_of(news), news)
        self.machine = Replicator(role=Role.REACTIVE, interest=SERVE, limits=LIMITS, family=YAMF)
        self.peer = Connection(role=Role.PROACTIVE, family=YAMF)
        self.effects: list[Effect] = []
        self.slow: tuple[type[Effect], ...] = ()
        self.told: list[Event] = []  # by the replicator,
        self.came: list[Event] = []  # and what has come to the peer

    def ask_for(self, log: LogKey) -> None:
        self.peer.propose(Proposal.of_range(log, 1, 1, eagerness=EVERYTHING))
        self.run()

    def range_of(self, log: LogKey, want: Want) -> Request:
        """Let the replicator ask for that range; the request as the peer has it."""
        self.machine.replicate(log, want)
        self.run()
        proposed = [each for each in self.came if isinstance(each, Proposed)]
        return self.peer.request(next(each.request_id for each in proposed if each.proposal.end))

    def run(self) -> None:
        going_on = True
        while going_on:
            going_on = False
            for sender, receiver in ((self.machine, self.peer), (self.peer, self.machine)):
                data = sender.data_to_send()
                receiver.receive_data(data)
                going_on |= bool(data)
            while (event := self.machine.next_event()) is not None:
                self.told.append(event)
                going_on = True
            while (event := self.peer.next_event()) is not None:
                self.came.append(event)
            while (effect := self.machine.next_effect()) is not None:
                self.effects.append(effect)
            for done in [*self.effects]:
                if not isinstance(done, self.slow):
                    self.effects.remove(done)
                    self.machine.complete(done.ticket, self.store.perform(done))
                    going_on = True


def test_a_request_that_no_longer_needs_its_turn_to_read_leaves_it_to_the_next() -> None:
    """Else those behind it would wait for ever, and their peer would be called silent."""
    talk = Talk()
    talk.run()
    first, mine, last = (key_of(news) for news in NEWS)
    talk.slow = (ReadEntries,)  # the first is read, and the others wait for that
    talk.ask_for(first)
    request = talk.range_of(mine, Want(first=1, last=3))
    request.confirm(EVERYTHING)
    talk.run()
    talk.ask_for(last)
    request.adjust(eagerness=NOTIFY)
    talk.run()
    talk.slow = ()
    talk.run()
    assert sum(isinstance(each, PayloadReceived) for each in talk.came) == 2


@pytest.mark.parametrize("end", [2, 3])
def test_a_range_that_the_peer_has_shortened_is_told_as_refused_at_its_end(end: int) -> None:
    """As when the peer knows of a fork; whichever of the two cancels the request."""
    talk = Talk()
    talk.run()
    news = news_of((5, 5, 5), log_id=7)
    request = talk.range_of(key_of(news), Want(first=1, last=3))
    request.confirm(NOTIFY, end=end, upper_certpool=end)
    for entry, payload, _ in news[:end]:
        request.send_metadata(entry)
        request.send_payload(payload or b"", entry=entry)
    talk.run()
    told = [each for each in talk.told if not isinstance(each, (LogOffered, Settled))]
    log = key_of(news)
    assert [each.seqnum for each in told[:-1] if isinstance(each, EntryStored)] == [
        *range(1, end + 1)
    ]
    if end == 3:
        assert told[-1] == LogSynced(log=log, seqnum=3)
    else:
        assert told[-1] == LogRefused(log=log, reason=CancelReason.END_OF_RANGE)


@pytest.mark.parametrize("passed", range(1, 10))
def test_what_the_peer_may_have_passed_is_not_taken_for_passed(passed: int) -> None:
    """A new end changes the path of a sparse range: the peer may be at its end, or elsewhere."""
    news = news_of((10,) * 24, log_id=7)
    for end in range(2, 24):
        talk = Talk(news)
        talk.run()
        talk.slow = (ReadEntries,)
        proposal = Proposal.of_certified_range(key_of(news), 1, 24, newest=24, sparse=True)
        request = talk.peer.propose(proposal)
        talk.run()
        try:
            request.notify(passed)
            request.adjust(end=end, upper_certpool=end)
        except LocalProtocolError:
            continue  # against the rules
        talk.slow = ()
        talk.run()
        assert not talk.effects
        assert talk.machine.state is State.ESTABLISHED


def test_a_goodbye_is_answered_though_data_before_it_waits_for_the_store() -> None:
    """What the store told then was dropped, and the data waited for it for ever."""
    talk = Talk()
    talk.run()
    ((entry, payload, _),) = news = news_of((40,), log_id=7)
    talk.store.append(key_of(news), [NewEntry(entry)])
    request = talk.range_of(key_of(news), Want(first=1, last=1, payload_only=True))
    request.confirm(NOTIFY)
    talk.slow = (ReadEntry,)
    request.send_payload(payload or b"", entry=entry)
    talk.peer.close()
    talk.run()
    assert not any(isinstance(each, Closed) for each in talk.told)
    talk.slow = ()
    talk.run()
    assert Closed() in talk.told
