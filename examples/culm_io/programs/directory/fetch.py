"""Fetching: all logs that a peer offers come into our store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from culm.bamboo import ForkProof, LogKey, LogStore, Reason
from culm.intervals import Intervals
from culm.machine import Closed, Event
from culm.point2point import Role, State
from culm.point2point.replication import (
    EntryStored,
    ForkFound,
    Interest,
    LogOffered,
    LogRefused,
    PayloadProgress,
    Replicator,
    Settled,
    Timing,
    Want,
)
from culm.pump import AbortedError
from culm_io.asyncio.driver import MachineProtocol
from culm_io.programs.captures import Captures
from culm_io.programs.directory.records import PAYLOAD_SIZE_MAX
from culm_io.programs.directory.survey import Survey, survey_log
from culm_io.programs.directory.thread import StoreThread

__all__ = [
    "Added",
    "Failure",
    "Fetched",
    "Fetcher",
    "Terms",
    "fetch_all_sound",
    "fetch_logs",
    "log_name",
    "several_logs",
]

# How long we wait at most for a log to be offered, or for an answer to our goodbye, in seconds.
_PATIENCE_MAX_S = 5.0
# The size of an entry in a store besides its payload, about.
_ENTRY_SIZE = 400
# The number of logs that may fail to verify: they are left out, to get the others of the peer.
_LEFT_OUT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why not all is here: a code to tell cases apart by, and a text."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How to fetch.

    wanted: the only log that is accepted, besides those that the store has.
    idle_timeout_s: for how long a peer may be silent in the middle of something; for twice as long
    it may owe something and send nothing of it.
    settle_s: when nothing has been going on for so long, all is here.
    payload_size_max: larger payloads are left out; those that are larger than any record are not
    taken in any case.
    added_size_max: how many bytes the store may be given.
    captures: where connections are recorded.
    """

    wanted: LogKey | None
    idle_timeout_s: float
    settle_s: float
    payload_size_max: int | None = None
    added_size_max: int | None = None
    captures: Captures = field(default_factory=Captures)

    @property
    def patience_s(self) -> float:
        """How long we wait for data that may well not come."""
        return min(_PATIENCE_MAX_S, self.idle_timeout_s)

    @property
    def want(self) -> Want:
        """The wanted part of every log."""
        size_max = self.payload_size_max
        size_max = PAYLOAD_SIZE_MAX if size_max is None else min(size_max, PAYLOAD_SIZE_MAX)
        return Want(payload_mandatory=True, size_max=size_max)

    @property
    def leaves_out(self) -> bool:
        """Whether records are left out for their size; else a payload that large is no record."""
        return self.want.size_max < PAYLOAD_SIZE_MAX

    def interest(self, *, live: bool) -> Interest:
        """The same for a replicator."""
        accepting = self.wanted is None
        return Interest(live=live, accept_new_logs=accepting, offer_stored=True, want=self.want)


@dataclass(slots=True)
class Fetched:
    """The result of fetching.

    entries, payload_bytes: received and stored this time; wire_bytes: both directions.
    offered: how far the peer has each log; positions: how far we have it.
    unsound: the logs that did not verify.
    """

    entries: int = 0
    payload_bytes: int = 0
    wire_bytes: int = 0
    offered: dict[LogKey, int] = field(default_factory=dict)
    positions: dict[LogKey, int] = field(default_factory=dict)
    unsound: set[LogKey] = field(default_factory=set)
    failure: Failure | None = None

    def fail(self, failure: Failure) -> None:
        """Note a failure, unless there was one before."""
        self.failure = self.failure or failure

    def add(self, other: Fetched) -> None:
        """Something else was fetched as well; whether that has failed is another matter."""
        self.entries += other.entries
        self.payload_bytes += other.payload_bytes
        self.wire_bytes += other.wire_bytes
        self.unsound |= other.unsound
        for mine, theirs in ((self.offered, other.offered), (self.positions, other.positions)):
            mine.update((log, max(seqnum, mine.get(log, 0))) for log, seqnum in theirs.items())


class _Places:
    """Entries of logs, each of which is new once."""

    def __init__(self) -> None:
        self._numbers: dict[LogKey, Intervals] = {}

    def is_new(self, log: LogKey, seqnum: int) -> bool:
        """Whether this was not asked before."""
        numbers = self._numbers.setdefault(log, Intervals())
        is_new = seqnum not in numbers
        numbers.add(seqnum)
        return is_new


