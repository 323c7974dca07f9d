"""The store in memory does what every store of feeds has to do."""

from __future__ import annotations

from culm.ssb.store import MemoryStore
from culm.testing.ssb_stores import FeedStoreSuite


class TestMemoryStore(FeedStoreSuite):
    def make_store(self) -> MemoryStore:
        return MemoryStore()
