"""A peer that supports log heights only is asked in that mode, however it says so."""

from __future__ import annotations

import pytest
from p2panda_heights_only import HeightsOnly
from p2panda_nodes import OTHER, SCHEMA, Node, replicators
from p2panda_support import SCHEMAS, Peer, decoded
from p2panda_victim import CODEC

from culm.machine import Event
from culm.p2panda import (
    ErrorCode,
    HaveReceived,
    Limits,
    Mode,
    Replicator,
    RequestedAgain,
    SessionEnded,
    SessionLive,
)
from culm.p2panda.messages import Have, SyncDone, SyncRequest


class Meeting:
    """A node and a peer that supports log heights only."""

    def __init__(self, *, silent: bool, live: bool, asks: bool = True) -> None:
        self.nodes = Node(1), Node(2)
        for node in self.nodes:
            document = node.create(name="ours")
            node.author.update(document, {"age": 1})
        self.machines = replicators(live=live, asks=(asks, False))
        self._wire = HeightsOnly(silent=silent)
        self.events: list[list[Event]] = [[], []]
        self.now = 0.0
        self.wait(0.0)
        for machine in self.machines:
            machine.announce((SCHEMA,), timestamp=1)
        self.run()

    @property
    def asker(self) -> Replicator:
        return self.machines[0]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for machine in self.machines:
            machine.advance(self.now)

    def run(self) -> None:
        busy = True
        while busy:
            busy = False
            for side, (machine, node) in enumerate(zip(self.machines, self.nodes, strict=True)):
                while (event := machine.next_event()) is not None:
                    self.events[side].append(event)
                    busy = True
                while (effect := machine.next_effect()) is not None:
                    machine.complete(effect.ticket, node.store.perform(effect))
                    busy = True
                if data := machine.data_to_send():
                    self.machines[1 - side].receive_data(data if side else self._wire.heard(data))
                    busy = True

    @property
    def equal(self) -> bool:
        ours, theirs = (node.documents() for node in self.nodes)
        return ours == theirs


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("silent", [False, True])
def test_a_peer_that_supports_log_heights_only_is_asked_in_that_mode(silent: bool, live: bool):
    meeting = Meeting(silent=silent, live=live)
    if silent:
        assert not meeting.equal
        meeting.wait(31.0)
        meeting.run()
    assert meeting.equal
    ours, theirs = meeting.events
    assert RequestedAgain(session_id=0, new_session_id=1) in ours
    ended = [each.error for each in ours if isinstance(each, SessionEnded)]
    assert ended == ([] if live else [None])
    given_up = [each.error for each in theirs if isinstance(each, SessionEnded) and each.error]
    assert [error.code for error in given_up] == ([] if silent else [ErrorCode.GIVEN_UP])
    assert [each for each in ours if isinstance(each, SessionLive)] == (
        [SessionLive(session_id=1)] if live else []
    )


@pytest.mark.parametrize("silent", [False, True])
def test_what_it_supports_is_remembered_for_the_next_request(silent: bool):
    meeting = Meeting(silent=silent, live=True)
    meeting.wait(31.0)
    meeting.run()
    for machine in meeting.machines:
        machine.announce((SCHEMA, OTHER), timestamp=2)
    meeting.run()
    [session] = meeting.asker.connection.sessions
    assert (session.mode, session.schema_ids) == (Mode.LOG_HEIGHT, tuple(sorted((SCHEMA, OTHER))))


@pytest.mark.parametrize("silent", [False, True])
def test_so_is_one_of_which_somebody_has_asked_for_a_session(silent: bool):
    meeting = Meeting(silent=silent, live=False, asks=False)
    meeting.asker.request((SCHEMA,))
    meeting.run()
    meeting.wait(31.0)
    meeting.run()
    assert meeting.equal


def test_a_peer_that_answers_in_no_mode_is_asked_once_in_each_before_a_pause():
    asker, _ = replicators()
    asker.advance(0.0)
    asker.announce((SCHEMA,), timestamp=1)
    asker.learn((SCHEMA,), timestamp=1)
    codes = []
    for now in (31.0, 92.0):
        asker.advance(now)
        events = list(iter(asker.next_event, None))
        codes += [
            each.error.code for each in events if isinstance(each, SessionEnded) and each.error
        ]
    assert codes == [ErrorCode.UNANSWERED]
    said = decoded(asker.data_to_send(), CODEC)
    requests = [each for each in said if isinstance(each, SyncRequest)]
    assert requests == [SyncRequest(0, 1, (SCHEMA,)), SyncRequest(1, 0, (SCHEMA,))]
    assert asker.next_deadline() == 93.0
    asker.advance(93.0)
    *_, last = decoded(asker.data_to_send(), CODEC)
    assert last == SyncRequest(2, 1, (SCHEMA,))


def test_have_in_answer_to_the_other_mode_is_no_fault():
    peer = Peer(limits=Limits(faults_max=0))
    peer.meet()
    session = peer.connection.request(SCHEMAS[:1])
    (ended,) = peer.tell(Have(0, ()))
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.HEIGHTS_ONLY
    assert peer.said() == [SyncRequest(0, 1, SCHEMAS[:1]), SyncDone(0, False)]
    again = peer.connection.request(session.schema_ids, mode=Mode.LOG_HEIGHT)
    assert again.session_id == 1
    assert peer.tell(SyncDone(0, False)) == []
    assert peer.tell(Have(1, ())) == [HaveReceived(session_id=1, heights=())]


def test_have_after_another_answer_is_a_fault_as_before():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *SCHEMAS[:1])
    (ended,) = peer.tell(Have(0, ()))
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.WRONG_MODE
