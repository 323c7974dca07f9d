"""A model of a store of Garlic Farm in plain values, and effects to test a store with.

`Kept` is the durable state of a store; `steps` gives the states through which an effect takes it,
any of which a crash may leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from culm.garlic.raft import (
    Apply,
    Compact,
    Configuration,
    Entry,
    Persist,
    Server,
    Snapshot,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.machine import Effect, Ticket

TICKET: Ticket[Any] = Ticket(0)

_SERVERS = tuple(Server(number, f"tcp://localhost:{9000 + number}") for number in (1, 2, 3))
FOUNDING = Stored.founding(_SERVERS)

#: The beginning of images from which `Values` cannot be restored.
UNREADABLE = b"\0no state"


class Values:
    """A state machine that keeps all values; its state is lost when `restore` fails."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def apply(self, index: int, value: bytes) -> None:
        self.values.append(value)

    def snapshot(self) -> bytes:
        return b"\n".join(self.values)

    def restore(self, image: bytes) -> None:
        self.values = []
        if image.startswith(UNREADABLE):
            raise ValueError("not a snapshot of values")
        self.values = image.split(b"\n") if image else []

    def become(self, values: Sequence[bytes]) -> None:
        """Replace the applied values: a node that starts may apply some again."""
        self.values = list(values)


@dataclass(frozen=True, slots=True)
class Kept:
    """The durable state of a server.

    entries: the log's entries from `base` on, where it was founded or installed.
    compacted: index up to which a store may have dropped them.
    image: the snapshot's bytes; incoming: those of a snapshot being received, which need not
        survive a crash.
    """

    term: int = 0
    voted_for: int | None = None
    commit_index: int = 0
    snapshot: Snapshot = FOUNDING.snapshot
    image: bytes = b""
    base: int = 1
    entries: tuple[Entry, ...] = ()
    compacted: int = 0
    incoming: bytes = b""

    @property
    def last_index(self) -> int:
        return self.base + len(self.entries) - 1

    def difference(self, found: Stored, image: bytes) -> str | None:
        """The difference of `found`, with that `image`, from this state; ``None`` if none."""
        for name in ("term", "voted_for", "commit_index", "snapshot"):
            ours, theirs = getattr(self, name), getattr(found, name)
            if ours != theirs:
                return f"{name} is {theirs!r}, not {ours!r}"
        if image != self.image:
            return f"the state machine has {image!r}, not {self.image!r}"
        if not self.base <= found.first_index <= self.compacted + 1:
            return f"the log begins at {found.first_index}, not after {self.compacted}"
        entries = self.entries[found.first_index - self.base :]
        if list(entries) != list(found.entries):
            return f"the log has {list(found.entries)!r}, not {list(entries)!r}"
        if found.applied_index not in (0, self.snapshot.index):
            return f"applied is {found.applied_index}, with the state of {self.snapshot.index}"
        return None


def steps(kept: Kept, effect: Effect[Any], state: bytes) -> list[Kept]:
    """The durable states in the course of `effect`: a crash leaves one of them, and an undisturbed
    end the last.

    state: the state machine's state before the effect.
    """
    match effect:
        case Persist():
            return _persisting(kept, effect)
        case TakeSnapshot():
            return [kept, replace(kept, snapshot=effect.snapshot, image=state)]
        case Compact():
            return [kept, replace(kept, compacted=max(kept.compacted, effect.index))]
        case WriteSnapshot():
            return [kept, _written(kept, effect)]
        case _:
            return [kept]


def _persisting(kept: Kept, effect: Persist) -> list[Kept]:
    """The states while term, vote and commit index, the cut, and each entry are written."""
    found = [
        kept,
        replace(
            kept, term=effect.term, voted_for=effect.voted_for, commit_index=effect.commit_index
        ),
    ]
    if effect.first_index is not None:
        before = found[-1].entries[: effect.first_index - kept.base]
        for count in range(len(effect.entries) + 1):
            found.append(replace(found[-1], entries=(*before, *effect.entries[:count])))
    return found


def _written(kept: Kept, effect: WriteSnapshot) -> Kept:
    incoming = (kept.incoming if effect.offset else b"") + effect.data
    if not effect.done:
        return replace(kept, incoming=incoming)
    if incoming.startswith(UNREADABLE):
        return replace(kept, incoming=b"")
    index = effect.snapshot.index
    return replace(
        kept,
        snapshot=effect.snapshot,
        image=incoming,
        base=index + 1,
        entries=(),
        compacted=index,
        incoming=b"",
    )


def entries_of(term: int, *names: bytes) -> list[Entry]:
    """Entries with that term and these values."""
    return [Entry(term, name) for name in names]


def persist(
    term: int, vote: int | None, commit: int, first: int | None = None, log: Sequence[Entry] = ()
) -> Persist:
    """The effect that writes term, vote, commit index and, from `first` on, the log."""
    return Persist(
        ticket=TICKET,
        term=term,
        voted_for=vote,
        commit_index=commit,
        first_index=first,
        entries=log,
    )


