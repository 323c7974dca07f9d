"""Fetching: all logs that a peer offers come into our store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from culm.bamboo import ForkProof, LogKey, LogStore
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
    Want,
)
from directory.records import PAYLOAD_SIZE_MAX
from drivers.asyncio_driver import MachineProtocol

__all__ = ["Failure", "Fetched", "fetch_logs"]

# How long we wait at most for a log to be offered, or for an answer to our goodbye, in seconds.
_PATIENCE_MAX_S = 5.0
_INTEREST: Final = Interest(
    live=False, accept_new_logs=True, offer_stored=True, want=Want(payload_mandatory=True)
)


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
    wanted: LogKey | None,
    silence_max_s: float,
    settle_s: float,
    on_progress: Callable[[Fetched], object] = lambda fetched: None,
) -> Fetched:
    """Fetch what the peer at `host` and `port` offers and `store` lacks.

    If one log is `wanted`, no other is accepted that the store does not have.  A peer that
    stays silent for `silence_max_s` in the middle of something is given up.  When nothing
    has been going on for `settle_s`, all is here.
    """
    limits = ReplicatorLimits(
        connection=Limits(silence_max_s=silence_max_s, keepalive_s=silence_max_s),
        settle_s=settle_s,
    )
    fetched = Fetched()
    with ThreadPoolExecutor(1, "store") as executor:
        fetcher = _Fetcher(store, wanted, limits, fetched, on_progress)
        await fetcher.run(host, port, executor)
        if fetcher.was_misled():
            again = _Fetcher(store, wanted, limits, fetched, on_progress)
            await again.run(host, port, executor)
    return fetched


class _Fetcher:
    """Follows the events of one replicator, and decides when it is enough."""

    def __init__(
        self,
        store: LogStore,
        wanted: LogKey | None,
        limits: ReplicatorLimits,
        fetched: Fetched,
        on_progress: Callable[[Fetched], object],
    ) -> None:
        self._store = store
        self._wanted = wanted
        self._fetched = fetched
        fetched.failure = None
        self._on_progress = on_progress
        self._silence_max_s = limits.connection.silence_max_s
        self._patience_s = min(_PATIENCE_MAX_S, self._silence_max_s)
        self._refused: list[str] = []
        self._over = False
        # Payloads at the ends of logs of which not all is here, and how much is.
        self._unfinished: dict[tuple[LogKey, int], int] = {}
        for log in store.logs():
            self._look_at(log)
        interest = _INTEREST if wanted is None else replace(_INTEREST, accept_new_logs=False)
        self._replicator = Replicator(
            role=Role.PROACTIVE, family=store.family, interest=interest, limits=limits
        )
        if wanted is not None:
            self._replicator.replicate(wanted)
        self._protocol: MachineProtocol

    def _look_at(self, log: LogKey) -> None:
        """How far do we have this log?"""
        head = self._store.head(log)
        last = None if head is None else self._store.entry(log, head.seqnum)
        if last is not None:
            self._fetched.positions[log] = last.seqnum - (not last.payload_complete)
            if not last.payload_complete:
                self._unfinished[log, last.seqnum] = last.payload_stored

    async def run(self, host: str, port: int, executor: ThreadPoolExecutor) -> None:
        """Fetch over one connection."""
        loop = asyncio.get_running_loop()
        protocol = self._protocol = MachineProtocol(
            self._replicator,
            perform=lambda effect: perform(effect, self._store),
            executor=executor,
            on_event=self.handle,
        )
        try:
            async with asyncio.timeout(self._silence_max_s):
                await loop.create_connection(lambda: protocol, host, port)
        except OSError as error:  # among them TimeoutError
            reason = error.strerror or str(error) or "no answer"
            text = f"{host}:{port} cannot be reached: {reason}"
            self._fetched.failure = Failure("CONNECTION_FAILED", text)
            return
        self._finish(await protocol.wait_closed())
        self._fetched.wire_bytes += protocol.bytes_received + protocol.bytes_sent

    def was_misled(self) -> bool:
        """Whether the payload that did not verify had been begun by an earlier peer.

        The replicator has thrown it away; all of it may well come from this peer.
        """
        failure = self._fetched.failure
        if failure is None or failure.code != "INVALID_DATA":
            return False
        return any(
            stored and (entry := self._store.entry(*place)) is not None and not entry.payload_stored
            for place, stored in self._unfinished.items()
        )

    def handle(self, event: Event) -> None:
        """Take one event."""
        fetched = self._fetched
        match event:
            case LogOffered(log=log, seqnum=seqnum):
                fetched.offered[log] = max(seqnum, fetched.offered.get(log, 0))
            case EntryStored(payload_size=size) | PayloadProgress(size=size) if (
                size > PAYLOAD_SIZE_MAX
            ):
                text = f"entry {event.seqnum} has a payload of {size} bytes"
                self._fail(Failure("PAYLOAD_TOO_LARGE", text))
                self._protocol.abort()
            case EntryStored(log=log, seqnum=seqnum, payload_stored=True, payload_size=size):
                fetched.entries += 1
                fetched.payload_bytes += size - self._unfinished.pop((log, seqnum), 0)
                fetched.positions[log] = max(seqnum, fetched.positions.get(log, 0))
            case ForkFound(proof=proof):
                self._fail(_forked(proof))
            case LogRefused(log=log):
                self._refused.append(f"{_name(log)}: {_why(event)}")
            case Settled():
                self._settled()
            case _:
                return
        self._on_progress(fetched)

    def _settled(self) -> None:
        if self._is_offered():
            self._say_goodbye()
        else:  # perhaps the peer is slow
            asyncio.get_running_loop().call_later(self._patience_s, self._give_up)

    def _give_up(self) -> None:
        if not self._is_offered():
            self._fail(Failure("NO_LOG", "the peer offers no log that we could use"))
            self._say_goodbye()

    def _is_offered(self) -> bool:
        offered = self._fetched.offered
        return any(offered.values()) if self._wanted is None else offered.get(self._wanted, 0) > 0

    def _say_goodbye(self) -> None:
        if not self._over:
            self._over = True
            asyncio.get_running_loop().call_later(self._patience_s, self._protocol.abort)
            self._protocol.call(self._replicator.close)

    def _fail(self, failure: Failure) -> None:
        self._fetched.failure = self._fetched.failure or failure

    def _finish(self, closed: Closed) -> None:
        """Judge what there is in the end."""
        fetched = self._fetched
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
