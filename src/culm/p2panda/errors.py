"""Errors of the peer and of the caller, and faults in data."""

from __future__ import annotations

from culm.machine import LocalProtocolError, ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """The rule of the protocol that was broken."""

    # The connection: these end it.
    MALFORMED = 1
    """Bytes that are not a message: not canonical CBOR, or not in the form of the message."""
    UNKNOWN_MESSAGE = 2
    """A message of an unknown type."""
    MESSAGE_TOO_LARGE = 3
    """A message of more bytes, or more deeply nested, than its type may have."""
    EOF_IN_MESSAGE = 4
    """The bytes ended inside of a message."""
    EOF_IN_SESSION = 5
    """The bytes ended between two messages, but sessions were running."""
    TOO_MANY_FAULTS = 6
    """The peer has broken the rules in more than `Limits.faults_max` sessions."""

    # One session: these end it, and the connection goes on.
    UNEXPECTED_MESSAGE = 20
    """A message that cannot stand there, or one after the sender's last."""
    WRONG_MODE = 21
    """A message of the other mode."""
    SECOND_HAVE = 22
    BAD_HAVE = 23
    """A log twice in a `Have`, or one without entries."""
    GIVEN_UP = 24
    """The peer ended the session before it had told its heights, or had dropped its request."""
    UNANSWERED = 25
    """A request was not answered for `Timing.answer_max_s`."""
    STALLED = 26
    """Neither side said anything for `Timing.progress_max_s`, and something was owed."""
    BAD_BOUND = 27
    """Something that cannot be a bound, or a bound that is not above the one before."""
    BAD_ITEM = 28
    """A payload outside of its range, not above the one before, or a second height of a log."""
    BAD_FINGERPRINT = 29
    TOO_MANY_RANGES = 30
    """A round of reconciliation with more ranges than we take."""
    TOO_MANY_ROUNDS = 31
    """A question when no round is left in which to answer it."""
    TOO_MANY_LOGS = 32
    """One side has more logs than go into one `Have`, as ours or the other one's limits say."""
    HEIGHTS_ONLY = 33
    """A request for set reconciliation was answered with `Have`: no fault, but no session."""
    TOO_MANY_DUPLICATES = 34
    """More entries that we already had than could be an accident."""

    # Raised: the call was wrong, and nothing has changed.
    NO_SUCH_SESSION = 50
    """A session that is over, or in which that can no longer be said."""
    NOT_ANNOUNCED = 51
    """The peer has not announced all of these schemas."""
    DUPLICATE_SESSION = 52
    """A session about these schemas is running."""
    TOO_MANY_SESSIONS = 53
    """As many sessions as `Limits.sessions_max` are running."""
    OLD_TIMESTAMP = 54
    """An announcement that is not later than the one before."""


class Reason(ProtocolErrorCode):
    """The fault of an entry or an operation."""

    # The operation alone.
    NOT_CANONICAL = 1
    """The bytes are not canonical CBOR, or have more arrays and maps than those of an operation."""
    WRONG_FORM = 2
    """Not an array with the items of an operation of that action."""
    UNKNOWN_VERSION = 3
    UNKNOWN_ACTION = 4
    BAD_SCHEMA_ID = 5
    BAD_PREVIOUS = 6
    """``previous`` is empty, unsorted, or no list of operation ids."""
    BAD_FIELD_NAME = 7
    BAD_VALUE = 8
    """A value of none of the types of fields, out of their range, or text that has no encoding."""

    # The operation beside its schema.
    WRONG_SCHEMA = 20
    MISSING_FIELD = 21
    UNKNOWN_FIELD = 22
    WRONG_TYPE = 23

    # The entry.
    MALFORMED_ENTRY = 40
    BAD_SIGNATURE = 41
    WRONG_LINK = 42
    """A backlink or skiplink is not the hash of the entry to which it points."""
    GAP = 43
    """Entries before this one are missing."""
    FORK = 44
    """The store has another entry in its place."""
    AFTER_END_OF_LOG = 45
    WRONG_PAYLOAD = 46
    """The operation does not have the size and the hash that the entry gives."""
    MISSING_OPERATION = 47
    """The entry came without its operation."""
    TOO_LARGE = 48
    """The operation is larger than `Limits.operation_size_max`."""

    # The operation as a part of its document.
    UNKNOWN_PREVIOUS = 60
    """The first operation of a log follows none that is in the store."""
    SEVERAL_DOCUMENTS = 61
    """The first operation of a log follows operations of several documents."""
    OTHER_DOCUMENT = 62
    """A creation in the midst of a log, which belongs to one document."""
    OTHER_SCHEMA = 63
    """The document is of another schema."""
    NOT_REQUESTED = 64
    """The session is not about the schema of the operation."""


class InvalidOperation(ValueError):
    """An entry or an operation is not valid, for `reason`."""

    def __init__(self, reason: Reason, message: str = "") -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        name = self.reason.name.lower().replace("_", " ")
        return f"{name}: {self.message}" if self.message else name


def no_such_session(session_id: int) -> LocalProtocolError:
    """The error of a caller that names a session which does not run."""
    return LocalProtocolError(ErrorCode.NO_SUCH_SESSION, f"session {session_id}")
