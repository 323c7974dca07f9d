"""`Request.send_entries`: the bytes are those of the pieces, and it stops where it must."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from p2p_snapshots import connection_as_it_is, nothing_changed, request_as_it_is
from p2p_support import (
    FORK,
    GREEDY,
    KEY,
    LOG,
    Raw,
    adjust,
    beyond_the_end,
    cancel,
    ended_log,
    metadata,
    proposal,
    propose,
    raw,
    refuses,
    stored,
    switch,
    varu64,
    write,
)
from runs_support import Conversation, converse, make_log, replay

from culm.bamboo.links import lipmaa
from culm.bamboo.records import NewEntry, StoredEntry
from culm.kernels import runs as kernel
from culm.machine import ContractErrorCode, LocalProtocolError
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    Connection,
    ErrorCode,
    Limits,
    Part,
    Request,
    RequestState,
    Role,
    Setup,
    State,
)
from culm.testing.link import whole
from culm.wire.multihash import YAMF, YASMF

NO_WINDOW = Setup(send_window_max=0, receive_window_max=0)


def rows(first: int, last: int) -> list[StoredEntry]:
    return [stored(LOG[n]) for n in range(first, last + 1)]


def asked(peer: Raw, start: int = 1, **options: Any) -> Request:
    """A request of the peer that we have confirmed; up to 40 entries are available."""
    peer.control(propose(1, start, **options))
    request = peer.connection.request(1)
    request.confirm(NOTIFY)
    peer.take()
    return request


def by_hand(first: int, last: int) -> bytes:
    """Entries with one link, or a known backlink, in uncompressed form."""
    return b"".join(
        metadata(LOG[n].entry, backlink=False) + raw(LOG[n].payload or b"")
        for n in range(first, last + 1)
    )


def test_the_bytes_are_those_of_the_format() -> None:
    peer = Raw(trust_caller=True, setup=NO_WINDOW)
    request = asked(peer)
    assert request.send_entries(rows(1, 20)) == 20
    assert peer.take() == (b"", switch(1) + by_hand(1, 20))
    assert request.send_cursor.piece == (21, Part.METADATA)
    assert request.send_entries(rows(21, 45)) == 25
    assert peer.take() == (b"", by_hand(21, 45))
    assert request.send_entries([]) == 0
    assert peer.take() == (b"", b"")


def test_what_is_written_is_what_the_kernel_reads() -> None:
    peer = Raw(trust_caller=True, setup=NO_WINDOW)
    asked(peer).send_entries(rows(1, 45))
    data = peer.take()[1].removeprefix(switch(1))
    records = kernel.read(
        data,
        KEY.author + varu64(KEY.log_id),
        1,
        100,
        0,
        2**64 - 1,
        {},
        YAMF.prefix,
        YAMF.encoded_size,
        YAMF.hash,
    )
    assert [(record[6], record[7], record[8]) for record in records] == [
        (new.entry.encode(), new.entry.hash(), new.payload) for new in LOG.values()
    ]
    assert records[-1][-1] == len(data)


# Compared with pieces


def in_pieces(request: Request, news: list[NewEntry]) -> None:
    for new in news:
        request.send_metadata(new.entry)
        request.send_payload(new.payload or b"")


def state(connection: Connection) -> object:
    """Everything except data that might be taken back: none, as all sent data was verified."""
    return [
        replace(
            request,
            incoming=replace(request.incoming, last=None),
            outgoing=replace(request.outgoing, last=None),
        )
        for request in connection_as_it_is(connection).requests
    ]


def spoil(row: StoredEntry, chance: Random) -> StoredEntry:
    """A row that cannot be sent in a run."""
    return chance.choice(
        [
            row._replace(payload=None),
            row._replace(payload_complete=False),
            row._replace(payload=(row.payload or b"") + b"x"),
            row._replace(seqnum=row.seqnum + 1),
            row._replace(encoded=b"\1" + row.encoded[1:]),
            row._replace(encoded=b"\0" + bytes(32) + row.encoded[33:]),
        ]
    )


@given(
    st.integers(0, 1 << 32),
    st.sampled_from([YAMF, YASMF]),
    st.sampled_from([1 << 18, 3000, 100]),
    st.sampled_from([Setup(), NO_WINDOW]),
)
def test_the_bytes_are_those_of_the_pieces(
    seed: int, family: Any, packet_size_max: int, setup: Setup
) -> None:
    chance = Random(seed)
    log = make_log(family)
    limits = Limits(packet_size_max=packet_size_max)
    kept = Conversation(chance.choice(list(Role)), setup, limits, family, log)
    converse(seed, kept, Setup(), steps=8)
    twins = [replay(kept, in_runs=False, chunker=whole).connection for _ in range(2)]
    one, other = twins
    assert one is not None
    assert other is not None
    if one.state is not State.ESTABLISHED:
        return
    for request_id, request in list(one.requests.items()):
        twin = other.request(request_id)
        if request.state is not RequestState.CONFIRMED:
            continue
        for _ in range(4):
            piece = request.send_cursor.piece
            if piece is None or piece.seqnum not in log:
                break
            news = [log[n] for n in range(piece.seqnum, len(log) + 1)]
            given = [stored(new) for new in news]
            if chance.random() < 0.3:
                at = chance.randrange(len(given))
                given[at] = spoil(given[at], chance)
            elif chance.random() < 0.3:
                del given[chance.randrange(len(given))]
            count = request.send_entries(given)
            assert [row.seqnum for row in given[:count]] == [
                new.entry.seqnum for new in news[:count]
            ]
            assert [row.payload for row in given[:count]] == [new.payload for new in news[:count]]
            in_pieces(twin, news[:count])
            assert state(one) == state(other)
            assert one.data_to_send(5000) == other.data_to_send(5000)
            if not count:
                break
    assert one.data_to_send() == other.data_to_send()


def test_what_compresses_and_what_does_not_is_the_same_as_in_pieces() -> None:
    log = make_log(YAMF, 60)
    rows = [stored(new) for new in log.values()]
    sent = []
    for runs in (True, False):
        peer = Raw(trust_caller=True, peer=Setup(), limits=Limits(packet_size_max=5000))
        peer.control(by_peer(log))
        request = peer.connection.request(1)
        request.confirm(NOTIFY)
        peer.take()
        if runs:
            done = 0
            while count := request.send_entries(rows[done:]):
                assert count < 30
                done += count
            assert done == 60
        else:
            in_pieces(request, list(log.values()))
        sent.append(peer.take())
    assert sent[0] == sent[1]
    assert b"\x09" in sent[0][1]
    assert len(sent[0][1]) < sum(len(row.encoded) + row.payload_size for row in rows) - 9000


def by_peer(log: dict[int, NewEntry]) -> bytes:
    """A request for all of that log."""
    key = log[1].entry.log
    return b"\xe0\x01" + key.author + varu64(key.log_id) + b"\x01\x01\x00" + varu64(2**64 - 1)


# Where it stops

STOPS: dict[str, Callable[[list[StoredEntry]], None]] = {
    "a gap": lambda rows: rows.pop(5),
    "an entry twice": lambda rows: rows.insert(5, rows[4]),
    "no payload": lambda rows: rows.insert(5, rows.pop(5)._replace(payload=None)),
    "a payload that is not all there": lambda rows: rows.insert(
        5, rows.pop(5)._replace(payload_complete=False)
    ),
    "a payload of another size": lambda rows: rows.insert(5, rows.pop(5)._replace(payload=b"x")),
    "another log": lambda rows: rows.insert(
        5, rows.pop(5)._replace(encoded=LOG[6].entry.encode().replace(KEY.author, bytes(32)))
    ),
    "the end of the list": lambda rows: rows.__delitem__(slice(5, None)),
}


@pytest.mark.parametrize("name", STOPS)
def test_it_stops_before_what_cannot_be_sent(name: str) -> None:
    peer = Raw(trust_caller=True, setup=NO_WINDOW)
    request = asked(peer)
    given = rows(1, 20)
    STOPS[name](given)
    assert request.send_entries(given) == 5
    assert peer.take()[1] == switch(1) + by_hand(1, 5)
    assert request.send_entries(given[5:]) == 0 or name == "an entry twice"


@pytest.mark.parametrize("last", [1, 4, 13])
def test_it_stops_at_the_end_of_the_range(last: int) -> None:
    peer = Raw(trust_caller=True, setup=NO_WINDOW)
    request = asked(peer, end=(last, 40))
    assert request.send_entries(rows(1, 20)) == last
    assert peer.take()[1] == switch(1) + by_hand(1, last)
    assert request.send_entries(rows(last + 1, 20)) == 0
    assert peer.take() == (b"", b"")


def test_it_stops_at_the_end_of_the_log() -> None:
    log = ended_log(5)
    peer = Raw(trust_caller=True, setup=NO_WINDOW)
    peer.control(by_peer(log))
    request = peer.connection.request(1)
    request.confirm(NOTIFY)
    assert request.send_entries(stored(new) for new in log.values()) == 4
    in_pieces(request, [log[5]])
    assert request_as_it_is(request).outgoing.end_of_log == 5
    peer.take()
    unchanged(peer, request, [stored(new) for new in beyond_the_end(5)])


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"sizes": (0, 35)}, 6),
        ({"sizes": (0, 34)}, 5),
        ({"sizes": (1, 100)}, 0),
        ({"eager": "up to", "up_to": 21}, 4),
        ({"eager": "up to", "up_to": 21, "sizes": (0, 14)}, 3),
        ({"eager": "notify"}, 0),
    ],
)
def test_it_stops_at_payloads_that_are_not_wanted(options: dict[str, Any], count: int) -> None:
    peer = Raw(trust_caller=True, setup=NO_WINDOW)
    request = asked(peer, **options)
    assert request.send_entries(rows(1, 20)) == count


def test_a_packet_is_never_larger_than_our_limit() -> None:
    peer = Raw(trust_caller=True, setup=NO_WINDOW, limits=Limits(packet_size_max=35))
    request = asked(peer)
    done = 0
    while count := request.send_entries(rows(done + 1, 45)):
        assert count == 1  # more than the limit, with its metadata
        done += count
    assert done == 6
    in_pieces(request, [LOG[7]])
    payload = LOG[7].payload or b""
    data = peer.take()[1]
    assert data.endswith(
        metadata(LOG[7].entry, backlink=False) + raw(payload[:35]) + raw(payload[35:])
    )


def test_a_run_is_about_as_large_as_our_limit() -> None:
    peer = Raw(trust_caller=True, setup=NO_WINDOW, limits=Limits(packet_size_max=2000))
    request = asked(peer)
    count = request.send_entries(rows(1, 45))
    data = peer.take()[1]
    assert 2000 <= len(data) < 2000 + 500
    assert data == switch(1) + by_hand(1, count)


@pytest.mark.parametrize("by_us", [True, False])
@pytest.mark.parametrize(("wrong", "count"), [(1, 9), (3, 9), (4, 2), (5, 0)])
def test_it_stops_before_what_forks_what_is_known(by_us: bool, wrong: int, count: int) -> None:
    """Entries 8 and 13 link to 4, and 6 links to 5; no other links to an earlier entry."""
    request = asked(Raw(trust_caller=True))
    request.outgoing.take_run({n: LOG[n].entry.hash() for n in range(1, 6)})
    forked = request.outgoing if by_us else request.incoming
    forked.links[wrong] = FORK[wrong].entry.hash()
    assert {lipmaa(n) for n in range(6, 15)} & {1, 2, 3, 4, 5} == {4, 5}
    assert request.send_entries(rows(6, 14)) == count


def test_the_first_entry_is_left_to_the_pieces_if_the_one_before_is_not_known() -> None:
    peer = Raw(trust_caller=True, setup=NO_WINDOW)
    request = asked(peer, 13)
    assert request.send_entries(rows(13, 20)) == 0
    in_pieces(request, [LOG[13]])
    assert request.send_entries(rows(14, 20)) == 7


# Where it sends nothing


def unchanged(peer: Raw, request: Request, given: Any) -> None:
    with nothing_changed(peer.connection):
        assert request.send_entries(given) == 0
    assert peer.take() == (b"", b"")


@pytest.mark.parametrize(
    "options",
    [
        {"flags": 4},  # payloads alone
        {"flags": 2, "end": (20, 20)},  # sparse
        {"start": 5, "offset": 0},
        {"start": 5, "lower": 4},  # a certificate pool comes first
    ],
)
def test_what_is_no_row_of_whole_entries_is_left_to_the_pieces(options: dict[str, Any]) -> None:
    peer = Raw(trust_caller=True)
    request = asked(peer, **options)
    unchanged(peer, request, rows(options.get("start", 1), 20))


def test_in_the_middle_of_an_entry_nothing_is_sent() -> None:
    peer = Raw(trust_caller=True)
    request = asked(peer)
    request.send_metadata(LOG[1].entry)
    peer.take()
    unchanged(peer, request, rows(1, 5))
    unchanged(peer, request, rows(2, 5))


def test_another_entry_than_the_one_due_is_not_sent() -> None:
    peer = Raw(trust_caller=True)
    request = asked(peer)
    unchanged(peer, request, rows(2, 5))
    unchanged(peer, request, [])


def test_nothing_is_sent_where_the_peer_is_ahead() -> None:
    peer = Raw(trust_caller=True)
    peer.control(propose(1))
    request = peer.connection.request(1)
    request.confirm(EVERYTHING)
    peer.data(switch(1), metadata(LOG[1].entry), raw(b""), metadata(LOG[2].entry))
    peer.take()
    unchanged(peer, request, rows(1, 5))


def test_greedy_senders_send_in_pieces() -> None:
    peer = Raw(trust_caller=True, setup=GREEDY, peer=GREEDY)
    unchanged(peer, asked(peer), rows(1, 5))


def test_senders_that_are_not_trusted_send_in_pieces() -> None:
    peer = Raw()
    unchanged(peer, asked(peer), rows(1, 5))


class Disk(Exception):
    """An error from a store."""


def test_rows_that_cannot_be_read_leave_no_trace() -> None:
    """Not in the history of the compression either."""
    log = make_log(YAMF)

    def failing() -> Iterator[StoredEntry]:
        yield from (stored(log[n]) for n in range(1, 15))
        raise Disk

    sent = []
    for fails in (True, False):
        peer = Raw(trust_caller=True, peer=Setup())
        peer.control(by_peer(log))
        request = peer.connection.request(1)
        request.confirm(NOTIFY)
        peer.take()
        if fails:
            with nothing_changed(peer.connection), pytest.raises(Disk):
                request.send_entries(failing())
        assert request.send_entries(stored(new) for new in log.values()) == 45
        sent.append(peer.take())
    assert sent[0] == sent[1]


# Refusals


def test_it_is_refused_as_other_verbs_are() -> None:
    peer = Raw(trust_caller=True)
    ours = peer.connection.propose(proposal(end=39))
    refuses(peer.connection, ErrorCode.NOT_CONFIRMED, lambda: ours.send_entries(rows(1, 5)))
    peer.control(propose(1, 40))
    theirs = peer.connection.request(1)
    refuses(peer.connection, ErrorCode.NOT_CONFIRMED, lambda: theirs.send_entries(rows(40, 45)))
    theirs.confirm(NOTIFY)
    peer.control(cancel(1))
    refuses(peer.connection, ErrorCode.REQUEST_CANCELLED, lambda: theirs.send_entries(rows(40, 45)))
    peer.control(adjust(0, "all"))
    assert ours.send_entries(rows(1, 5)) == 5
    peer.receive(write(0, b"\x90"))
    assert peer.code is ErrorCode.UNUSED_CONTROL_BYTE
    with pytest.raises(LocalProtocolError) as caught:
        ours.send_entries(rows(6, 7))
    assert caught.value.code is ContractErrorCode.ALREADY_CLOSED
