"""Limits of the resources that a connection or a replicator may use, its times and its policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from culm.arguments import check_numbers, check_type
from culm.p2panda.messages import Mode
from culm.reconcile import Parameters, SessionLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of one `Connection`, and the memory that they imply.  Sizes in bytes.

    Raises `ValueError` for one below 0, or for one with which nothing could be received.

    receive_buffer_max
        Bytes received and not yet parsed, or one message, if that is larger.
    schemas_max, schema_id_size_max
        Schema ids in one announcement or request, and the size of one.  One announcement is kept
        for each side, and the schemas of each session.
    operation_size_max
        The size of one operation; a message is buffered as a whole.
    operation_skip_max
        The size of an operation, or of a ``Have``, that is too large, and is left out: it is passed
        over as it comes.  One that is larger still ends the connection.
    logs_max
        Logs in one ``Have``: 85 bytes each on the wire, some 400 while the session lasts.  One that
        is too large is passed over, and ends its session.
    sessions_max
        Concurrent sessions, whichever side asked for them; under 1 KiB each besides their schemas.
        There may be as many again that have failed on our side and not yet on the peer's.
    faults_max
        Sessions that the peer may spoil, and messages of no session, before the connection is
        closed.
    answers_size_max
        Bytes of answers that wait to be sent: announcements, requests, messages about ranges, and
        ``SyncDone``, but neither entries nor ``Have``.  Above it nothing is read; it can be
        exceeded by three messages about as many schemas as there may be.  Two peers that both stop
        reading would wait for each other: leave room for such messages.
    """

    receive_buffer_max: int = 1 << 16
    schemas_max: int = 256
    schema_id_size_max: int = 1024
    operation_size_max: int = 1 << 19
    operation_skip_max: int = 1 << 26
    logs_max: int = 100_000
    sessions_max: int = 16
    faults_max: int = 16
    answers_size_max: int = 1 << 20

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in ("receive_buffer_max", "schemas_max", "schema_id_size_max", "sessions_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorLimits:
    """Upper bounds of one `Replicator`, and the memory that they imply.  Sizes in bytes.

    Raises `ValueError` for a number below 1 (`verifying_max`: below 0).

    unwritten_size_max
        Data received and not yet in the store, with its overhead; reading pauses above it.
    unsent_size_max
        Bytes that wait to be sent; above it nothing more is read from the store, no ``Have`` is
        made, and no session asked for again.  It can be exceeded by one ``Have`` and one batch.
    batch_size_max, batch_count_max
        Operations that are written or read at a time.  A write ends with the operation that reaches
        one of these.
    spans_max
        Logs whose entries are read at a time; more only if they belong to one document.
    logs_known_max, operations_known_max
        Logs and operations remembered for verifying entries: up to 5 KiB for a log, 300 bytes for
        an operation.
    repeated_max
        Repeated entries in one session (which we had when it began, or which it had brought before)
        in excess of new ones.
    left_out_max
        Logs remembered of which a session has left out an entry, of all sessions together:
        later entries of these are passed over; 400 bytes each.  Beyond that, those of which an
        entry was left out first are forgotten: the next one is looked at, and told, again.
    verifying_max
        Signatures that the driver verifies at a time (`culm.signatures.Verify`), under 1 KiB each.
        0: the replicator verifies them itself.
    connection
        The limits of the connection.
    parameters
        The way of asking in comparisons of ranges.
    comparison
        The limits of these comparisons; for their memory see `culm.reconcile.SessionLimits`.
    """

    unwritten_size_max: int = 1 << 23
    unsent_size_max: int = 1 << 18
    batch_size_max: int = 1 << 20
    batch_count_max: int = 512
    spans_max: int = 256
    logs_known_max: int = 1024
    operations_known_max: int = 8192
    repeated_max: int = 1000
    left_out_max: int = 4096
    verifying_max: int = 0
    connection: Limits = field(default_factory=Limits)
    parameters: Parameters = field(default_factory=Parameters)
    comparison: SessionLimits = field(default_factory=lambda: SessionLimits(ranges_max=1 << 16))

    def __post_init__(self) -> None:
        check_numbers(self, low=1, optional=("verifying_max",))
        check_type("connection", self.connection, Limits)
        check_type("parameters", self.parameters, Parameters)
        check_type("comparison", self.comparison, SessionLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of one `Connection` or `Replicator`, in seconds.

    Raises `ValueError` for one below 0, and for a shortest pause that is 0 or above the longest.

    answer_max_s
        The peer's time to answer a request, or the end of live mode.  After each request without an
        answer it is twice as long, up to `progress_max_s`: the peer's store may be that slow.
    progress_max_s
        The time for which a session may stand still: neither side says anything, though something
        is owed.  Neither time passes while a slow line is in the midst of other messages, as long
        as it carries 1 KiB in that time, and for at most 64 MiB.
    pause_min_s, pause_max_s
        The pause before a replicator asks again (`Policy.asks`) for a session that has failed, or
        was not to end: each one is twice as long as the one before, up to the longest.
    """

    answer_max_s: float = 30.0
    progress_max_s: float = 300.0
    pause_min_s: float = 1.0
    pause_max_s: float = 300.0

    def __post_init__(self) -> None:
        check_numbers(self)
        if not 0 < self.pause_min_s <= self.pause_max_s:
            raise ValueError("pause_min_s is above 0, and not above pause_max_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The actions that a replicator takes by itself.

    asks
        Request a session about all schemas that both have announced, whenever these change; once
        that session is live, leave all others.
    mode
        The mode of the sessions that it requests; that of log heights once the peer has taken
        only such a request.
    live
        Offer live mode when everything has been sent.
    """

    asks: bool = True
    mode: Mode = Mode.SET_RECONCILIATION
    live: bool = True

    def __post_init__(self) -> None:
        check_type("asks", self.asks, bool)
        check_type("mode", self.mode, Mode)
        check_type("live", self.live, bool)
