"""Session setup and the use of bymux, sentence by sentence."""

from __future__ import annotations

import itertools

import pytest
from p2p_support import (
    GREEDY,
    Pair,
    Raw,
    adjust,
    cancel,
    drain,
    entry,
    grant,
    link,
    marker,
    metadata,
    payload,
    proposal,
    propose,
    raw,
    send_entry,
    setup_bytes,
    split,
    switch,
    varu64,
    write,
)

from culm.bymux.packets import HEADER_SIZE_MAX
from culm.machine import Closed, ContractErrorCode, LocalProtocolError
from culm.point2point import (
    CancelReason,
    Connection,
    CreditReceived,
    EntryWanted,
    ErrorCode,
    Established,
    Limits,
    Mode,
    Negotiated,
    Proposed,
    Role,
    Setup,
    State,
    Timing,
)

MODES = list(itertools.product(Mode, repeat=4))
SETUP = Setup(send_window_max=1000, receive_window_max=300)


@pytest.mark.parametrize("role", list(Role))
def test_roles_are_told_to_the_machine(role: Role) -> None:
    assert Raw(role).connection.propose(proposal()).request_id % 2 == int(role)


@pytest.mark.parametrize("modes", MODES)
def test_modes(modes: tuple[Mode, Mode, Mode, Mode]) -> None:
    left = Setup(send_mode=modes[0], receive_mode=modes[1])
    right = Setup(send_mode=modes[2], receive_mode=modes[3])
    pair = Pair(left, right)
    one, two = pair.left.session, pair.right.session
    assert one is not None
    assert two is not None
    assert (one.send_mode is Mode.GREEDY) == (modes[0] is modes[3] is Mode.GREEDY)
    assert (one.receive_mode is Mode.GREEDY) == (modes[1] is modes[2] is Mode.GREEDY)
    assert (one.send_mode, one.receive_mode) == (two.receive_mode, two.send_mode)


@pytest.mark.parametrize("windows", list(itertools.product((0, 10, 20), repeat=4)))
def test_windows(windows: tuple[int, int, int, int]) -> None:
    left = Setup(send_window_max=windows[0], receive_window_max=windows[1])
    right = Setup(send_window_max=windows[2], receive_window_max=windows[3])
    one, two = Negotiated.derive(left, right), Negotiated.derive(right, left)
    assert one.compression_window == two.decompression_window == min(windows[0], windows[3])
    assert one.decompression_window == two.compression_window == min(windows[1], windows[2])


def test_windows_are_cut_to_the_limit() -> None:
    limits = Limits(compression_window_max=100)
    connection = Connection(role=Role.PROACTIVE, setup=SETUP, limits=limits)
    assert connection.data_to_send(3) == bytes([0, 100, 100])


@pytest.mark.parametrize("flags", range(256))
def test_setup_bytes(flags: int) -> None:
    """Worked by hand: 1000 is f9 03e8, 300 is f9 012c."""
    send = Mode.GREEDY if flags & 0b10 else Mode.SAFE
    receive = Mode.GREEDY if flags & 0b01 else Mode.SAFE
    setup = Setup(
        send_mode=send, receive_mode=receive, send_window_max=1000, receive_window_max=300
    )
    sent = Connection(role=Role.PROACTIVE, setup=setup).data_to_send(7)
    assert sent == bytes.fromhex(f"{flags & 3:02x} f903e8 f9012c")
    other = Connection(role=Role.REACTIVE, setup=GREEDY)
    other.receive_data(bytes([flags]) + sent[1:])
    [event] = drain(other)
    assert isinstance(event, Established)
    assert event.session == Negotiated(
        send_mode=receive, receive_mode=send, compression_window=300, decompression_window=1000
    )


def test_bymux_begins_behind_the_setup() -> None:
    limits = Limits(requests_max=3, data_window_max=500)
    connection = Connection(role=Role.PROACTIVE, setup=SETUP, limits=limits)
    sent = connection.data_to_send()
    assert sent.startswith(setup_bytes(SETUP))
    # Write on stream 0, Credit for stream 1: decision 14.
    rest = sent[len(setup_bytes(SETUP)) :]
    assert bytes.fromhex("20 00 02 00 03") in rest
    assert bytes.fromhex("01 01 01f4") in rest
    assert len(rest) == 9


