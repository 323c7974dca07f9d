"""A node of ours as a process in a cluster with JRaft: ``python mixed_server.py FILE``.

FILE is JSON: id, folder, servers (endpoints by id) and limits of the core.  Committed values are
printed as JRaft's sample server prints them, along with other facts for the analysis.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from culm.garlic.limits import Limits, Timing
from culm.garlic.node import Node
from culm.garlic.raft import LeaderChanged, RoleChanged, Server, SnapshotInstalled, Stored
from culm.garlic.raft import Limits as RaftLimits
from culm.garlic.raft import Timing as RaftTiming
from culm.machine import Closed, Event
from culm_io.asyncio.garlic import NodeDriver
from culm_io.endpoint import address_of
from culm_io.stores.raft import RaftSqliteStore

# As in JRaft's sample server.
TIMING = RaftTiming(
    election_timeout_min_s=3.0,
    election_timeout_max_s=5.0,
    heartbeat_interval_s=1.0,
    request_timeout_s=2.5,
)


class Printer:
    """A state machine that keeps nothing: its output is the record."""

    def __init__(self) -> None:
        self._image = b""

    def apply(self, index: int, value: bytes) -> None:
        print(f"commit: {index}\t{value.decode()}", flush=True)

    def snapshot(self) -> bytes:
        return self._image

    def restore(self, image: bytes) -> None:
        self._image = image


def tell(event: Event) -> None:
    match event:
        case LeaderChanged(leader=int(leader), term=term):
            print(f"leader: {leader} of term {term}", flush=True)
        case RoleChanged(role=role, term=term):
            print(f"role: {role.name} in term {term}", flush=True)
        case SnapshotInstalled(snapshot=snapshot):
            print(f"snapshot: up to {snapshot.index} of term {snapshot.term}", flush=True)
        case Closed(error=error):
            print(f"closed: {error}", flush=True)
        case _:
            pass


async def serve(path: Path) -> None:
    given = json.loads(path.read_text())
    servers = {
        int(number): Server(int(number), where) for number, where in given["servers"].items()
    }
    own = servers[given["id"]]
    store = RaftSqliteStore(
        Path(given["folder"]) / "raft.sqlite", Printer(), Stored.founding(servers.values())
    )
    node = Node(
        server_id=own.server_id,
        stored=store.load(),
        rng=random.SystemRandom(),
        now=asyncio.get_running_loop().time(),
        timing=Timing(raft=TIMING),
        limits=Limits(raft=RaftLimits(snapshot_distance=0, **given["limits"])),
    )
    with ThreadPoolExecutor(1) as executor:
        driver = NodeDriver(node, store, perform_in=executor, on_event=tell)
        await driver.listen(*address_of(own.endpoint))
        await driver.wait_closed()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
