"""A state machine, and effects to test a store of Garlic Farm with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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


def ways_through(effects: Sequence[Effect[Any]]) -> list[Sequence[Effect[Any]]]:
    """The parts of the first of these effects that may be done when it is interrupted.

    Of a `Persist` term, vote and commit index come first, then the cut, then each entry.
    """
    ways: list[Sequence[Effect[Any]]] = [(), effects[:1]]
    effect = effects[0] if effects else None
    if isinstance(effect, Persist):
        ways.append([replace(effect, first_index=None, entries=())])
        ways += [
            [replace(effect, entries=effect.entries[:n])] for n, _ in enumerate(effect.entries)
        ]
    return ways


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
    """Random effects that a core may ask for.

    incoming: size of the part of a snapshot that the store has received.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._applied = 0
        self.incoming = 0

    def next_effect(self, stored: Stored) -> Effect[Any]:
        """An effect for a store with that content, which it does at once."""
        random, first = self._random, stored.first_index
        end, commit = first + len(stored.entries), max(self._applied, stored.commit_index)
        begin: int | None = None
        log: list[Entry] = []
        match random.randrange(12):
            case 0 if commit > self._applied:
                start, self._applied = self._applied + 1, commit
                entries = stored.entries[start - first : commit + 1 - first]
                return Apply(ticket=TICKET, first_index=start, entries=entries)
            case 1 if self._applied > stored.snapshot.index:
                term = stored.entries[self._applied - first].term
                snapshot = Snapshot(self._applied, term, stored.snapshot.configuration)
                return TakeSnapshot(ticket=TICKET, snapshot=snapshot)
            case 2 if stored.snapshot.index:
                index = max(0, stored.snapshot.index - random.choice((0, 0, 1, 2)))
                return Compact(ticket=TICKET, index=index)
            case 3:
                return self._chunk(Snapshot(end + 4, stored.term, stored.snapshot.configuration))
            case 4:
                pass
            case _:
                begin = random.randint(commit, end - 1) + 1
                count = random.choice((0, 1, 1, 2, 5))
                log = [self._entry(stored.term, begin + at) for at in range(count)]
        return persist(
            stored.term + random.choice((0, 0, 1)),
            random.choice((None, 1, 2)),
            random.randint(commit, max(commit, (begin or 0) - 1)),
            begin,
            log,
        )

    def _entry(self, term: int, index: int) -> Entry:
        if self._random.random() < 0.1:
            return Entry(term, Configuration(index, 0, _SERVERS))
        return Entry(term, b"%d" % self._random.randrange(1000))

    def _chunk(self, snapshot: Snapshot) -> WriteSnapshot:
        offset = self._random.choice((0, self.incoming))
        data = b"\n%d" % self._random.randrange(1000) if offset else b"0"
        done = self._random.random() < 0.3
        self.incoming = 0 if done else offset + len(data)
        self._applied = snapshot.index if done else self._applied
        return chunk(snapshot, offset, data, done=done)