@dataclass(slots=True)
class Added:
    """The additions to the store in one run, over all connections.

    size: in bytes.  entries, payloads: several servers may send the same.
    """

    size: int = 0
    entries: _Places = field(default_factory=_Places)
    payloads: _Places = field(default_factory=_Places)


async def fetch_logs(
    store: LogStore,
    host: str,
    port: int,
    terms: Terms,
    *,
    on_progress: Callable[[Fetched], object] = lambda fetched: None,
) -> Fetched:
    """Fetch the entries that the peer at `host` and `port` offers and `store` lacks."""
    fetched, added = Fetched(), Added()
    interest = terms.interest(live=False)
    with StoreThread(store) as thread:

        def fetcher(left_out: Collection[LogKey]) -> Fetcher:
            return Fetcher(
                thread, terms, fetched, interest, on_progress, added=added, left_out=left_out
            )

        await fetch_all_sound(fetcher, host, port)
    return fetched


async def fetch_all_sound(
    fetcher: Callable[[Collection[LogKey]], Fetcher], host: str, port: int
) -> None:
    """Fetch over one connection; if a log does not verify, the others over another one.

    `fetcher` makes one that leaves out some logs.
    """
    left_out: list[LogKey] = []
    failure: Failure | None = None
    misled = False
    while True:
        made = fetcher(left_out)
        await made.run(host, port)
        failure = failure or made.fetched.failure
        if made.over:
            break
        if not misled and await made.was_misled():
            misled, failure = True, None
            made.fetched.unsound.clear()
            continue
        log = made.log_at_fault
        is_only_one = log == made.terms.wanted or len(made.fetched.offered) == 1
        if log is None or is_only_one or len(left_out) == _LEFT_OUT_MAX:
            break
        left_out.append(log)
    made.fetched.failure = failure


