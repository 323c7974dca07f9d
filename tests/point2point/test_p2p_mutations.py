"""Recorded conversations with changed bytes: no false verification, no exception."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from p2p_support import (
    FORK,
    GREEDY,
    KEY,
    LOG,
    LOG_LENGTH,
    SAFE,
    Pair,
    link,
    payload,
    proposal,
    send_entry,
)

from culm.bamboo.entry import Entry
from culm.bamboo.links import lipmaa
from culm.bamboo.verify import LogVerifier, payload_fault
from culm.machine import Event, LocalProtocolError
from culm.machines.memory import retained_size
from culm.point2point import (
    Cancelled,
    CancelReason,
    Connection,
    EntriesReceived,
    EntryWanted,
    HashWanted,
    Limits,
    MetadataReceived,
    PayloadReceived,
    Role,
    Setup,
    State,
)

LIMITS = Limits(
    data_window_max=20_000,
    packet_size_max=1024,
    unsent_size_max=4096,
    requests_max=8,
    request_adjustments_max=4,
    compression_window_max=1024,
)


def conversation(setup: Setup) -> list[tuple[str, bytes | None]]:
    """The calls of a session's left endpoint (``call``) and its input, in order."""
    pair = Pair(setup, setup, limits=(LIMITS, LIMITS))
    steps: list[tuple[str, bytes | None]] = []

    def turn(call: str | None = None) -> None:
        if call is not None:
            steps.append((call, None))
            perform(pair.left, call)
        while (up := pair.left.data_to_send()) + (down := pair.right.data_to_send()):
            pair.right.receive_data(up)
            pair.left.receive_data(down)
            steps.append(("receive", down))
            pair.take_events("left")
            pair.take_events("right")

    pair.left = Connection(role=Role.PROACTIVE, setup=setup, limits=LIMITS)
    pair.right = Connection(role=Role.REACTIVE, setup=setup, limits=LIMITS)
    turn()
    turn("propose 5")
    theirs = pair.right.request(0)
    theirs.confirm(theirs.proposal.eagerness)
    for seqnum in range(4, 5):
        theirs.send_metadata(LOG[seqnum].entry)
    for seqnum in range(5, 10):
        send_entry(theirs, seqnum)
    turn()
    if setup is GREEDY:
        theirs.send_metadata(LOG[10].entry)
        theirs.send_payload(bytes(len(payload(10))))
        turn()
        theirs.apologize()
        theirs.send_payload(payload(10), entry=LOG[10].entry)
    else:
        send_entry(theirs, 10)
    turn()
    turn("adjust 12")
    for seqnum in (11, 12):
        send_entry(theirs, seqnum)
    theirs.send_metadata(LOG[13].entry)
    turn()
    turn("propose 20")
    other = pair.right.request(2)
    other.confirm(other.proposal.eagerness)
    send_entry(other, 20)
    theirs.cancel(CancelReason.END_OF_RANGE)
    turn()
    pair.right.close()
    turn()
    assert pair.left.state is State.CLOSED
    return steps


def perform(connection: Connection, call: str) -> None:
    verb, number = call.split()
    if verb == "propose" and number == "5":
        connection.propose(proposal(5, lower_certpool=4, end=30, upper_certpool=40))
    elif verb == "propose":
        connection.propose(proposal(20))
    else:
        connection.request(0).adjust(end=int(number))


@cache
def recorded(greedy: bool) -> list[tuple[str, bytes | None]]:
    return conversation(GREEDY if greedy else SAFE)


def is_of_the_author(entry: Entry) -> bool:
    """By `culm.bamboo` alone: signed, and linked like one of the two branches.

    The request gives some hashes of the first branch (its own proposals); the rest comes from
    entries that were verified themselves.
    """
    for log in (LOG, FORK):
        if 1 <= entry.seqnum <= LOG_LENGTH and log[entry.seqnum].entry == entry:
            targets = {entry.seqnum - 1, lipmaa(entry.seqnum)} - {0}
            verifier = LogVerifier(
                KEY,
                family=entry.family,
                known={n: log[n].entry.hash() for n in targets},
                sparse=True,
            )
            return verifier.faults(entry) == () or entry.seqnum == 1
    return False


