"""Every store that comes with culm does what a store has to; broken ones are found out."""

from __future__ import annotations

import pytest
from raft_file_store import CANARIES, FileStore, FileStoreSuite

from culm.garlic.raft import Stored
from culm.garlic.store import MemoryStore, Store
from culm.testing.raft_store_model import Values
from culm.testing.raft_stores import RaftStoreSuite

TESTS = [name for name in dir(RaftStoreSuite) if name.startswith("test_")]


class TestMemoryStore(RaftStoreSuite):
    def make_store(self, machine: Values, founding: Stored) -> Store:
        return MemoryStore(machine, founding)


class TestFileStore(FileStoreSuite):
    """Loses, at a crash, whatever was not synced."""


@pytest.mark.parametrize("kind", CANARIES, ids=lambda kind: kind.__name__)
def test_a_broken_store_is_found_out(kind: type[FileStore]) -> None:
    suite = FileStoreSuite()
    suite.kind = kind
    with pytest.raises(AssertionError):
        getattr(suite, f"test_{CANARIES[kind]}")()


def test_every_rule_that_can_be_broken_alone_is() -> None:
    broken = {f"test_{name}" for name in CANARIES.values()}
    assert set(TESTS) - broken == {
        # Broken only together with another one, or not without more than one line.
        "test_it_is_a_store",
        "test_a_log_may_be_compacted_to_its_end",
        "test_a_random_walk_agrees_with_a_simple_model",
        "test_a_snapshot_may_come_in_one_piece_and_be_empty",
        "test_an_empty_snapshot_ends_at_once",
        "test_half_a_snapshot_is_none_after_a_restart",
    }
