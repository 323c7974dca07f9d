"""Fetching: all logs that a peer offers come into our store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from culm.bamboo import ForkProof, Head, LogKey, LogStore
from culm.bamboo.effects import perform
from culm.machine import Closed, Event
from culm.point2point import (
    EntryStored,
    ForkFound,
    Interest,
    Limits,
    LogOffered,
    LogRefused,
    PayloadProgress,
    Replicator,
    ReplicatorLimits,
    Role,
    Settled,
)
from directory.records import PAYLOAD_SIZE_MAX
from drivers.asyncio_driver import MachineProtocol

__all__ = ["Failure", "Fetched", "fetch_logs"]

# How long we wait at most for a log to be offered, or for an answer to our goodbye, in seconds.
_PATIENCE_MAX_S = 5.0
_INTEREST: Final = Interest(live=False, accept_new_logs=True, offer_stored=True)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why not all is here: a code to tell cases apart by, and a text."""

    code: str
    text: str


@dataclass(slots=True)
class Fetched:
    """What came of fetching.

    entries, payload_bytes: received and stored this time; wire_bytes: both directions.
    offered: how far the peer has each log; positions: how far we have it.
    """

    entries: int = 0
    payload_bytes: int = 0
    wire_bytes: int = 0
    offered: dict[LogKey, int] = field(default_factory=dict)
    positions: dict[LogKey, int] = field(default_factory=dict)
    failure: Failure | None = None


async def fetch_logs(
    store: LogStore,
    host: str,
    port: int,
    *,
    silence_max_s: float,
    settle_s: float,
    on_progress: Callable[[Fetched], object] = lambda fetched: None,
) -> Fetched:
    """Fetch what the peer at `host` and `port` offers and `store` lacks.

    A peer that stays silent for `silence_max_s` in the middle of something is given up.
    When nothing has been going on for `settle_s`, all is here.
    """
    with ThreadPoolExecutor(1, "store") as executor:
        limits = Limits(silence_max_s=silence_max_s, keepalive_s=silence_max_s)
        fetcher = _Fetcher(
            store, ReplicatorLimits(connection=limits, settle_s=settle_s), on_progress
        )
        protocol = MachineProtocol(
            fetcher.replicator,
            perform=lambda effect: perform(effect, store),
            executor=executor,
            on_event=fetcher.handle,
        )
        fetcher.protocol = protocol
        try:
            async with asyncio.timeout(silence_max_s):
                await asyncio.get_running_loop().create_connection(lambda: protocol, host, port)
        except OSError as error:  # among them TimeoutError
            reason = error.strerror or str(error) or "no answer"
            fetcher.fetched.failure = Failure(
                "CONNECTION_FAILED", f"{host}:{port} cannot be reached: {reason}"
            )
            return fetcher.fetched
        fetcher.finish(await protocol.wait_closed())
        fetcher.fetched.wire_bytes = protocol.bytes_received + protocol.bytes_sent
    return fetcher.fetched


class _Fetcher:
    """Follows the events of one replicator, and decides when it is enough."""

    protocol: MachineProtocol

    def __init__(
        self,
        store: LogStore,
        limits: ReplicatorLimits,
        on_progress: Callable[[Fetched], object],
    ) -> None:
        self.replicator = Replicator(
            role=Role.PROACTIVE, family=store.family, interest=_INTEREST, limits=limits
        )
        self.fetched = Fetched()
        self._patience_s = min(_PATIENCE_MAX_S, limits.connection.silence_max_s)
        self._on_progress = on_progress
        self._refused: list[str] = []
        self._over = False
        # Of a payload that an earlier run has begun, only the rest is received.
        self._staged: dict[tuple[LogKey, int], int] = {}
        for log in store.logs():
            head = store.head(log)
            if head is not None:
                self._note_stored(store, log, head)

    def _note_stored(self, store: LogStore, log: LogKey, head: Head) -> None:
        last = store.entry(log, head.seqnum)
        assert last is not None
        complete = last.payload_complete
        self.fetched.positions[log] = head.seqnum if complete else head.seqnum - 1
        if not complete:
            self._staged[log, head.seqnum] = last.payload_stored

    def handle(self, event: Event) -> None:
        """Take one event."""
        match event:
            case LogOffered(log=log, seqnum=seqnum):
                self.fetched.offered[log] = max(seqnum, self.fetched.offered.get(log, 0))
            case EntryStored(payload_size=size) | PayloadProgress(size=size) if (
                size > PAYLOAD_SIZE_MAX
            ):
                text = f"entry {event.seqnum} has a payload of {size} bytes"
                self._fail(Failure("PAYLOAD_TOO_LARGE", text))
                self.protocol.abort()
            case EntryStored(payload_stored=True):
                self._count(event)
            case ForkFound(proof=proof):
                self._fail(_forked(proof))
            case LogRefused(log=log):
                self._refused.append(f"{_name(log)}: {_why(event)}")
            case Settled():
                self._settled()
            case _:
                return
        self._on_progress(self.fetched)

    def _count(self, event: EntryStored) -> None:
        fetched = self.fetched
        fetched.entries += 1
        fetched.payload_bytes += event.payload_size - self._staged.pop((event.log, event.seqnum), 0)
        fetched.positions[event.log] = max(event.seqnum, fetched.positions.get(event.log, 0))

    def _settled(self) -> None:
        if any(self.fetched.offered.values()):
            self._say_goodbye()
        else:  # perhaps the peer is slow
            asyncio.get_running_loop().call_later(self._patience_s, self._give_up)

    def _give_up(self) -> None:
        if not any(self.fetched.offered.values()):
            self._fail(Failure("NO_LOG", "the peer offers no log"))
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if not self._over:
            self._over = True
            asyncio.get_running_loop().call_later(self._patience_s, self.protocol.abort)
            self.protocol.call(self.replicator.close)

    def _fail(self, failure: Failure) -> None:
        self.fetched.failure = self.fetched.failure or failure

    def finish(self, closed: Closed) -> None:
        """Judge what there is in the end."""
        fetched = self.fetched
        error = closed.error
        if not self._over and error is not None:
            self._fail(Failure(error.code.name, str(error)))
        elif not self._over:
            self._fail(Failure("CLOSED_EARLY", "the peer has closed the connection"))
        for log, seqnum in fetched.offered.items():
            if fetched.positions.get(log, 0) < seqnum:
                why = "; ".join(self._refused) or f"{_name(log)} is not complete"
                self._fail(Failure("INCOMPLETE", why))


def _forked(proof: ForkProof) -> Failure:
    return Failure("FORK", f"{_name(proof.log)} is forked at entry {proof.seqnum}")


def _why(event: LogRefused) -> str:
    reason = event.reason or event.fault
    return "refused" if reason is None else reason.name.lower().replace("_", " ")


def _name(log: LogKey) -> str:
    return f"log {log.author.hex()}/{log.log_id}"
