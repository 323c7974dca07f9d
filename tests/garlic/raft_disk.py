"""A disk of the simulator: the state that would survive a crash, and writes under way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from culm.garlic.raft import Entry, Persist, Snapshot, SnapshotChunk, Stored, WriteSnapshot
from culm.garlic.sessions import Sessions


class Registers:
    """The effect of values of simulated values: ``key=value`` sets a register, a token is
    counted.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.tokens: dict[str, int] = {}

    def apply(self, index: int, value: bytes) -> None:
        key, sign, said = value.decode().partition("=")
        if sign:
            self.values[key] = said
        else:
            self.tokens[key] = self.tokens.get(key, 0) + 1

    def snapshot(self) -> bytes:
        return json.dumps([self.values, self.tokens], sort_keys=True).encode()

    def restore(self, image: bytes) -> None:
        self.values, self.tokens = json.loads(image)


class State:
    """The registers of a server, and the sessions of its clients."""

    def __init__(self, image: bytes = b"") -> None:
        self.registers = Registers()
        self.machine = Sessions(self.registers)
        if image:
            self.machine.restore(image)


@dataclass
class Disk:
    """Durable state, and the changes under way to it.

    A crash in the middle of the writes leaves any prefix of them; of the `pending` changes, each of
    which happens as a whole or not at all, any may have happened.
    """

    snapshot: Snapshot = field(default_factory=Snapshot)
    image: bytes = b""
    term: int = 0
    voted_for: int | None = None
    commit_index: int = 0
    first_index: int = 1
    entries: list[Entry] = field(default_factory=list)
    writing: list[Persist] = field(default_factory=list)
    pending: list[Callable[[], object]] = field(default_factory=list)
    incoming: bytearray = field(default_factory=bytearray)
    _incoming_of: Snapshot | None = None

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.entries) - 1

    def term_at(self, index: int) -> int | None:
        if index == self.snapshot.index:
            return self.snapshot.term
        position = index - self.first_index
        return self.entries[position].term if 0 <= position < len(self.entries) else None

    def write(self, persist: Persist, steps: int | None = None) -> None:
        """Make `persist` durable, or only its first `steps` (see `steps_of`)."""
        if steps == 0:
            return
        self.term, self.voted_for = persist.term, persist.voted_for
        self.commit_index = max(self.commit_index, persist.commit_index)
        if persist.first_index is not None and steps != 1:
            assert persist.first_index <= max(self.last_index, self.snapshot.index) + 1, "a hole"
            del self.entries[persist.first_index - self.first_index :]
            self.entries.extend(persist.entries[: None if steps is None else steps - 2])

    @staticmethod
    def steps_of(persist: Persist) -> int:
        """Term, vote and commit index; the cut; each entry."""
        return 1 if persist.first_index is None else 2 + len(persist.entries)

    def crash(self, rng: random.Random) -> bool:
        """Lose everything under way; returns whether a write is torn."""
        torn = False
        for change in self.pending:
            if rng.random() < 0.5:
                change()
        steps = rng.randint(0, sum(map(self.steps_of, self.writing)))
        for persist in self.writing:
            whole = self.steps_of(persist)
            self.write(persist, min(steps, whole))
            torn = torn or 0 < steps < whole
            steps = max(0, steps - whole)
        self.writing.clear()
        self.pending.clear()
        self.incoming.clear()
        self._incoming_of = None
        return torn

    def put_snapshot(self, snapshot: Snapshot, image: bytes) -> None:
        self.snapshot, self.image = snapshot, image

    def compact(self, index: int) -> None:
        drop = index + 1 - self.first_index
        if drop > 0:
            del self.entries[:drop]
            self.first_index = index + 1

    def read_chunk(self, snapshot: Snapshot, offset: int, size: int) -> SnapshotChunk | None:
        if snapshot != self.snapshot:
            return None
        data = self.image[offset : offset + size]
        return SnapshotChunk(data, offset + len(data) >= len(self.image))

    def write_chunk(self, chunk: WriteSnapshot, restore: Callable[[State], None]) -> bool:
        if chunk.offset == 0:
            self.incoming.clear()
            self._incoming_of = chunk.snapshot
        if chunk.snapshot != self._incoming_of or chunk.offset != len(self.incoming):
            return False
        self.incoming += chunk.data
        if chunk.done:
            self.snapshot, self.image = chunk.snapshot, bytes(self.incoming)
            self.entries.clear()
            self.first_index = chunk.snapshot.index + 1
            restore(State(self.image))
        return True

    def stored(self) -> Stored:
        return Stored(
            term=self.term,
            voted_for=self.voted_for,
            commit_index=self.commit_index,
            snapshot=self.snapshot,
            first_index=self.first_index,
            entries=list(self.entries),
        )