class Fetcher:
    """Follows the events of one replicator, and decides when it is enough."""

    def __init__(
        self,
        thread: StoreThread,
        terms: Terms,
        fetched: Fetched,
        interest: Interest,
        on_progress: Callable[[Fetched], object] = lambda fetched: None,
        *,
        added: Added | None = None,
        left_out: Collection[LogKey] = (),
    ) -> None:
        self.thread = thread
        self._left_out = left_out
        self.log_at_fault: LogKey | None = None  # that does not verify, which ends the connection
        self.store = thread.store  # to be used in that thread
        self.terms = terms
        self.fetched = fetched
        self.over = False  # we have said goodbye
        fetched.failure = None
        self._on_progress = on_progress
        self.refusals: list[str] = []
        self.begun: dict[tuple[LogKey, int], int] = {}  # how much there was of payloads
        self._begun: dict[tuple[LogKey, int], int] = {}  # how much there is of them by now
        self._added = Added() if added is None else added
        self._surveys: dict[LogKey, Survey] = {}
        self.replicator = terms.captures.tape("point2point-replicator", role="PROACTIVE").make(
            Replicator,
            role=Role.PROACTIVE,
            family=self.store.family,
            interest=replace(interest, want=None) if left_out else interest,
            timing=Timing(
                idle_timeout_s=terms.idle_timeout_s,
                keepalive_s=terms.idle_timeout_s,
                # Silence, with a question and no answer, is told first.
                progress_max_s=2 * terms.idle_timeout_s,
                settle_s=terms.settle_s,
            ),
        )
        self.protocol = MachineProtocol(
            self.replicator,
            perform=lambda effect: self.store.perform(effect),
            executor=thread.executor,
            on_event=self._take,
        )

    def _look_at_all(self) -> None:
        for log in self.store.logs():
            self.look_at(log)

    def look_at(self, log: LogKey) -> None:
        """Find out how far we have this log, and the missing entries."""
        survey = self.survey(log)
        self._surveys[log] = survey
        begun = {(log, seqnum): size for seqnum, size in survey.begun.items()}
        self.begun.update(begun)
        self._begun.update(begun)
        self.fetched.positions[log] = survey.position - survey.last_lacks

    def survey(self, log: LogKey) -> Survey:
        """The stored entries, and those to ask for of the missing ones behind us."""
        return survey_log(self.store, log, payload_size_max=self.terms.want.size_max)

    async def run(self, host: str, port: int) -> None:
        """Fetch over one connection."""
        loop = asyncio.get_running_loop()
        await self.thread.call(self._look_at_all)
        protocol = self.protocol
        self.prepare()
        try:
            async with asyncio.timeout(self.terms.idle_timeout_s):
                await loop.create_connection(lambda: protocol, host, port)
        except OSError as error:  # among them TimeoutError
            reason = error.strerror or str(error) or "no answer"
            text = f"{host}:{port} cannot be reached: {reason}"
            self.fetched.fail(Failure("CONNECTION_FAILED", text))
            return
        self.connected()
        try:
            self._judge(await protocol.wait_closed())
        except AbortedError:
            pass  # the reason was told by the aborter
        except (OSError, sqlite3.Error) as error:  # as of a full disk
            self.fetched.fail(Failure("CANNOT_STORE", str(error)))
        self.fetched.wire_bytes += protocol.pump.bytes_received + protocol.pump.bytes_sent
        await self.finish()
        if self._has_too_large():
            self.fetched.fail(_too_large("a log has a payload that is larger than any record"))
        if (missing := await self.thread.call(self.why_incomplete)) is not None:
            self.fetched.fail(Failure("INCOMPLETE", missing))

    def abandon(self) -> None:
        """End the connection at once; there is no need for another one."""
        self.over = True
        self.protocol.abort()

    async def was_misled(self) -> bool:
        """Whether the payload that did not verify had been begun by an earlier peer.

        The replicator has thrown it away; all of it may well come from this peer.
        """
        failure = self.fetched.failure
        if failure is None or failure.code != "INVALID_DATA":
            return False
        return await self.thread.call(self._has_thrown_away)

    def _has_thrown_away(self) -> bool:
        entries = (self.store.entry(*place) for place in self.begun)
        return any(entry is not None and not entry.payload_stored for entry in entries)

    # Events.

    def prepare(self) -> None:
        """The connection is about to be made."""
        if self.terms.wanted is not None:
            self.replicator.replicate(self.terms.wanted)

    def connected(self) -> None:
        """The connection is there."""

    async def finish(self) -> None:
        """The connection is over, and everything received is in the store."""

    def _take(self, event: Event) -> None:
        self.handle(event)
        self._on_progress(self.fetched)

    def handle(self, event: Event) -> None:
        """Take one event."""
        fetched = self.fetched
        match event:
            case LogOffered(log=log, seqnum=seqnum):
                fetched.offered[log] = max(seqnum, fetched.offered.get(log, 0))
                if self._left_out and log not in self._left_out:
                    self.ask_for(log, self.terms.want)
                self._fill(log, seqnum)
            case EntryStored() | PayloadProgress():
                self._stored(event)
            case ForkFound(proof=proof):
                fetched.fail(_forked(proof))
            case LogRefused(log=log, fault=fault):
                self.refusals.append(f"{log_name(log)}: {_why(event)}")
                if fault is Reason.INVALID_LOG:
                    self.log_at_fault = log
                    fetched.unsound.add(log)
                elif fault is Reason.PAYLOAD_HASH:
                    fetched.unsound.add(log)
                    fetched.fail(Failure("INVALID_DATA", f"{log_name(log)}: {_why(event)}"))
            case Settled():
                self.settled()

    def _fill(self, log: LogKey, offered: int) -> None:
        """Ask for payloads that are missing behind us and that the peer may have."""
        survey = self._surveys.get(log)
        if survey is None:
            return
        for gap in survey.gaps:
            assert gap.first is not None
            assert gap.last is not None
            if gap.first <= offered:
                self.ask_for(log, replace(gap, last=min(gap.last, offered)))
        survey.gaps.clear()

    def ask_for(self, log: LogKey, want: Want) -> None:
        """Ask the peer for that, unless it is gone: it may be before its last events are told."""
        if self.is_open:
            self.protocol.call(self.replicator.replicate, log, want)

    def _stored(self, event: EntryStored | PayloadProgress) -> None:
        fetched, log, seqnum = self.fetched, event.log, event.seqnum
        size = event.payload_size if isinstance(event, EntryStored) else event.size
        self._added.size += self._added_by(event)
        added_size_max = self.terms.added_size_max
        if size > PAYLOAD_SIZE_MAX and not self.terms.leaves_out:
            fetched.fail(_too_large(f"entry {seqnum} has a payload of {size} bytes"))
            self.protocol.abort()
        elif added_size_max is not None and self._added.size > added_size_max:
            text = f"more than {added_size_max} bytes would be stored; --max-size allows more"
            fetched.fail(Failure("TOO_MUCH", text))
            self.protocol.abort()
        elif isinstance(event, EntryStored) and self.is_all_of(event):
            fetched.entries += self._added.entries.is_new(log, seqnum)
            if event.payload_stored and self._added.payloads.is_new(log, seqnum):
                fetched.payload_bytes += size - self.begun.pop((log, seqnum), 0)
            fetched.positions[log] = max(seqnum, fetched.positions.get(log, 0))

    def _added_by(self, event: EntryStored | PayloadProgress) -> int:
        """How many bytes the store has by that which it had not before."""
        place = event.log, event.seqnum
        if isinstance(event, PayloadProgress):
            before, self._begun[place] = self._begun.get(place, 0), event.stored
            return event.stored - before
        stored = event.payload_size - self._begun.pop(place, 0) if event.payload_stored else 0
        return _ENTRY_SIZE + stored

    def _has_too_large(self) -> bool:
        """Whether the peer's logs have payloads that are larger than any record."""
        surveys = map(self._surveys.get, self.fetched.offered)
        found = any(survey is not None and survey.left_out for survey in surveys)
        return found and not self.terms.leaves_out

    def is_all_of(self, event: EntryStored) -> bool:
        """Whether all that we want of that entry is here."""
        return event.payload_stored or not self.terms.want.admits_payload(event.payload_size)

    def settled(self) -> None:
        """Nothing is under way."""
        if self._is_offered():
            self.say_goodbye()
        else:  # perhaps the peer is slow
            asyncio.get_running_loop().call_later(self.terms.patience_s, self._give_up)

    def _give_up(self) -> None:
        if not self._is_offered():
            self.fetched.fail(Failure("NO_LOG", "the peer offers no log that we could use"))
            self.say_goodbye()

    def _is_offered(self) -> bool:
        offered, wanted = self.fetched.offered, self.terms.wanted
        return any(offered.values()) if wanted is None else offered.get(wanted, 0) > 0

    @property
    def connected_to_server(self) -> bool:
        """Whether the connection has been made; it may be over."""
        return self.protocol.transport is not None

    @property
    def is_open(self) -> bool:
        """Whether the peer is still there to be told something."""
        return self.replicator.state in (State.SETUP, State.ESTABLISHED)

    def say_goodbye(self) -> None:
        """End the connection, in good order if the peer answers."""
        if self.is_open and not self.over:
            self.over = True
            asyncio.get_running_loop().call_later(self.terms.patience_s, self.protocol.abort)
            self.protocol.call(self.replicator.close)

    # The result.

    def _judge(self, closed: Closed) -> None:
        error = closed.error
        if not self.over and error is not None:
            self.fetched.fail(Failure(error.code.name, str(error)))
        elif not self.over:
            self.left_by_peer()

    def left_by_peer(self) -> None:
        """The peer has said goodbye."""
        self.fetched.fail(Failure("CLOSED_EARLY", "the peer has closed the connection"))

    def is_behind(self) -> bool:
        """Whether the peer has offered entries that are not here."""
        positions = self.fetched.positions
        return any(positions.get(log, 0) < seqnum for log, seqnum in self.fetched.offered.items())

    def why_incomplete(self) -> str | None:
        """The missing part of the offers, if there is one."""
        for log, offered in self.fetched.offered.items():
            if self.fetched.positions.get(log, 0) < offered:
                return "; ".join(self.refusals) or f"{log_name(log)} is not complete"
            survey = self._surveys.get(log)
            if survey is None or not survey.lacking:
                continue
            size_max = self.terms.want.size_max
            lacking = survey_log(self.store, log, payload_size_max=size_max, end=offered).lacking
            if lacking:
                return f"{log_name(log)}: payloads that are missing: {lacking}"
        return None


def _too_large(text: str) -> Failure:
    return Failure("PAYLOAD_TOO_LARGE", text)


def _forked(proof: ForkProof) -> Failure:
    return Failure("FORK", f"{log_name(proof.log)} is forked at entry {proof.seqnum}")


def _why(event: LogRefused) -> str:
    reason = event.reason or event.fault
    return "refused" if reason is None else reason.name.lower().replace("_", " ")


def several_logs(logs: Sequence[LogKey]) -> Failure:
    """There is more than one log, and none was chosen."""
    names = ", ".join(f"{log.author.hex()}/{log.log_id}" for log in logs)
    return Failure("SEVERAL_LOGS", f"choose one with --log: {names}")


def log_name(log: LogKey) -> str:
    """A log in an error message."""
    return f"log {log.author.hex()}/{log.log_id}"
