"""The driver of a Garlic Farm node, and a store that fails."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from culm.garlic import Node
from culm.garlic.raft import Configuration, Persist, Server, Snapshot, Stored
from culm.machine import Closed, Effect, Event, StoreFailed
from culm_io.asyncio.garlic import NodeDriver

FOUNDERS = Configuration(servers=(Server(1, "tcp://127.0.0.1:1"),))
FULL = OSError("the disk is full")


class FullStore:
    """A store with room for nothing."""

    def load(self) -> Stored:
        return Stored(snapshot=Snapshot(configuration=FOUNDERS))

    def perform(self, effect: Effect[Any]) -> object:
        raise FULL


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_failure_of_the_store_ends_the_node_and_is_told(elsewhere: bool) -> None:
    events: list[Event] = []

    async def main(executor: ThreadPoolExecutor | None) -> None:
        store, loop = FullStore(), asyncio.get_running_loop()
        node = Node(
            server_id=1,
            stored=store.load(),
            rng=random.Random(1),
            now=loop.time() - 10,  # the election is due
        )
        driver = NodeDriver(node, store, perform_in=executor, on_event=events.append)
        driver.soon()
        with pytest.raises(OSError, match="the disk is full"):
            await driver.wait_closed()
        await driver.stop()

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(main(executor if elsewhere else None))
    (failed,) = [event for event in events if isinstance(event, StoreFailed)]
    assert failed.error is FULL
    assert isinstance(failed.effect, Persist)
    assert isinstance(events[-1], Closed)
