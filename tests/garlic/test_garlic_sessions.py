"""Client sessions: a value proposed twice is applied once, and all servers see it alike."""

from __future__ import annotations

import dataclasses
import random

import pytest
from test_raft_simulation import STORM, caught

from culm.garlic import sessions as garlic_sessions
from culm.garlic.errors import ErrorCode
from culm.garlic.sessions import (
    SESSIONS_MAX,
    WINDOW,
    ClientSession,
    Outcome,
    Sessions,
    open_session,
    plain,
    resume_session,
)
from culm.machine import LocalProtocolError
from culm.testing.raft_store_model import Values

CALM = dataclasses.replace(
    STORM, loss=0.2, delay_max=0.02, crash=0.2, partition=0.0, leader_crash=0.0
)


class Server:
    """A log that is applied, and the outcomes."""

    def __init__(self) -> None:
        self.machine = Values()
        self.sessions = Sessions(self.machine)
        self.index = 0

    def commit(self, value: bytes) -> Outcome:
        self.index += 1
        self.sessions.apply(self.index, value)
        outcome = self.sessions.outcome_of(self.index)
        assert outcome is not None
        return outcome

    def open(self) -> ClientSession:
        assert self.commit(open_session()) is Outcome.OPENED
        return ClientSession(self.index, 0)


def test_a_command_that_is_committed_twice_is_applied_once() -> None:
    server = Server()
    command = server.open().command(b"pay")
    assert [server.commit(command) for _ in range(3)] == [
        Outcome.APPLIED,
        Outcome.REPEATED,
        Outcome.REPEATED,
    ]
    assert server.machine.values == [b"pay"]


def test_the_same_value_in_two_commands_is_applied_twice() -> None:
    server = Server()
    session = server.open()
    commands = [session.command(b"pay"), session.command(b"pay"), server.open().command(b"pay")]
    assert {server.commit(command) for command in commands} == {Outcome.APPLIED}
    assert server.machine.values == [b"pay"] * 3


def test_what_belongs_to_no_session_is_applied_each_time() -> None:
    server = Server()
    assert [server.commit(plain(b"tick")) for _ in range(2)] == [Outcome.APPLIED] * 2
    assert server.machine.values == [b"tick", b"tick"]


def test_commands_may_overtake_each_other_within_the_window() -> None:
    server = Server()
    session = server.open()
    commands = [session.command(b"%d" % number) for number in range(WINDOW)]
    order = commands * 2
    random.Random(1).shuffle(order)
    for command in order:
        server.commit(command)
    assert sorted(server.machine.values, key=int) == [b"%d" % number for number in range(WINDOW)]


def test_beyond_the_window_a_command_is_not_applied_any_more() -> None:
    server = Server()
    session = server.open()
    commands = []
    for _ in range(WINDOW + 1):
        commands.append(session.command(b"x"))
        session.ended(commands[-1])
    server.commit(commands[-1])
    assert server.commit(commands[1]) is Outcome.APPLIED
    assert server.commit(commands[0]) is Outcome.TOO_OLD
    assert len(server.machine.values) == 2


def test_a_client_is_kept_within_the_window() -> None:
    session = ClientSession(1, 0)
    commands = [session.command(b"") for _ in range(WINDOW)]
    session.ended(commands[1])
    with pytest.raises(LocalProtocolError) as raised:
        session.command(b"")
    assert raised.value.code is ErrorCode.QUEUE_FULL
    session.ended(commands[0])
    for _ in range(2):
        session.command(b"")
    with pytest.raises(LocalProtocolError):
        session.command(b"")


def test_a_window_is_whole_again_when_all_has_ended() -> None:
    session = ClientSession(1, 0)
    for _ in range(3):
        session.ended(session.command(b""))
    assert len([session.command(b"") for _ in range(WINDOW)]) == WINDOW
    with pytest.raises(LocalProtocolError):
        session.command(b"")


def test_who_has_forgotten_its_numbers_goes_on_after_the_last_one() -> None:
    """A session rebuilt from its id used to begin at 1 again: its commands counted as repeats."""
    server = Server()
    former = server.open()
    session = server.index
    done, underway = former.command(b"done"), former.command(b"under way")
    assert server.commit(done) is Outcome.APPLIED
    assert server.commit(resume_session(session)) is Outcome.RESUMED
    last = server.sessions.last_serial(session)
    assert last is not None
    commands = [ClientSession(session, last).command(value) for value in (b"new", b"other")]
    assert server.commit(commands[0]) is Outcome.APPLIED
    assert server.commit(underway) is Outcome.TOO_OLD
    assert server.commit(done) is Outcome.TOO_OLD
    assert server.machine.values == [b"done", b"new"]


def test_a_late_copy_of_a_resumption_ends_the_new_life_which_is_resumed_again() -> None:
    server = Server()
    server.open()
    session = server.index
    for copy, outcome in (
        (False, Outcome.APPLIED),
        (True, Outcome.TOO_OLD),
        (False, Outcome.APPLIED),
    ):
        assert server.commit(resume_session(session)) is Outcome.RESUMED
        if not copy:
            client = ClientSession(session, server.sessions.last_serial(session) or 0)
        assert server.commit(client.command(b"")) is outcome


def test_a_session_that_is_not_open_cannot_be_resumed() -> None:
    server = Server()
    assert server.commit(resume_session(5)) is Outcome.NO_SESSION
    assert server.sessions.last_serial(5) is None
    with pytest.raises(TypeError):
        ClientSession(5)  # type: ignore[call-arg]


