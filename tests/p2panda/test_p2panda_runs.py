"""Entries in runs: the same as one by one, whatever comes between and after them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from p2panda_support import SCHEMAS, Peer

from culm.machine import Event
from culm.p2panda import Connection, EntriesReceived, EntryReceived, Limits
from culm.p2panda.messages import Message, SendEntry, SyncDone, SyncRequest

LIMITS = Limits(operation_size_max=500, faults_max=3)
SIZES = st.sampled_from([0, 1, 23, 24, 255, 256, 270, 400, 500, 700])
SESSIONS = st.sampled_from([0, 0, 0, 0, 24, 300, 7])  # there is no 7
ENTRIES = st.builds(
    lambda session_id, one, two: SendEntry(session_id, b"e" * one, b"o" * two),
    SESSIONS,
    SIZES,
    SIZES,
)
MESSAGES = ENTRIES | st.builds(SyncDone, SESSIONS, st.booleans())


def one_by_one(events: list[Event]) -> list[Event]:
    flat: list[Event] = []
    for event in events:
        if isinstance(event, EntriesReceived):
            flat += [
                EntryReceived(session_id=event.session_id, entry=entry, operation=operation)
                for entry, operation in event.entries
            ]
        else:
            flat.append(event)
    return flat


def told(said: list[Message], cuts: list[int], *, in_runs: bool) -> tuple[list[Event], bytes]:
    """The events when a peer with three sessions sends these, in these cuts."""
    peer = Peer(limits=LIMITS)
    connection = Connection(local_peer=b"a", remote_peer=b"b", limits=LIMITS, in_runs=in_runs)
    connection.announce(SCHEMAS, timestamp=1)
    requests = [
        SyncRequest(session_id, 1, (schema_id,))
        for session_id, schema_id in zip((0, 24, 300), SCHEMAS, strict=True)
    ]
    data = b"".join(map(peer.codec.encode, [*requests, *said]))
    events: list[Event] = []
    start = 0
    for end in sorted({*(cut % (len(data) + 1) for cut in cuts), len(data)}):
        connection.receive_data(data[start:end])
        events += iter(connection.next_event, None)
        start = end
    return one_by_one(events), connection.data_to_send()


@given(st.lists(MESSAGES, max_size=8), st.lists(st.integers(0, 5000), max_size=3))
@example([SendEntry(0, b"e" * 90, b"o" * 90)] * 70, [])
@example([SendEntry(24, b"e" * 270, b"o" * 300)] * 4, [700, 1000])
@example([SendEntry(7, b"e" * 90, b"o" * 90)] * 2, [])
@example([SyncDone(0, False), *[SendEntry(0, b"e" * 90, b"o" * 90)] * 2], [])
def test_runs_are_what_their_entries_are(said: list[Message], cuts: list[int]):
    assert told(said, cuts, in_runs=True) == told(said, cuts, in_runs=False)


@pytest.mark.parametrize(
    ("size", "count", "lengths"), [(99, 100, [64, 36]), (20_000, 8, [3, 3, 2])]
)
def test_a_run_has_many_entries_but_not_all(size: int, count: int, lengths: list[int]):
    """Nor more than 64 KiB."""
    peer = Peer()
    connection = Connection(local_peer=b"a", remote_peer=b"b", in_runs=True)
    connection.announce(SCHEMAS, timestamp=1)
    entries = [SendEntry(0, b"e" * 99, b"o" * size)] * count
    messages = [SyncRequest(0, 1, SCHEMAS[:1]), *entries]
    connection.receive_data(b"".join(map(peer.codec.encode, messages)))
    _, *runs = iter(connection.next_event, None)
    assert [isinstance(run, EntriesReceived) and len(run.entries) for run in runs] == lengths