def test_control_data_does_not_wait_for_the_setup() -> None:
    connection = Connection(role=Role.PROACTIVE)
    connection.grant_proposals(7)
    assert connection.state is State.SETUP
    sent = connection.data_to_send()
    control, _ = split(sent[len(setup_bytes(Setup())) :])
    assert control == grant(256) + grant(7)
    other = Connection(role=Role.REACTIVE)
    other.receive_data(sent)
    established, *credits = drain(other)
    assert isinstance(established, Established)
    assert [event.credit for event in credits if isinstance(event, CreditReceived)] == [256, 263]


def without_data_credit() -> Connection:
    """With metadata to send, but without permission."""
    connection = Connection(role=Role.REACTIVE)
    connection.receive_data(setup_bytes(Setup()) + write(0, propose(0)))
    drain(connection)
    request = connection.requests[0]
    request.confirm(request.proposal.eagerness)
    request.send_metadata(entry(1))
    return connection


def test_backpressure() -> None:
    peer = Raw()
    ends = [(n, n) for n in range(100, 300)]
    peer.control(*[propose(2 * n + 1, n, end=(n, n), hash=link(1)) for n, _ in ends])
    assert len([e for e in peer.events if isinstance(e, Proposed)]) == 200
    # Data needs credit, which we grant: more than that is a violation of bymux.
    peer = Raw(limits=Limits(data_window_max=100))
    peer.connection.propose(proposal())
    peer.control(adjust(0, "all"))
    peer.receive(write(1, bytes(101)))
    assert peer.code is ErrorCode.MUX_VIOLATION
    # And nothing of ours leaves without the peer's credit.
    connection = without_data_credit()
    connection.data_to_send()
    assert connection.unsent_size == len(switch(0) + metadata(entry(1)))
    connection.receive_data(bytes([0x00, 1, 9]))
    drain(connection)
    assert split(connection.data_to_send())[1] == (switch(0) + metadata(entry(1)))[:9]


@pytest.mark.parametrize("size", [1, 30, 1000])
def test_credit_does_not_tell_how_much_had_come_behind_a_fault(size: int) -> None:
    """The bytes at the end are the same for every chunking."""
    peer = Raw(limits=Limits(data_window_max=1000, packet_size_max=10))
    data = write(1, switch(99) + bytes(998))
    for at in range(0, len(data), size):
        peer.receive(data[at : at + size])
    assert peer.code is ErrorCode.SWITCH_TO_UNKNOWN_REQUEST
    assert peer.connection.data_to_send() == b""


@pytest.mark.parametrize("in_runs", [False, True])
@pytest.mark.parametrize("size", [1, 30, 2000])
def test_nor_how_much_had_come_before_it(size: int, in_runs: bool) -> None:
    peer = Raw(limits=Limits(data_window_max=1000), in_runs=in_runs)
    peer.connection.propose(proposal())
    peer.take()
    data = write(1, switch(0) * 400 + switch(99) + bytes(198))
    for at in range(0, len(data), size):
        peer.receive(data[at : at + size])
    assert peer.code is ErrorCode.SWITCH_TO_UNKNOWN_REQUEST
    assert peer.connection.data_to_send() == b""


def test_data_that_waits_does_not_leave_after_a_fault() -> None:
    peer = Raw()
    peer.control(propose(1))
    request = peer.connection.request(1)
    request.confirm(request.proposal.eagerness)
    peer.take()
    request.send_metadata(entry(1))
    peer.data(b"\x01")
    assert peer.code is ErrorCode.UNUSED_DATA_BYTE
    assert peer.connection.data_to_send() == b""


def test_data_waits_for_a_peer_that_will_read_no_more() -> None:
    connection = without_data_credit()
    connection.receive_data(bytes.fromhex("a0 01"))  # StopRead of stream 1
    assert drain(connection) == []
    assert connection.state is State.CLOSING
    assert split(connection.data_to_send())[1] == b""
    assert connection.unsent_size == 0
    connection.receive_data(bytes.fromhex("80 00 a0 00 80 01"))
    assert [event.error for event in drain(connection) if isinstance(event, Closed)] == [None]


@pytest.mark.parametrize("pause", [False, True])
def test_the_end_can_be_told_twice(pause: bool) -> None:
    peer = Raw()
    for _ in range(2):
        peer.connection.receive_eof()
        if pause:
            peer.events += drain(peer.connection)
    peer.events += drain(peer.connection)
    assert peer.code is ErrorCode.UNEXPECTED_EOF


def test_a_setup_cut_short() -> None:
    connection = Connection(role=Role.PROACTIVE)
    connection.receive_data(b"\0\xf9\1")
    connection.receive_eof()
    [closed] = drain(connection)
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is ErrorCode.UNEXPECTED_EOF