def chunk(snapshot: Snapshot, offset: int, data: bytes, *, done: bool = False) -> WriteSnapshot:
    """The effect that writes a part of a snapshot."""
    return WriteSnapshot(ticket=TICKET, snapshot=snapshot, offset=offset, data=data, done=done)


_CONFIGURED = [Entry(1, Configuration(1, 0, _SERVERS))]
_TAKEN = Snapshot(4, 2, Configuration(1, 0, _SERVERS))
_SENT = Snapshot(20, 5, Configuration(15, 1, _SERVERS[:2]))

# Elections, appends, an overwritten end, snapshots taken and received.
LIFE: tuple[Effect[Any], ...] = (
    persist(1, 1, 0),
    persist(1, 1, 0, 1, [*_CONFIGURED, *entries_of(1, b"a", b"b", b"x", b"y")]),
    persist(2, None, 2, 3, entries_of(2, b"c", b"d")),
    persist(2, 3, 2, 5, entries_of(2, b"e")),
    Apply(
        ticket=TICKET,
        first_index=1,
        entries=[*_CONFIGURED, *entries_of(1, b"a"), *entries_of(2, b"c", b"d")],
    ),
    TakeSnapshot(ticket=TICKET, snapshot=_TAKEN),
    Compact(ticket=TICKET, index=3),
    persist(3, 2, 4, 5),
    persist(3, 2, 4, 5, entries_of(3, b"f" * 3000, b"", b"g")),
    chunk(_SENT, 0, b"one\ntwo\n"),
    chunk(_SENT, 0, UNREADABLE, done=True),
    chunk(_SENT, 0, UNREADABLE[:4]),
    chunk(_SENT, 4, UNREADABLE[4:], done=True),
    chunk(_SENT, 0, b"uno\n"),
    chunk(_SENT, 4, b"dos\n" + b"x" * 3000),
    chunk(_SENT, 3008, b"\ntres", done=True),
    persist(5, None, 20, 21, entries_of(5, b"h")),
    persist(5, 1, 20),
    Compact(ticket=TICKET, index=20),
)


class RandomLife:
    """Random effects that a core may ask for, and the state in which they leave the store."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.kept = Kept()
        self._applied = 0

    def next_effect(self) -> Effect[Any]:
        random, kept = self._random, self.kept
        match random.randrange(12):
            case 0 if kept.commit_index > self._applied:
                first, self._applied = self._applied + 1, kept.commit_index
                return Apply(
                    ticket=TICKET,
                    first_index=first,
                    entries=kept.entries[first - kept.base : self._applied - kept.base + 1],
                )
            case 1 if self._applied > kept.snapshot.index:
                term = kept.entries[self._applied - kept.base].term
                snapshot = Snapshot(self._applied, term, kept.snapshot.configuration)
                return TakeSnapshot(ticket=TICKET, snapshot=snapshot)
            case 2 if kept.snapshot.index:
                index = max(0, kept.snapshot.index - random.choice((0, 0, 1, 2)))
                return Compact(ticket=TICKET, index=index)
            case 3:
                return self.chunk()
            case 4:
                return self._persist(None, ())
            case _:
                first = random.randint(kept.commit_index, kept.last_index) + 1
                count = random.choice((0, 1, 1, 2, 5))
                return self._persist(first, [self._entry(first + at) for at in range(count)])

    def did(self, effect: Effect[Any], state: bytes) -> None:
        """Note that `effect` was done while the state machine had `state`."""
        self.kept = steps(self.kept, effect, state)[-1]
        if isinstance(effect, WriteSnapshot) and effect.done:
            self._applied = effect.snapshot.index
            self.kept = replace(self.kept, commit_index=effect.snapshot.index)

    def _entry(self, index: int) -> Entry:
        if self._random.random() < 0.1:
            return Entry(self.kept.term, Configuration(index, 0, _SERVERS))
        return Entry(self.kept.term, b"%d" % self._random.randrange(1000))

    def _persist(self, first: int | None, entries: Sequence[Entry]) -> Persist:
        random, kept = self._random, self.kept
        return persist(
            kept.term + random.choice((0, 0, 1)),
            random.choice((None, 1, 2)),
            random.randint(kept.commit_index, max(kept.commit_index, (first or 0) - 1)),
            first,
            entries,
        )

    def chunk(self) -> WriteSnapshot:
        random, kept = self._random, self.kept
        snapshot = Snapshot(kept.last_index + 5, kept.term, kept.snapshot.configuration)
        offset = random.choice((0, len(kept.incoming)))
        data = b"\n%d" % random.randrange(1000) if offset else b"0"
        return chunk(snapshot, offset, data, done=random.random() < 0.3)