def test_a_session_whose_numbers_are_used_up_takes_no_commands() -> None:
    last = 2**64 - 2
    session = ClientSession(1, last)
    session.ended(session.command(b""))
    with pytest.raises(LocalProtocolError):
        session.command(b"")
    server = Server()
    server.open()
    server.commit(ClientSession(1, last).command(b""))
    assert server.commit(resume_session(1)) is Outcome.RESUMED
    assert server.sessions.last_serial(1) == 2**64 - 1


def test_a_closed_session_takes_no_commands() -> None:
    server = Server()
    session = server.open()
    command = session.command(b"late")
    assert server.commit(session.close()) is Outcome.CLOSED
    assert server.commit(command) is Outcome.NO_SESSION
    assert server.commit(session.close()) is Outcome.NO_SESSION
    assert server.machine.values == []


def test_the_session_that_was_not_used_for_longest_makes_room() -> None:
    server = Server()
    first, second = server.open(), server.open()
    for _ in range(SESSIONS_MAX - 2):
        server.open()
    server.commit(first.command(b"used"))
    server.open()
    assert len(server.sessions) == SESSIONS_MAX
    assert server.commit(second.command(b"lost")) is Outcome.NO_SESSION
    assert server.commit(first.command(b"kept")) is Outcome.APPLIED


@pytest.mark.parametrize("repeated", [True, False])
def test_a_retry_keeps_the_session_alive(*, repeated: bool) -> None:
    server = Server()
    first = server.open()
    command = first.command(b"x")
    server.commit(command)
    for _ in range(SESSIONS_MAX - 1):
        server.open()
    if repeated:
        assert server.commit(command) is Outcome.REPEATED
    server.open()
    kept = server.commit(first.command(b"y")) is Outcome.APPLIED
    assert kept is repeated


@pytest.mark.parametrize(
    "value",
    [b"", b"\x04", b"\xff" * 40, b"\x01more", b"\x02" + bytes(15), b"\x03" + bytes(15)],
)
def test_what_is_none_of_its_values_is_passed_over(value: bytes) -> None:
    server = Server()
    assert server.commit(value) is Outcome.MALFORMED
    assert server.machine.values == []


def test_extreme_serials_use_up_their_own_session_alone() -> None:
    server = Server()
    other = server.open()
    command = server.open().command(b"x")
    assert server.commit(command[:9] + b"\xff" * 8 + b"last") is Outcome.APPLIED
    assert server.commit(command) is Outcome.TOO_OLD
    assert server.commit(command[:9] + bytes(8) + b"zero") is Outcome.TOO_OLD
    assert server.commit(other.command(b"y")) is Outcome.APPLIED


@pytest.mark.parametrize("seed", range(5))
def test_a_server_that_starts_from_a_snapshot_decides_as_all_others(seed: int) -> None:
    """And like one that remembers every command there ever was."""
    rng = random.Random(seed)
    server, late = Server(), Server()
    sessions = [server.open() for _ in range(4)]
    known: set[bytes] = set()
    commands: list[bytes] = []
    for step in range(400):
        if step == 200:
            late.sessions.restore(server.sessions.snapshot())
            late.index = server.index
        if not commands or rng.random() < 0.5:
            session = rng.choice(sessions)
            commands.append(session.command(b"%d" % step))
            session.ended(commands[-1])
        command = rng.choice(commands[-20:])
        outcome = server.commit(command)
        assert outcome is (Outcome.REPEATED if command in known else Outcome.APPLIED)
        known.add(command)
        if step >= 200:
            assert late.commit(command) is outcome
    assert late.machine.values == server.machine.values
    assert late.sessions.snapshot() == server.sessions.snapshot()


def test_a_session_of_many_commands_needs_no_more_room_than_one_of_few() -> None:
    server, late = Server(), Server()
    session = server.open()
    size = len(server.sessions.snapshot())
    commands = []
    for number in range(2 * WINDOW):
        commands.append(session.command(b"%d" % number))
        session.ended(commands[-1])
        assert server.commit(commands[-1]) is Outcome.APPLIED
    image = server.sessions.snapshot()
    assert len(image) == size + len(server.machine.snapshot())
    late.sessions.restore(image)
    for command in commands[WINDOW:]:
        assert late.commit(command) is Outcome.REPEATED
    assert late.commit(commands[WINDOW - 1]) is Outcome.TOO_OLD


def test_a_snapshot_keeps_the_order_in_which_sessions_were_used() -> None:
    server = Server()
    first, _ = server.open(), server.open()
    server.commit(first.command(b"used"))
    late = Server()
    late.sessions.restore(server.sessions.snapshot())
    assert late.sessions.snapshot() == server.sessions.snapshot()


@pytest.mark.parametrize("image", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x01", b"\xff" * 100])
def test_another_image_is_refused(image: bytes) -> None:
    with pytest.raises(ValueError, match="snapshot"):
        Server().sessions.restore(image)


# Faults that the simulator would notice


def test_canary_commands_that_are_not_noted_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sessions, "_note", lambda self, session, serial: Outcome.APPLIED)
    assert caught(CALM, size=3, seeds=20, seconds=1.5, check_sends=True)


def test_canary_snapshots_that_forget_what_was_applied_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restore = Sessions.restore

    def forget(self: Sessions, image: bytes) -> None:
        restore(self, image)
        self._table = dict.fromkeys(self._table, (0, 0))

    monkeypatch.setattr(Sessions, "restore", forget)
    assert caught(CALM, size=3, seeds=100, seconds=1.5, check_sends=True)


def test_only_the_last_outcomes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garlic_sessions, "OUTCOMES_MAX", 3)
    server = Server()
    for _ in range(5):
        server.commit(plain(b"tick"))
    known = [server.sessions.outcome_of(index) for index in range(7)]
    assert known == [None] * 3 + [Outcome.APPLIED] * 3 + [None]
