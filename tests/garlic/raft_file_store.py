"""A store in the files of a disk that forgets, and stores that break one of its rules each."""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

from culm.garlic.raft import (
    Apply,
    Compact,
    Entry,
    Persist,
    ReadSnapshot,
    SnapshotChunk,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.store import Store, restored
from culm.machine import Effect
from culm.testing.disk import Disk
from culm.testing.raft_store_model import FOUNDING, Values
from culm.testing.raft_stores import Crashed, RaftStoreSuite

HEADER = struct.Struct(">II")


class PowerCut(Exception):
    """The end of a process, between two operations on the disk."""


class FileStore:
    """Term and snapshot in a file each, replaced as a whole; the log a file of records.

    A received snapshot has its own log, which begins empty: so both change at once.
    """

    def __init__(
        self, disk: Disk, machine: Values, founding: Stored, fuse: int | None = None
    ) -> None:
        self.disk = disk
        self._machine = machine
        self._fuse = None if fuse is None else iter(range(fuse))
        self._incoming = b""
        if "snapshot" not in disk.names():
            self.put("snapshot", (founding.snapshot, machine.snapshot(), 0))
        if "state" not in disk.names():
            self.put("state", (0, None, 0))
        self._trim()

    # The disk; each operation burns the fuse down

    def burn(self) -> None:
        if self._fuse is not None and next(self._fuse, None) is None:
            raise PowerCut

    def sync(self) -> None:
        self.burn()
        self.disk.sync()

    def put(self, name: str, value: object) -> None:
        self.burn()
        self.disk.replace(name, pickle.dumps(value))
        self.sync()

    def append(self, record: object) -> None:
        self.burn()
        data = pickle.dumps(record)
        self.disk.append(self.log_name, HEADER.pack(len(data), zlib.crc32(data)) + data)

    def get(self, name: str) -> Any:
        return pickle.loads(self.disk.read(name))

    @property
    def log_name(self) -> str:
        return f"log {self.get('snapshot')[2]}"

    def _records(self) -> tuple[list[Any], int]:
        """The readable records of the log, and their size in bytes."""
        data = self.disk.read(self.log_name) if self.log_name in self.disk.names() else b""
        records, at = [], 0
        while at + HEADER.size <= len(data):
            size, check = HEADER.unpack_from(data, at)
            record = data[at + HEADER.size : at + HEADER.size + size]
            if not size or len(record) < size or zlib.crc32(record) != check:
                break
            records.append(pickle.loads(record))
            at += HEADER.size + size
        return records, at

    def _trim(self) -> None:
        self.disk.truncate(self.log_name, self._records()[1])
        self.disk.sync()

    # The store

    def load(self) -> Stored:
        snapshot, image, _ = self.get("snapshot")
        term, voted_for, commit_index = self.get("state")
        self._machine.restore(image)
        # A snapshot taken here begins no log; a received one does, after its index.
        first, entries = snapshot.index + 1 if self.get("snapshot")[2] else 1, {}
        for kind, index, entry in self._records()[0]:
            if kind == "put":
                entries[index] = entry
            elif kind == "base":
                first = index
            elif kind == "cut":
                entries = {at: kept for at, kept in entries.items() if at < index}
            else:
                entries = {at: kept for at, kept in entries.items() if at > index}
                first = max(first, index + 1)
        return Stored(
            term=term,
            voted_for=voted_for,
            commit_index=commit_index,
            snapshot=snapshot,
            first_index=first,
            entries=[entries[index] for index in sorted(entries)],
        )

    def perform(self, effect: Effect[Any]) -> object:
        match effect:
            case Persist():
                return self.persist(effect)
            case Apply():
                return self.apply(effect)
            case TakeSnapshot():
                return self.take(effect)
            case Compact():
                return self.compact(effect)
            case ReadSnapshot():
                return self.read(effect)
            case WriteSnapshot():
                return self.write(effect)
        return self.unknown(effect)

    def unknown(self, effect: Effect[Any]) -> object:
        raise TypeError(effect)

    def persist(self, effect: Persist) -> object:
        self.put_state(effect)
        self.put_log(effect)
        return None

    def put_state(self, effect: Persist) -> None:
        self.put("state", (effect.term, effect.voted_for, effect.commit_index))

    def put_log(self, effect: Persist) -> None:
        if effect.first_index is not None:
            self.append(("cut", effect.first_index, None))
            self.put_entries(effect.first_index, effect.entries)
            self.sync()

    def put_entries(self, first: int, entries: Sequence[Entry]) -> None:
        for index, entry in enumerate(entries, first):
            self.append(("put", index, entry))

    def apply(self, effect: Apply) -> object:
        for index, entry in enumerate(effect.entries, effect.first_index):
            if isinstance(entry.data, bytes):
                self._machine.apply(index, entry.data)
        return None

    def take(self, effect: TakeSnapshot) -> object:
        generation = self.get("snapshot")[2]
        if generation:  # its log began after the snapshot before
            self.append(("base", self.load_first(), None))
        self.put("snapshot", (effect.snapshot, self._machine.snapshot(), generation))
        return None

    def load_first(self) -> int:
        values = list(self._machine.values)
        first = self.load().first_index
        self._machine.values = values
        return first

    def compact(self, effect: Compact) -> object:
        self.append(("drop", effect.index, None))
        self.sync()
        return None

    def read(self, effect: ReadSnapshot) -> object:
        snapshot, image, _ = self.get("snapshot")
        if snapshot != effect.snapshot:
            return None
        end = effect.offset + effect.size
        return SnapshotChunk(image[effect.offset : end], end >= len(image))

    def write(self, effect: WriteSnapshot) -> object:
        if effect.offset == 0:
            self._incoming = b""
        if effect.offset != len(self._incoming):
            return False
        self._incoming += effect.data
        if not effect.done:
            return True
        usable = self.usable(self._incoming)
        if usable:
            self.install(effect)
        self._incoming = b""
        return usable

    def usable(self, image: bytes) -> bool:
        return restored(self._machine, image)

    def install(self, effect: WriteSnapshot) -> None:
        generation = self.get("snapshot")[2] + 1
        self.put("snapshot", (effect.snapshot, self._incoming, generation))


class FileStoreSuite(RaftStoreSuite):
    """The suite for `kind`, with a crash at each of its operations on the disk."""

    kind: type[FileStore] = FileStore

    def make_store(self, machine: Values, founding: Stored) -> Store:
        return self.kind(Disk(Random(1)), machine, founding)

    def reopen(self, store: Store, machine: Values, founding: Stored) -> Store:
        assert isinstance(store, FileStore)
        return self.kind(store.disk, machine, founding)

    def crash(self, effects: Sequence[Effect[Any]], point: int) -> Crashed | None:
        seed = point
        disk, machine, returned = Disk(Random(seed), sector_size=16), Values(), 0
        try:
            store = self.kind(disk, machine, FOUNDING, fuse=point)
            store.load()
            for effect in effects:
                store.perform(effect)
                returned += 1
        except PowerCut:
            disk.crash()
            machine = Values()
            return Crashed(self.kind(disk, machine, FOUNDING), machine, returned)
        return None


# Stores that break a rule, and the words of the test that finds it

CANARIES: dict[type[FileStore], str] = {}


def breaks(test: str) -> Any:
    def enter(kind: type[FileStore]) -> type[FileStore]:
        CANARIES[kind] = test
        return kind

    return enter


@breaks("term_vote_and_commit_index_are_kept")
class ForgetsItsVote(FileStore):
    def put_state(self, effect: Persist) -> None:
        self.put("state", (effect.term, None, effect.commit_index))


@breaks("term_vote_and_commit_index_are_kept")
class KeepsTheHighestCommitIndex(FileStore):
    def put_state(self, effect: Persist) -> None:
        highest = max(effect.commit_index, self.get("state")[2])
        self.put("state", (effect.term, effect.voted_for, highest))


@breaks("new_entries_take_the_place_of_all_from_there_on")
class OverwritesOnly(FileStore):
    def put_log(self, effect: Persist) -> None:
        if effect.first_index is not None:
            self.put_entries(effect.first_index, effect.entries)
            self.sync()


@breaks("a_cut_needs_no_new_entries")
class CutsForEntriesOnly(FileStore):
    def put_log(self, effect: Persist) -> None:
        if effect.entries:
            super().put_log(effect)


@breaks("without_a_first_index_the_log_stays")
class CutsWithoutBeingAsked(FileStore):
    def put_log(self, effect: Persist) -> None:
        if effect.first_index is None:
            self.append(("cut", effect.commit_index + 1, None))
        super().put_log(effect)


@breaks("an_entry_may_hold_a_configuration")
class KeepsValuesOnly(FileStore):
    def put_entries(self, first: int, entries: Sequence[Entry]) -> None:
        super().put_entries(first, [entry for entry in entries if isinstance(entry.data, bytes)])


@breaks("entries_are_kept_in_order")
class DropsEmptyValues(FileStore):
    def put_entries(self, first: int, entries: Sequence[Entry]) -> None:
        super().put_entries(first, [entry for entry in entries if entry.data != b""])


@breaks("a_new_store_has_what_it_was_founded_with")
class RestoresOnce(FileStore):
    def load(self) -> Stored:
        values = list(self._machine.values) if hasattr(self, "loaded") else None
        stored, self.loaded = super().load(), True
        if values is not None:
            self._machine.values = values
        return stored


@breaks("what_is_no_effect_of_a_core_is_refused")
class DoesNothingForWhatItDoesNotKnow(FileStore):
    def unknown(self, effect: Effect[Any]) -> object:
        return None


@breaks("values_are_applied_in_order_and_configurations_are_not")
class AppliesConfigurations(FileStore):
    def apply(self, effect: Apply) -> object:
        for index, entry in enumerate(effect.entries, effect.first_index):
            self._machine.apply(index, entry.data if isinstance(entry.data, bytes) else b"")
        return None


@breaks("a_snapshot_has_the_state_of_then_and_leaves_the_log")
class DropsTheLogOfASnapshot(FileStore):
    def take(self, effect: TakeSnapshot) -> object:
        self.append(("drop", effect.snapshot.index, None))
        return super().take(effect)


@breaks("compacting_drops_no_entry_after_the_index")
class DropsOneTooMany(FileStore):
    def compact(self, effect: Compact) -> object:
        self.append(("drop", effect.index + 1, None))
        self.sync()
        return None


@breaks("only_the_snapshot_that_is_there_is_read")
class ReadsWhateverIsThere(FileStore):
    def read(self, effect: ReadSnapshot) -> object:
        image = self.get("snapshot")[1]
        end = effect.offset + effect.size
        return SnapshotChunk(image[effect.offset : end], end >= len(image))


@breaks("a_snapshot_is_read_in_pieces_to_its_end")
class EndsWithAnEmptyPiece(FileStore):
    def read(self, effect: ReadSnapshot) -> object:
        chunk = super().read(effect)
        if isinstance(chunk, SnapshotChunk):
            return SnapshotChunk(chunk.data, not chunk.data)
        return chunk


@breaks("a_received_snapshot_replaces_snapshot_log_and_state")
class KeepsItsLog(FileStore):
    def install(self, effect: WriteSnapshot) -> None:
        self.put("snapshot", (effect.snapshot, self._incoming, self.get("snapshot")[2]))


@breaks("a_received_snapshot_replaces_snapshot_log_and_state")
class LeavesTheStateMachineAlone(FileStore):
    def usable(self, image: bytes) -> bool:
        values = list(self._machine.values)
        usable = super().usable(image)
        self._machine.values = values
        return usable


@breaks("the_first_chunk_drops_what_has_come_before")
class MixesSnapshots(FileStore):
    def write(self, effect: WriteSnapshot) -> object:
        self._incoming += effect.data
        if effect.done:
            self.install(effect)
        return True


@breaks("a_chunk_that_does_not_follow_is_not_used")
class TakesChunksAsTheyCome(FileStore):
    def write(self, effect: WriteSnapshot) -> object:
        if effect.offset != len(self._incoming):
            return True
        return super().write(effect)


@breaks("a_snapshot_that_is_none_changes_nothing")
class TakesAnySnapshot(FileStore):
    def usable(self, image: bytes) -> bool:
        restored(self._machine, image)
        return True


@breaks("half_a_snapshot_is_none_after_a_restart")
class KeepsHalfASnapshot(FileStore):
    def load(self) -> Stored:
        self._incoming = self.get("incoming") if "incoming" in self.disk.names() else b""
        return super().load()

    def write(self, effect: WriteSnapshot) -> object:
        result = super().write(effect)
        self.put("incoming", self._incoming)
        return result


@breaks("term_vote_and_commit_index_are_kept")
class AnswersWithTheEffect(FileStore):
    def persist(self, effect: Persist) -> object:
        super().persist(effect)
        return effect


CRASH = "a_crash_leaves_what_had_returned_or_a_beginning_of_the_next_effect"


@breaks(CRASH)
class ReturnsBeforeItIsWritten(FileStore):
    def sync(self) -> None:
        self.burn()


@breaks(CRASH)
class WritesTheLogBeforeTheTerm(FileStore):
    def persist(self, effect: Persist) -> object:
        self.put_log(effect)
        self.put_state(effect)
        return None


@breaks(CRASH)
class CutsLast(FileStore):
    def put_log(self, effect: Persist) -> None:
        if effect.first_index is not None:
            self.put_entries(effect.first_index, effect.entries)
            self.sync()
            self.append(("cut", effect.first_index + len(effect.entries), None))
            self.sync()


@breaks(CRASH)
class WritesEntriesBackwards(FileStore):
    def put_entries(self, first: int, entries: Sequence[Entry]) -> None:
        for index, entry in reversed(list(enumerate(entries, first))):
            self.append(("put", index, entry))


@breaks(CRASH)
class InstallsInTwoSteps(FileStore):
    def install(self, effect: WriteSnapshot) -> None:
        generation = self.get("snapshot")[2]
        self.put("snapshot", (effect.snapshot, self._incoming, generation))
        super().install(effect)


@breaks(CRASH)
class CompactsBeforeTheSnapshotIsThere(FileStore):
    def take(self, effect: TakeSnapshot) -> object:
        log = self.load_first()
        self.put("snapshot", (effect.snapshot, b"", self.get("snapshot")[2]))
        assert log
        return super().take(effect)
