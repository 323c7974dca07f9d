"""Client sessions: a value that is proposed twice is applied once (thesis, section 6.3).

A client whose proposal has an uncertain end (`Lost` or `ForwardFailed` that is not certain, or a
server that died) proposes the same bytes again, at any server: state machines recognize
a repeated command.  They decide by the log alone, and therefore alike.

`Sessions` goes around the state machine of every server of the cluster, from its founding on;
`ClientSession` is the client's side, and makes the values.
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum

from culm.arguments import check_int
from culm.buffer import Buffer
from culm.garlic.errors import ErrorCode
from culm.garlic.store import StateMachine
from culm.machine import LocalProtocolError

# All servers have to agree on these, so they are no settings.
SESSIONS_MAX = 4096  # open at a time; beyond that the least recently used one ends
WINDOW = 64  # commands of one session whose order is free

# Of the values applied last, for `Sessions.outcome_of`; each server may decide for itself
OUTCOMES_MAX = 10_000

# Serials that a client may have used after the last applied one before it resumes its session
_LIFE = 2**32

_COMMAND = struct.Struct(">BQQ")  # kind, session, serial
_COUNT = struct.Struct(">I")
_SESSION = struct.Struct(">QQQ")  # session, highest serial, bits of the applied ones
_SERIAL_MAX = 2**64 - 1
_BITS = (1 << WINDOW) - 1


class _ValueType(IntEnum):
    """The first byte of a value."""

    PLAIN = 0
    OPEN = 1
    COMMAND = 2
    CLOSE = 3
    RESUME = 4


class Outcome(Enum):
    """The outcome of a committed value."""

    APPLIED = "applied"
    OPENED = "opened"  # a session, whose id is the value's index
    RESUMED = "resumed"  # the next serial follows `Sessions.last_serial`
    CLOSED = "closed"
    REPEATED = "repeated"  # it was applied before
    TOO_OLD = "too old"  # `WINDOW` later ones are known: it was applied before, or never will be
    NO_SESSION = "no session"  # closed, expired, or never opened: not applied now
    MALFORMED = "malformed"  # not made by this module


def open_session() -> bytes:
    """A value that opens a session.  Proposed twice, it opens two, one of which stays unused."""
    return bytes([_ValueType.OPEN])


def plain(value: Buffer) -> bytes:
    """A value without a session, applied as often as it is committed."""
    return b"".join((bytes([_ValueType.PLAIN]), value))


def resume_session(session: int) -> bytes:
    """A value by which a client that has forgotten its numbers goes on in its session.

    After `Outcome.RESUMED`, no command of its former life will be applied any more, even if a copy
    is still on its way; the new `ClientSession` begins with `Sessions.last_serial`.  A copy of
    the value that comes late ends the new life, too: commands are `TOO_OLD` then, so resume again.
    """
    return _COMMAND.pack(_ValueType.RESUME, session, 0)


def inner_value(value: bytes) -> bytes | None:
    """The part of a value that the state machine in `Sessions` may get; ``None`` if there is none.

    For checks of a value before it is proposed.
    """
    if value[:1] == bytes([_ValueType.PLAIN]):
        return value[1:]
    if value[:1] == bytes([_ValueType.COMMAND]) and len(value) >= _COMMAND.size:
        return value[_COMMAND.size :]
    return None


class ClientSession:
    """A client's side of a session: numbers its commands.

    session
        The index at which `open_session` was applied.
    last
        The last number used: 0 in a session that has just been opened, otherwise the one that the
        cluster tells (see `resume_session`).  Commands are lost if numbers are used twice.

    At most `WINDOW` commands may be unfinished: with more, a retry of the oldest could not be told
    from one that comes too late.
    """

    def __init__(self, session: int, last: int) -> None:
        check_int("session", session, 1, _SERIAL_MAX)
        check_int("last", last, 0, _SERIAL_MAX)
        self._session = session
        self._serial = last
        self._open: dict[bytes, None] = {}  # in the order of their serials
        self._oldest = last + 1

    def command(self, value: Buffer) -> bytes:
        """The value to propose, again and again until its outcome is known.

        Raises `LocalProtocolError` (``QUEUE_FULL``) if the oldest unfinished command is too far
        behind, or no number is left.
        """
        if self._serial + 1 - self._oldest >= WINDOW or self._serial == _SERIAL_MAX:
            raise LocalProtocolError(ErrorCode.QUEUE_FULL, "commands of a session")
        self._serial += 1
        command = _COMMAND.pack(_ValueType.COMMAND, self._session, self._serial) + bytes(value)
        self._open[command] = None
        return command

    def ended(self, command: bytes) -> None:
        """The outcome of `command` is known, or no longer wanted."""
        self._open.pop(command, None)
        oldest = next(iter(self._open), None)
        self._oldest = self._serial + 1 if oldest is None else _COMMAND.unpack_from(oldest)[2]

    def close(self) -> bytes:
        """A value that ends the session."""
        return _COMMAND.pack(_ValueType.CLOSE, self._session, 0)


class Sessions:
    """A `StateMachine` around another, which is given each command of a session once.

    machine
        The state machine that gets the commands.

    Worst-case memory: `SESSIONS_MAX` sessions of about 200 bytes, in a snapshot 24 bytes each; and
    the last `OUTCOMES_MAX` outcomes of about 100 bytes.
    """

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._outcomes: dict[int, Outcome] = {}  # by index, the oldest first
        # By id, the session used last at the end: the highest serial, and bits for it and those
        # before it, set for the applied ones.
        self._table: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        """The number of open sessions."""
        return len(self._table)

    def last_serial(self, session: int) -> int | None:
        """The highest number taken in that session; ``None`` if it is not open."""
        noted = self._table.get(session)
        return None if noted is None else noted[0]

    def outcome_of(self, index: int) -> Outcome | None:
        """The outcome of the value at `index`, which is known as soon as `Committed` tells of it.

        ``None`` if it was not applied here (a snapshot stands for it, or the node ended first), or
        not lately.
        """
        return self._outcomes.get(index)

    def apply(self, index: int, value: bytes) -> None:
        self._outcomes[index] = self._do(index, value)
        if len(self._outcomes) > OUTCOMES_MAX:
            del self._outcomes[next(iter(self._outcomes))]

    def _do(self, index: int, value: bytes) -> Outcome:
        kind = value[0] if value else None
        if kind == _ValueType.PLAIN:
            self._machine.apply(index, value[1:])
            return Outcome.APPLIED
        if kind == _ValueType.OPEN and len(value) == 1:
            while len(self._table) >= SESSIONS_MAX:
                del self._table[next(iter(self._table))]
            self._table[index] = (0, 0)
            return Outcome.OPENED
        if (
            kind not in (_ValueType.COMMAND, _ValueType.CLOSE, _ValueType.RESUME)
            or len(value) < _COMMAND.size
        ):
            return Outcome.MALFORMED
        _, session, serial = _COMMAND.unpack_from(value)
        if session not in self._table:
            return Outcome.NO_SESSION
        if kind == _ValueType.CLOSE:
            del self._table[session]
            return Outcome.CLOSED
        if kind == _ValueType.RESUME:
            highest, _ = self._table.pop(session)
            self._table[session] = (min(highest + _LIFE, _SERIAL_MAX), _BITS)
            return Outcome.RESUMED
        outcome = self._note(session, serial)
        if outcome is Outcome.APPLIED:
            self._machine.apply(index, value[_COMMAND.size :])
        return outcome

    def _note(self, session: int, serial: int) -> Outcome:
        """The outcome of the command with that serial; notes it, and that the session was used."""
        highest, applied = self._table.pop(session)
        outcome = Outcome.APPLIED
        if serial > highest:
            step = serial - highest
            applied = (applied << step & _BITS if step < WINDOW else 0) | 1
            highest = serial
        elif highest - serial >= WINDOW:
            outcome = Outcome.TOO_OLD
        elif applied >> (highest - serial) & 1:
            outcome = Outcome.REPEATED
        else:
            applied |= 1 << (highest - serial)
        self._table[session] = (highest, applied)
        return outcome

    def snapshot(self) -> bytes:
        sessions = (_SESSION.pack(one, *noted) for one, noted in self._table.items())
        return b"".join((_COUNT.pack(len(self._table)), *sessions, self._machine.snapshot()))

    def restore(self, image: bytes) -> None:
        """Take over a snapshot; raises `ValueError` for bytes that are none."""
        count = _COUNT.unpack_from(image)[0] if len(image) >= _COUNT.size else SESSIONS_MAX + 1
        end = _COUNT.size + count * _SESSION.size
        if count > SESSIONS_MAX or len(image) < end:
            raise ValueError("not a snapshot of sessions")
        self._machine.restore(image[end:])
        sessions = _SESSION.iter_unpack(image[_COUNT.size : end])
        self._table = {session: (highest, applied) for session, highest, applied in sessions}
