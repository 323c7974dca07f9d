"""Replicates two stores with many logs, some of them changed, and measures the cost.

``python many_logs.py FOLDER LOGS CHANGED`` prints JSON: bytes on the wire, and the peak of memory
in use, above its level when both stores had their trees.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import thread_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from nacl.signing import SigningKey

from culm.bamboo.author import publish
from culm.bamboo.entry import LogKey
from culm.p2panda import Action, Operation, OperationStored, Policy, Replicator
from culm.p2panda.effects import NewOperation
from culm.wire.multihash import YASMF
from culm_io.stores.p2panda import OperationSqliteStore

SCHEMA = "panda_" + YASMF.hash(b"pandas").hex()
KEY = SigningKey(bytes(32))
AUTHOR = bytes(KEY.verify_key)
_BATCH = 5_000
_MESSAGE_SIZE = 1 << 16


def created(count: int) -> Iterator[NewOperation]:
    """Documents, each in its own log."""
    for number in range(count):
        operation = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"n": number})
        new = publish(
            KEY, family=YASMF, log_id=number, head=None, hashes={}, payload=operation.encode()
        )
        yield NewOperation(new.entry, operation, new.entry.hash())


def changed(store: OperationSqliteStore, numbers: range) -> Iterator[NewOperation]:
    """Changes of some of these documents."""
    for number in numbers:
        state = store.look_up([LogKey(AUTHOR, number)], []).logs[LogKey(AUTHOR, number)]
        operation = Operation(
            action=Action.UPDATE,
            schema_id=SCHEMA,
            previous=(state.head.hash,),
            fields={"n": -number},
        )
        new = publish(
            KEY,
            family=YASMF,
            log_id=number,
            head=state.head,
            hashes=state.hashes,
            payload=operation.encode(),
        )
        yield NewOperation(new.entry, operation, state.document_id)


def fill(folder: Path, logs: int, changes: int) -> list[Path]:
    """Two files with the same logs; half of the changes are in each of them."""
    one, other = folder / "one.sqlite", folder / "other.sqlite"
    with OperationSqliteStore(one) as store:
        coming = created(logs)
        while batch := list(islice(coming, _BATCH)):
            store.append(batch)
    shutil.copy(one, other)
    apart = logs // changes
    for first, path in enumerate((one, other)):
        with OperationSqliteStore(path) as store:
            store.append(list(changed(store, range(first * apart, changes * apart, 2 * apart))))
    return [one, other]


class End:
    """A replicator over a store."""

    def __init__(self, store: OperationSqliteStore, local: bytes, remote: bytes) -> None:
        self.store = store
        self.stored = 0
        self.sent = 0
        policy = Policy(asks=local < remote, live=False)
        self.machine = Replicator(local_peer=local, remote_peer=remote, policy=policy)
        self.machine.announce([SCHEMA], timestamp=1)

    def turn(self, other: End) -> bool:
        busy = False
        while (event := self.machine.next_event()) is not None:
            self.stored += isinstance(event, OperationStored)
            busy = True
        while (effect := self.machine.next_effect()) is not None:
            self.machine.complete(effect.ticket, self.store.perform(effect))
            busy = True
        if data := self.machine.data_to_send(min(_MESSAGE_SIZE, other.machine.read_size())):
            self.sent += len(data)
            other.machine.receive_data(data)
            busy = True
        return busy


def replicate(one: OperationSqliteStore, other: OperationSqliteStore) -> tuple[End, End]:
    ends = End(one, b"a", b"b"), End(other, b"b", b"a")
    busy = True
    while busy:
        turned = [ends[0].turn(ends[1]), ends[1].turn(ends[0])]
        busy = any(turned)
    return ends


def resident() -> int:
    """The process's peak memory, in bytes, since the last call."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    Path("/proc/self/clear_refs").write_text("5")
    return int(line.split()[1]) << 10


def measure(folder: Path, logs: int, changes: int, *, trace: bool) -> dict[str, Any]:
    """trace: count Python's allocations; otherwise the resident size of the process."""
    paths = fill(folder, logs, changes)
    with OperationSqliteStore(paths[0]) as one, OperationSqliteStore(paths[1]) as other:
        for store in (one, other):
            store.range([SCHEMA])
        gc.collect()
        if trace:
            tracemalloc.start()
        else:
            resident()
        before = 0 if trace else resident()
        began = thread_time()
        ends = replicate(one, other)
        took = thread_time() - began
        beyond = tracemalloc.get_traced_memory()[1] if trace else resident() - before
        assert [end.stored for end in ends] == [changes // 2, changes - changes // 2]
        assert one.range([SCHEMA]).position == other.range([SCHEMA]).position == logs + changes
    return {"beyond": beyond, "sent": sum(end.sent for end in ends), "took": round(took, 3)}


if __name__ == "__main__":
    folder, logs, changes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(measure(folder, logs, changes, trace=sys.argv[4:] == ["trace"])))
