"""The tables of docs/oxen.md, counted in a simulated network.

``python benchmarks/oxen_tables.py [TABLE ...]`` prints them as they stand on the page.  Time is
virtual and chance has seeds, so they are the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf, isinf

from culm.oxen import Limits, MessageReceived, Node, PeerState, PeerUnreachable, TagsChanged, Timing
from culm.oxen.messages import MessageData, decode_parcel
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Address, Conditions, Network

__all__ = ["TABLES", "main"]

Row = tuple[object, ...]
EPOCH = 1_700_000_000.0
SEEDS = range(5)
PATIENCE_S = 400.0
NEAR = Conditions(delay_min=0.005, delay_max=0.02)
FARTHER = Conditions(delay_min=0.01, delay_max=0.02)
FAR = Conditions(delay_min=0.005, delay_max=0.05)
LARGE = 2**20


class Counted(Network):
    """Counts datagrams with a message, too, which acknowledgements and signs of life are not."""

    messages = 0
    messages_bytes = 0

    def __init__(self, *, seed: int, conditions: Conditions) -> None:
        super().__init__(seed=seed, conditions=conditions)
        self.numbers: set[tuple[Address, int | None]] = set()  # by source, without repetitions

    def send(self, source: Address, destination: Address, payload: bytes) -> None:
        if isinstance(body := decode_parcel(payload).body, MessageData):
            self.messages += 1
            self.messages_bytes += len(payload)
            self.numbers.add((source, body.id))
        super().send(source, destination, payload)


def lossy(conditions: Conditions, loss: float) -> Conditions:
    return Conditions(loss=loss, delay_min=conditions.delay_min, delay_max=conditions.delay_max)


def joined(
    size: int,
    conditions: Conditions,
    *,
    seed: int = 0,
    timing: Timing | None = None,
    limits: Limits | None = None,
) -> Cluster:
    """Nodes that have joined each other, all through the first, at the same moment."""
    network = Counted(seed=seed, conditions=conditions)
    cluster = Cluster(network)

    def build(host: Host) -> Node:
        assert isinstance(host.address, bytes)
        return Node(
            me=host.address,
            rng=network.random(repr(host.address)),
            epoch=EPOCH,
            timing=timing or Timing(),
            limits=limits or Limits(),
        )

    names = [b"N%03d" % number for number in range(size)]
    for name in names:
        cluster.add(name, build)
    cluster[names[0]].call("start")
    for name in names[1:]:
        cluster[name].call("join", sid=names[0])

    def all_joined() -> bool:
        return all(
            len(peers := host.machine.peers()) == size - 1
            and all(view.state is PeerState.JOINED for view in peers.values())
            for host in cluster
        )

    while not all_joined():
        network.run(network.clock.now + 0.1)
        assert network.clock.now < PATIENCE_S
    return cluster


def quiet(cluster: Cluster, conditions: Conditions, loss: float) -> Counted:
    """The network after a while, from when on it loses some of all datagrams."""
    network = cluster.network
    assert isinstance(network, Counted)
    network.run(network.clock.now + 20.0)
    network.set_conditions(lossy(conditions, loss))
    network.run(network.clock.now + 10.0)
    return network


def told(hosts: Iterable[Host], kind: type, since: float = 0.0) -> int:
    """How many events of a kind there were since a time."""
    return sum(isinstance(event, kind) for host in hosts for at, event in host.events if at > since)


def crashes() -> Iterator[Row]:
    for size in 4, 16:
        for suspect_s, keepalive_s in (inf, 5.0), (10.0, 5.0), (5.0, 2.0), (3.0, 1.0):
            timing = Timing(
                suspect_s=suspect_s,
                keepalive_s=keepalive_s,
                keepalive_retry_s=min(1.0, keepalive_s / 2),
            )
            for loss in 0.0, 0.05, 0.2:
                cluster = joined(size, NEAR, timing=timing)
                network = quiet(cluster, NEAR, loss)
                before, begin = network.statistics(), network.clock.now
                watched_s = 200.0 if size == 4 else 120.0
                network.run(begin + watched_s)
                after, crashed = network.statistics(), network.clock.now
                false = told(cluster, PeerUnreachable, begin)
                dead, *others = cluster
                dead.crash()
                while told(others, PeerUnreachable, crashed) < size - 1:
                    network.run(network.clock.now + 0.1)
                idle = watched_s * size
                yield (
                    *(size, "inf" if isinf(suspect_s) else f"{suspect_s:.0f}"),
                    *(f"{keepalive_s:.0f}", share(loss)),
                    f"{(after.sent - before.sent) / idle:.1f}",
                    f"{(after.sent_bytes - before.sent_bytes) / idle:,.0f}",
                    *(f"{network.clock.now - crashed:.0f}", false),
                )


def has_come(host: Host, count: int) -> bool:
    return told([host], MessageReceived) == count


def pieces() -> Iterator[Row]:
    needed: dict[int, int] = {}
    for loss, size in (0.0, 1200), (0.01, 1200), (0.05, 1200), (0.0, 8192), (0.05, 8192):
        found = []
        for seed in SEEDS:
            limits = Limits(datagram_size_max=size, message_size_max=LARGE)
            cluster = joined(2, FARTHER, seed=seed, limits=limits)
            network = quiet(cluster, FARTHER, loss)
            one, other = cluster
            for number in 1, 2:  # the first one opens the window
                before, begin, sent = network.statistics(), network.clock.now, len(network.numbers)
                one.call("send_in_order", to=other.address, data=bytes(LARGE))
                network.run(begin + PATIENCE_S, done=partial(has_come, other, number))
            after, took = network.statistics(), network.clock.now - begin
            needed.setdefault(size, len(network.numbers) - sent)
            found.append((after.sent - before.sent, after.sent_bytes - before.sent_bytes, took))
        datagrams, sizes, seconds = zip(*found, strict=True)
        yield (
            *(share(loss), f"{size:,}", f"{needed[size]:,}", span(datagrams, ",.0f")),
            *(f"{span([each / 1e6 for each in sizes], '.2f')} million", span(seconds, ".2f")),
        )


def tags() -> Iterator[Row]:
    for size in 4, 16:
        for loss in 0.0, 0.05, 0.3:
            found = []
            for seed in SEEDS:
                cluster = joined(size, NEAR, seed=seed, limits=Limits(tags_size_max=512))
                network = quiet(cluster, NEAR, loss)
                begin, count, sizes = network.clock.now, network.messages, network.messages_bytes
                first, *others = cluster
                first.call("set_tags", tags={f"tag{n}": "x" * 8 for n in range(4)})
                while told(others, TagsChanged, begin) < size - 1:
                    network.run(network.clock.now + 0.01)
                found.append(
                    (
                        network.messages - count,
                        network.messages_bytes - sizes,
                        network.clock.now - begin,
                    )
                )
            counts, bytes_, seconds = (sorted(each) for each in zip(*found, strict=True))
            usual = len(SEEDS) // 2
            yield (
                *(size, share(loss), counts[usual], f"{bytes_[usual]:,}"),
                f"{seconds[usual]:.2f} to {seconds[-1]:.2f}",
            )


def joins() -> Iterator[Row]:
    for size in 32, 64, 128, 256:
        cluster = joined(size, FAR, limits=Limits(candidates_max=256))
        sent, seconds = cluster.network.statistics().sent, cluster.network.clock.now
        yield size, f"{sent:,}", f"{sent / size / (size - 1):.1f}", f"{seconds:.1f}"


def share(loss: float) -> str:
    return f"{loss * 100:.0f} %" if loss else "none"


def span(numbers: Sequence[float], form: str) -> str:
    """From the least to the greatest, or the one."""
    ends = [format(each, form) for each in (min(numbers), max(numbers))]
    return " to ".join(dict.fromkeys(ends))


TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    each.__name__: each for each in (crashes, pieces, tags, joins)
}


def main(names: Iterable[str]) -> None:
    """Print the tables of these names, or all."""
    for name in list(names) or TABLES:
        print(f"\n{name}")
        for row in TABLES[name]():
            print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