def test_windows_need_not_be_canonical() -> None:
    connection = Connection(role=Role.PROACTIVE)
    connection.receive_data(b"\0" + varu64(5, width=8) + varu64(7, width=3))
    [event] = drain(connection)
    assert isinstance(event, Established)
    assert event.session.decompression_window == 5
    assert event.session.compression_window == 7


class TestIdleTimeout:
    """A peer that begins something and does not go on."""

    def test_in_the_setup(self) -> None:
        connection = Connection(role=Role.PROACTIVE, timing=Timing(idle_timeout_s=5))
        assert connection.next_deadline() is None
        connection.advance(100.0)
        assert connection.next_deadline() == 105.0
        connection.advance(105.0)
        [closed] = drain(connection)
        assert isinstance(closed, Closed)
        assert closed.error is not None
        assert closed.error.code is ErrorCode.PEER_SILENT

    def test_between_packets_it_is_asked_first(self) -> None:
        peer = Raw(timing=Timing(idle_timeout_s=5, keepalive_s=50))
        peer.connection.advance(0.0)
        assert peer.connection.next_deadline() == 50.0
        peer.connection.advance(50.0)
        assert peer.connection.data_to_send() == bytes([0x40, 0])  # Ping on stream 0
        assert peer.connection.next_deadline() == 55.0
        peer.receive(bytes([0x60, 0]))
        peer.connection.advance(51.0)
        assert peer.code is None
        assert peer.connection.next_deadline() == 100.0

    @pytest.mark.parametrize("answered_at", [3.0, 1000.0])
    def test_who_waits_for_our_answer_is_not_silent(self, answered_at: float) -> None:
        peer = Raw(timing=Timing(idle_timeout_s=5))
        peer.connection.advance(0.0)
        request = peer.connection.propose(proposal(2, start_offset=3))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), raw(payload(2)[3:5]))
        assert isinstance(peer.events[-1], EntryWanted)
        assert peer.connection.next_deadline() is None
        if answered_at < 5:
            peer.connection.advance(answered_at)
            peer.receive(b"")
        request.provide_entry(entry(2))
        peer.receive(b"")
        peer.connection.advance(answered_at)
        peer.receive(b"")
        assert peer.code is None
        assert peer.connection.next_deadline() == answered_at + 5  # the payload is due
        peer.connection.advance(answered_at + 5)
        peer.receive(b"")
        assert peer.code is ErrorCode.PEER_SILENT

    def test_it_is_asked_once(self) -> None:
        peer = Raw(timing=Timing(idle_timeout_s=5, keepalive_s=50))
        for now, ping in ((0.0, b""), (50.0, bytes([0x40, 0])), (52.0, b""), (54.9, b"")):
            peer.connection.advance(now)
            assert peer.connection.data_to_send() == ping
        peer.receive(b"")
        assert peer.code is None
        peer.connection.advance(55.0)
        peer.receive(b"")
        assert peer.code is ErrorCode.PEER_SILENT

    @pytest.mark.parametrize(
        "begun",
        [
            metadata(entry(2))[:1],
            metadata(entry(2))[:50],
            metadata(entry(2)) + b"\x08",
            metadata(entry(2)) + b"\x08\x07",
            metadata(entry(2)) + raw(payload(2)[:3]),
        ],
    )
    def test_who_has_begun_something_has_to_go_on(self, begun: bytes) -> None:
        peer = Raw(timing=Timing(idle_timeout_s=5, keepalive_s=50))
        request = peer.connection.propose(proposal(2))
        peer.control(adjust(0, "all"))
        peer.data(switch(0))
        peer.connection.advance(0.0)
        assert peer.connection.next_deadline() == 50.0
        peer.data(begun)
        assert peer.connection.next_deadline() == 5.0
        peer.connection.advance(3.0)
        assert peer.connection.next_deadline() == 5.0
        peer.connection.restart_idle_timeout()  # counted from the last time given
        assert peer.connection.next_deadline() == 8.0
        peer.connection.advance(4.0)
        peer.connection.advance(8.0)
        peer.receive(b"")
        assert peer.code is ErrorCode.PEER_SILENT
        assert request.proposal.start == 2

    def test_who_has_begun_something_is_not_asked(self) -> None:
        peer = Raw(timing=Timing(idle_timeout_s=50, keepalive_s=5))
        peer.connection.advance(0.0)
        peer.data(b"\x03")
        for now in (1.0, 7.0, 49.9):
            peer.connection.advance(now)
            peer.receive(b"")
            assert peer.connection.next_deadline() == 50.0
            assert peer.connection.data_to_send() == b""
        peer.connection.advance(50.0)
        peer.receive(b"")
        assert peer.code is ErrorCode.PEER_SILENT

    @pytest.mark.parametrize(
        ("told", "silent"),
        [((5.0,), True), ((5.1,), False), ((1.0, 5.1), True), ((0.0, 9.0), False)],
    )
    def test_who_is_heard_late_has_as_long_again(
        self, told: tuple[float, ...], silent: bool
    ) -> None:
        """Without a report of the time in between, the bytes may have come at the end of it."""
        peer = Raw(timing=Timing(idle_timeout_s=5, keepalive_s=50))
        peer.connection.advance(0.0)
        peer.data(b"\x03")
        for now in told:
            peer.connection.advance(now)
            peer.receive(b"")
        assert (peer.code is ErrorCode.PEER_SILENT) is silent
        peer.connection.advance(told[-1] + 5.0)
        peer.receive(b"")
        assert peer.code is ErrorCode.PEER_SILENT

    def test_what_was_cancelled_is_not_waited_for(self) -> None:
        peer = Raw(timing=Timing(idle_timeout_s=5, keepalive_s=50))
        request = peer.connection.propose(proposal(2))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), metadata(entry(2)), raw(payload(2)[:3]))
        peer.connection.advance(0.0)
        assert peer.connection.next_deadline() == 5.0
        request.cancel(CancelReason.DO_NOT_RETRY)
        assert peer.connection.next_deadline() == 50.0

    def test_who_need_not_go_on_any_more_is_asked_first(self) -> None:
        peer = Raw(timing=Timing(idle_timeout_s=5, keepalive_s=1))
        request = peer.connection.propose(proposal(2))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), metadata(entry(2)), raw(payload(2)[:3]))
        for now in (0.0, 3.0):
            peer.connection.advance(now)
        request.cancel(CancelReason.DO_NOT_RETRY)
        peer.take()
        peer.receive(b"")
        assert peer.code is None
        peer.connection.advance(3.0)
        assert peer.connection.data_to_send() == bytes([0x40, 0])
        assert peer.connection.next_deadline() == 3.0 + 5.0

    def test_nothing_is_asked_after_the_goodbye(self) -> None:
        peer = Raw(timing=Timing(idle_timeout_s=5, keepalive_s=50))
        peer.connection.advance(0.0)
        peer.connection.close()
        goodbye = peer.connection.data_to_send()
        assert goodbye
        peer.connection.advance(50.0)
        assert peer.connection.data_to_send() == b""


