"""A type checker finds a wrong type of answer to an effect before anything runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

mypy = pytest.importorskip("mypy.api")

ROOT = Path(__file__).parents[2]

# Unmarked lines must pass, and every mark must be needed.
ANSWERS = textwrap.dedent(
    """
    from typing import Any, assert_type

    from culm.bamboo import StoredEntry, StoreError
    from culm.bamboo.effects import AppendEntries, ReadEntries, ReadEntry
    from culm.effects import Answer
    from culm.garlic.raft import Persist, ReadSnapshot, SnapshotChunk, WriteSnapshot
    from culm.machine import Durable, Effect, Ticket

    def answer_reads(
        machine: Durable, entry: ReadEntry, entries: ReadEntries, found: list[StoredEntry]
    ) -> None:
        assert_type(entry.ticket, Ticket[StoredEntry | None])
        machine.complete(entry.ticket, found[0])
        machine.complete(entry.ticket, None)
        machine.complete(entry.ticket, 1)  # type: ignore[misc]
        machine.complete(entries.ticket, found)
        machine.complete(entries.ticket, None)  # type: ignore[misc]

    def answer_writes(machine: Durable, append: AppendEntries, refusal: StoreError) -> None:
        machine.complete(append.ticket, None)
        machine.complete(append.ticket, refusal)
        machine.complete(append.ticket, OSError("disk full"))  # type: ignore[misc]
        machine.complete(append.ticket, False)  # type: ignore[misc]
        machine.fail(append.ticket, OSError("disk full"))
        machine.fail(append.ticket, "disk full")  # type: ignore[arg-type]

    def answer_raft(
        machine: Durable, persist: Persist, read: ReadSnapshot, write: WriteSnapshot
    ) -> None:
        machine.complete(persist.ticket, None)
        machine.complete(persist.ticket, "nonsense")  # type: ignore[misc]
        machine.complete(read.ticket, SnapshotChunk(b"", True))
        machine.complete(read.ticket, b"")  # type: ignore[misc]
        machine.complete(write.ticket, True)
        machine.complete(write.ticket, None)  # type: ignore[misc]

    def answer_any(machine: Durable, effect: Effect[Any], result: object) -> None:
        machine.complete(effect.ticket, result)  # a driver of all machines alike

    def narrow(effect: ReadEntry, result: object) -> None:
        if effect.accepts(result):
            assert_type(result, StoredEntry | None)

    def look(effect: Effect[StoredEntry | None]) -> StoredEntry | None:
        return None

    def guess(effect: Effect[StoredEntry | None]) -> bytes:
        return b""

    def perform(effect: ReadEntry) -> list[Answer[StoredEntry | None]]:
        return [
            Answer.of(effect, look),
            Answer.of(effect, guess),  # type: ignore[arg-type]
        ]
    """
)


def test_mypy_tells_right_answers_from_wrong_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snippet = tmp_path / "answers.py"
    snippet.write_text(ANSWERS, encoding="utf-8")
    monkeypatch.chdir(ROOT)  # for the strict settings, and what mypy remembers of its last run
    said, errors, status = mypy.run([str(snippet)])
    assert (errors, status) == ("", 0), said
