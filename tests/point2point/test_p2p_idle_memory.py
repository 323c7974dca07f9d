"""The memory of an idle connection: as much as the page says, or less."""

from __future__ import annotations

import gc
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from nacl.signing import SigningKey

from culm.bamboo import LogAuthor, MemoryStore
from culm.machines.driver import Driver
from culm.machines.sample_logs import make_log
from culm.point2point import Connection, Role, Timing
from culm.point2point.replication import Interest, Replicator
from culm.testing.link import MachinePair
from culm.wire.multihash import YAMF

PAGE = Path(__file__).resolve().parents[2] / "docs" / "point2point.md"
LOGS = 8
# The page's figures are those of one version of CPython, and say "about".
TOLERANCE = 1.1


def told() -> list[int]:
    """The page's bytes for a connection, a replicator and each of its logs."""
    found = re.search(
        r"takes about (\d+) KiB; one with a `Replicator` takes (\d+) KiB, and (\d+) KiB more",
        " ".join(PAGE.read_text(encoding="utf-8").split()),
    )
    assert found is not None
    return [1024 * int(number) for number in found.groups()]


def connections() -> list[object]:
    link = MachinePair.of_machines(
        Connection(role=Role.PROACTIVE), Connection(role=Role.REACTIVE)
    ).run()
    return [link.left.machine, link.right.machine]


def replicators(logs: int) -> list[object]:
    """Two that have the same logs, and keep them in step."""
    drivers = []
    for role in Role:
        store = MemoryStore(family=YAMF)
        for log_id in range(logs):
            news = make_log(YAMF, log_id, 2)
            store.append(news[0].entry.log, news)
        drivers.append(
            Driver(
                Replicator(role=role, interest=Interest(accept_new_logs=True)),
                respond=store.perform,
            )
        )
    link = MachinePair(*drivers).run(until=5.0)
    return [link.left.machine, link.right.machine]


def size_of_each(make: Callable[[], list[object]], count: int = 10) -> float:
    """The mean size in bytes of the machines that `make` makes."""
    make()  # for everything that is made only once
    gc.collect()
    tracemalloc.start()
    try:
        kept = [machine for _ in range(count) for machine in make()]
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / len(kept)
    finally:
        tracemalloc.stop()


def test_what_is_idle_costs_little() -> None:
    connection, replicator, log = told()
    alone, bare = size_of_each(connections), size_of_each(lambda: replicators(0))
    each = (size_of_each(lambda: replicators(LOGS)) - bare) / LOGS
    assert connection / 2 < alone < connection * TOLERANCE
    assert replicator / 2 < bare < replicator * TOLERANCE
    assert log / 2 < each < log * TOLERANCE


def test_a_sender_that_has_nothing_to_send_keeps_its_history_and_no_table() -> None:
    """Memory counted before and after the first keepalive that is requested."""
    author = LogAuthor(SigningKey(bytes(32)), family=YAMF)
    text = PAGE.read_bytes()
    full, empty = MemoryStore(family=YAMF), MemoryStore(family=YAMF)
    full.append(author.log, [author.publish(text[at : at + 900]) for at in range(0, 27_000, 900)])
    drivers = [
        Driver(
            Replicator(role=role, interest=Interest(accept_new_logs=True)), respond=store.perform
        )
        for role, store in zip(Role, (full, empty), strict=True)
    ]
    tracemalloc.start()
    try:
        link = MachinePair(*drivers)
        sizes = []
        for until in (5.0, 5.0 + Timing().keepalive_s):
            link.run(until=until)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    head = empty.head(author.log)
    assert head is not None
    assert head.seqnum == 30
    assert sizes[1] < sizes[0] - 25_000