class TestGoodbye:
    def test_what_was_sent_before_it_still_leaves(self) -> None:
        pair = Pair()
        _, theirs = pair.confirmed(start=2)
        theirs.send_metadata(entry(2))
        pair.right.close()
        assert split(pair.right.data_to_send())[1] == switch(0) + metadata(entry(2))

    def test_who_is_asked_something_can_say_it_instead(self) -> None:
        peer = Raw()
        peer.connection.propose(proposal(2, start_offset=3))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), raw(payload(2)[3:5]))
        assert isinstance(peer.events[-1], EntryWanted)
        peer.connection.close()
        peer.receive(bytes.fromhex("80 00 a0 00 80 01 a0 01"))
        assert peer.events[-1] == Closed(error=None)

    def test_verbs_are_too_late_after_it(self) -> None:
        pair = Pair()
        pair.left.close()
        pair.pump()
        for call in (
            lambda: pair.left.propose(proposal()),
            lambda: pair.left.grant_proposals(1),
            pair.left.check_open,
        ):
            with pytest.raises(LocalProtocolError) as caught:
                call()
            assert caught.value.code is ContractErrorCode.ALREADY_CLOSED

    @pytest.mark.parametrize("at_once", [True, False])
    def test_what_comes_behind_it_is_not_ours(self, at_once: bool) -> None:
        peer = Raw()
        peer.connection.close()
        peer.take()
        goodbye = bytes.fromhex("80 00 a0 00 80 01 a0 01")
        peer.receive(goodbye + b"behind" if at_once else goodbye)
        assert isinstance(peer.events[-1], Closed)
        if not at_once:
            peer.receive(b"behind")
        assert peer.connection.trailing_data == b"behind"