class Judge:
    """Checks everything reported as verified, independently of the code under test."""

    def __init__(self) -> None:
        self.entries: dict[int, dict[int, Entry]] = {}
        self.payloads: dict[tuple[int, int], bytearray] = {}

    def take(self, connection: Connection, event: Event) -> None:
        if isinstance(event, MetadataReceived):
            if event.verified:
                assert is_of_the_author(event.entry)
                entries = self.entries.setdefault(event.request_id, {})
                entries[event.entry.seqnum] = event.entry
        elif isinstance(event, EntriesReceived):
            entries = self.entries.setdefault(event.request_id, {})
            for new in event.entries:
                assert is_of_the_author(new.entry)
                assert new.payload is not None
                assert payload_fault(new.entry, new.payload) is None
                entries[new.entry.seqnum] = new.entry
        elif isinstance(event, PayloadReceived):
            key = event.request_id, event.seqnum
            if event.offset == 0:
                self.payloads[key] = bytearray()
            kept = self.payloads.setdefault(key, bytearray())
            kept += event.data
            if event.verified:
                entry = self.entries.get(event.request_id, {}).get(event.seqnum)
                entry = entry or LOG[event.seqnum].entry  # answered below
                assert payload_fault(entry, kept) is None
        elif isinstance(event, Cancelled):
            if event.cancel.proof is not None:
                assert event.cancel.proof.verify()
            if event.cancel.entry is not None:
                assert is_of_the_author(event.cancel.entry)
        elif isinstance(event, HashWanted):
            if event.seqnum <= LOG_LENGTH:
                connection.request(event.request_id).provide_hash(event.seqnum, link(event.seqnum))
            else:
                connection.request(event.request_id).cancel(CancelReason.DO_NOT_RETRY)
        elif isinstance(event, EntryWanted):
            if event.seqnum <= LOG_LENGTH:
                connection.request(event.request_id).provide_entry(LOG[event.seqnum].entry)
            else:
                connection.request(event.request_id).refuse()


def mutate(data: bytes, draw: st.DataObject) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        if not changed:
            break
        at = draw.draw(st.integers(0, len(changed) - 1))
        kind = draw.draw(st.sampled_from(["flip", "set", "drop", "insert", "double"]))
        if kind == "flip":
            changed[at] ^= 1 << draw.draw(st.integers(0, 7))
        elif kind == "set":
            changed[at] = draw.draw(st.integers(0, 255))
        elif kind == "drop":
            del changed[at]
        elif kind == "insert":
            changed[at:at] = draw.draw(st.binary(min_size=1, max_size=4))
        else:
            changed[at:at] = changed[at : at + draw.draw(st.integers(1, 60))]
    return bytes(changed)


def play(
    greedy: bool, steps: list[tuple[str, bytes | None]], *, in_runs: bool = False
) -> Connection:
    connection = Connection(
        role=Role.PROACTIVE, setup=GREEDY if greedy else SAFE, limits=LIMITS, in_runs=in_runs
    )
    empty, judge = retained_size(connection), Judge()
    for step, data in steps:
        if step == "receive":
            assert data is not None
            connection.receive_data(data)
        elif connection.state is State.ESTABLISHED and (
            step.startswith("propose") or 0 in connection.requests
        ):
            with suppress(LocalProtocolError):  # the change may have made the call illegal
                perform(connection, step)
        while (event := connection.next_event()) is not None:
            judge.take(connection, event)
        connection.data_to_send()
        assert retained_size(connection) - empty < 200_000
    return connection


def test_the_conversations_are_valid() -> None:
    for greedy in (False, True):
        for in_runs in (False, True):
            assert play(greedy, recorded(greedy), in_runs=in_runs).state is State.CLOSED


@settings(max_examples=settings.default.max_examples * 4)  # type: ignore[union-attr]
@given(st.data(), st.booleans(), st.booleans())
def test_changed_bytes_verify_nothing(data: st.DataObject, greedy: bool, in_runs: bool) -> None:
    steps = list(recorded(greedy))
    receives = [n for n, (step, _) in enumerate(steps) if step == "receive"]
    for index in data.draw(st.lists(st.sampled_from(receives), min_size=1, max_size=3)):
        received = steps[index][1]
        assert received is not None
        steps[index] = ("receive", mutate(received, data))
    play(greedy, steps, in_runs=in_runs)


@given(st.data(), st.booleans(), st.booleans())
def test_bytes_of_the_other_branch_verify_nothing_wrong(
    data: st.DataObject, greedy: bool, in_runs: bool
) -> None:
    """A liar with the author's key: fields of the forked log take the place of others."""
    steps = list(recorded(greedy))
    for _ in range(data.draw(st.integers(1, 4))):
        seqnum = data.draw(st.integers(4, 13))
        name = data.draw(st.sampled_from(["signature", "payload_hash", "backlink", "payload"]))
        one, other = (
            log[seqnum].payload if name == "payload" else getattr(log[seqnum].entry, name)
            for log in (LOG, FORK)
        )
        if one and other:
            steps = [(s, d.replace(one, other[: len(one)]) if d else d) for s, d in steps]
    play(greedy, steps, in_runs=in_runs)
