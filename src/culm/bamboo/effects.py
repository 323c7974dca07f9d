"""The operations of a log store as effects.

A machine that needs a store hands these out (`culm.machine.Durable`); a driver answers
each with ``machine.complete(effect.ticket, perform(effect, store))``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.store import Head, LogStore, NewEntry, StoredEntry, StoreError
from culm.machine import Effect

__all__ = [
    "AddFork",
    "AppendEntries",
    "DiscardPayload",
    "FinishPayload",
    "ReadEntries",
    "ReadEntry",
    "ReadFork",
    "ReadHashes",
    "ReadHead",
    "ReadLogs",
    "ReadNewest",
    "ReadPayload",
    "StoreEffect",
    "WritePayload",
    "perform",
]

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEffect(Effect[R]):
    """Work for a `LogStore`; `perform` does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLogs(StoreEffect[list[LogKey]]):
    """`LogStore.logs`; answered with ``list[LogKey]``."""

    after: LogKey | None = None
    count_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHead(StoreEffect[Head | None]):
    """`LogStore.head`; answered with ``Head | None``."""

    log: LogKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNewest(StoreEffect[Head | None]):
    """`LogStore.newest`; answered with ``Head | None``."""

    log: LogKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEntry(StoreEffect[StoredEntry | None]):
    """`LogStore.entry`; answered with ``StoredEntry | None``."""

    log: LogKey
    seqnum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEntries(StoreEffect[list[StoredEntry]]):
    """`LogStore.entries`; answered with ``list[StoredEntry]``."""

    log: LogKey
    start: int = 1
    end: int | None = None
    count_max: int | None = None
    size_max: int | None = None
    payload_size_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHashes(StoreEffect[dict[int, bytes]]):
    """`LogStore.hashes`; answered with ``dict[int, bytes]``."""

    log: LogKey
    seqnums: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPayload(StoreEffect[bytes]):
    """`LogStore.read_payload`; answered with ``bytes``."""

    log: LogKey
    seqnum: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEntries(StoreEffect[StoreError | None]):
    """`LogStore.append`; answered with ``None``."""

    log: LogKey
    entries: Sequence[NewEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePayload(StoreEffect[StoreError | None]):
    """`LogStore.write_payload`; answered with ``None``."""

    log: LogKey
    seqnum: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishPayload(StoreEffect[StoreError | None]):
    """`LogStore.finish_payload`; answered with ``None``."""

    log: LogKey
    seqnum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardPayload(StoreEffect[StoreError | None]):
    """`LogStore.discard_payload`; answered with ``None``."""

    log: LogKey
    seqnum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFork(StoreEffect[StoreError | None]):
    """`LogStore.add_fork`; answered with ``None``."""

    log: LogKey
    proof: ForkProof


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFork(StoreEffect[ForkProof | None]):
    """`LogStore.fork`; answered with ``ForkProof | None``."""

    log: LogKey


_OPERATIONS: dict[type[Effect[Any]], Callable[[Any, LogStore], object]] = {
    ReadLogs: lambda e, store: store.logs(e.after, count_max=e.count_max),
    ReadHead: lambda e, store: store.head(e.log),
    ReadNewest: lambda e, store: store.newest(e.log),
    ReadEntry: lambda e, store: store.entry(e.log, e.seqnum),
    ReadEntries: lambda e, store: store.entries(
        e.log,
        e.start,
        e.end,
        count_max=e.count_max,
        size_max=e.size_max,
        payload_size_max=e.payload_size_max,
    ),
    ReadHashes: lambda e, store: store.hashes(e.log, e.seqnums),
    ReadPayload: lambda e, store: store.read_payload(e.log, e.seqnum, e.offset, e.size),
    AppendEntries: lambda e, store: store.append(e.log, e.entries),
    WritePayload: lambda e, store: store.write_payload(e.log, e.seqnum, e.offset, e.data),
    FinishPayload: lambda e, store: store.finish_payload(e.log, e.seqnum),
    DiscardPayload: lambda e, store: store.discard_payload(e.log, e.seqnum),
    AddFork: lambda e, store: store.add_fork(e.log, e.proof),
    ReadFork: lambda e, store: store.fork(e.log),
}


def perform(effect: Effect[Any], store: LogStore) -> object:
    """Do what `effect` asks of `store`; the result is what the machine waits for.

    A refusal of the store (`StoreError`) is a result, too.  Raises `TypeError` for an
    effect that is not one for a log store.
    """
    operation = _OPERATIONS.get(type(effect))
    if operation is None:
        raise TypeError(f"{type(effect).__name__} is not an effect for a log store")
    try:
        return operation(effect, store)
    except StoreError as refusal:
        return refusal