class TestEnd:
    """The stream ends; everything received before is still reported."""

    @pytest.mark.parametrize("at_once", [True, False])
    def test_without_a_goodbye(self, at_once: bool) -> None:
        connection = Connection(role=Role.PROACTIVE)
        connection.receive_data(setup_bytes(Setup()))
        told = [] if at_once else drain(connection)
        connection.receive_data(write(0, grant(5)))
        connection.receive_eof()
        told += drain(connection)
        assert [type(event) for event in told] == [Established, CreditReceived, Closed]
        error = told[-1].error  # type: ignore[attr-defined]
        assert error.code is ErrorCode.UNEXPECTED_EOF

    def test_within_a_packet(self) -> None:
        peer = Raw()
        peer.connection.receive_data(write(0, grant(5))[:-1])
        peer.connection.receive_eof()
        [closed] = drain(peer.connection)
        assert isinstance(closed, Closed)
        assert closed.error is not None
        assert closed.error.code is ErrorCode.UNEXPECTED_EOF

    def test_behind_the_goodbye(self) -> None:
        peer = Raw()
        peer.connection.close()
        peer.connection.receive_data(bytes.fromhex("80 00 a0 00 80 01 a0 01"))
        peer.connection.receive_eof()
        assert [event.error for event in drain(peer.connection) if isinstance(event, Closed)] == [
            None
        ]


class TestRoom:
    """The number of bytes welcome."""

    def test_many_requests_alone_do_not_stop_the_reading(self) -> None:
        peer = Raw()
        for number in range(1, 41):
            peer.connection.propose(proposal(number, end=number))
        peer.take()
        assert peer.connection.read_size() > 0

    def test_who_takes_no_answers_is_not_read_any_more(self) -> None:
        """Answers and markers alike, until they have left."""
        peer = Raw()
        cycle = write(0, propose(1) + cancel(1)) + write(1, marker(1))
        connection, cycles = peer.connection, 0
        while connection.read_size():
            connection.receive_data(cycle)
            drain(connection)
            cycles += 1
        assert connection.unsent_size > 1 << 11  # the markers
        owed = sum(map(len, peer.take()))
        assert owed - owed // cycles <= 1 << 14 < owed
        assert connection.read_size() > 0

    def test_to_send(self) -> None:
        pair = Pair(limits=(None, Limits(unsent_size_max=300)))
        _, theirs = pair.confirmed(start=20)
        assert pair.right.send_size == 300
        theirs.send_metadata(entry(20))
        assert pair.right.send_size == 300 - len(switch(0) + metadata(entry(20)))
        theirs.send_payload(payload(20), compress=False)
        send_entry(theirs, 21)
        assert pair.right.send_size == 0
        pair.pump()
        assert pair.right.send_size == 300

    def test_even_one_byte_is_taken(self) -> None:
        pair = Pair()
        _, theirs = pair.confirmed(start=20)
        theirs.send_metadata(entry(20))
        assert pair.right.data_to_send(0) == b""
        taken = [pair.right.data_to_send(1) for _ in range(pair.right.unsent_size)]
        assert all(len(byte) == 1 for byte in taken)

    def test_to_receive(self) -> None:
        """Less by the waiting bytes, before the setup and after it, and none after the end."""
        connection = Connection(role=Role.PROACTIVE)
        room = connection.read_size()
        connection.receive_data(b"\0\xf9")
        assert connection.read_size() == room - 2
        assert drain(connection) == []
        connection.receive_data(b"\1\1\1")
        drain(connection)
        room = connection.read_size()
        connection.receive_data(write(0, grant(1))[:-1])
        drain(connection)
        assert connection.read_size() < room
        connection.receive_eof()
        assert connection.read_size() == 0

    @pytest.mark.parametrize("size", [256, 300, 1000])
    def test_packets_are_as_large_as_what_is_taken_at_a_time(self, size: int) -> None:
        """A reader that takes as much at a time never has to reassemble a packet."""
        pair = Pair()
        _, theirs = pair.confirmed(start=20)
        for seqnum in range(20, 40):
            theirs.send_metadata(entry(seqnum))
            theirs.send_payload(payload(seqnum), compress=False)
        total = pair.right.unsent_size
        taken = 0
        while sent := pair.right.data_to_send(size):
            data = split(sent)[1]
            taken += len(data)
            assert len(sent) - len(data) < 12  # one header, with all its packet
            assert len(sent) > size - HEADER_SIZE_MAX or taken == total
        assert taken == total
