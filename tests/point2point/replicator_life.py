"""Random worlds for the laws of life: stores from backups, and limits of 1."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import replace
from random import Random

from nacl.signing import SigningKey
from replicator_random import RandomWorld, random_limits
from replicator_support import Node, same

from culm.bamboo.entry import LogKey
from culm.bamboo.store import LogStore
from culm.point2point.replication import Interest, ReplicatorLimits


def least_limits(rng: Random) -> ReplicatorLimits:
    """Most of them at the least useful value: every log, entry and byte waits for its place."""
    usual = random_limits(rng)
    connection = replace(
        usual.connection,
        requests_max=rng.choice((1, 2, 8)),
        dropped_max=1,
        unsent_size_max=1,
        request_adjustments_max=rng.choice((2, 64)),
        packet_size_max=rng.choice((16, 48, 300)),
        data_window_max=rng.choice((16, 60, 500)),
    )
    return replace(
        usual,
        connection=connection,
        unwritten_size_max=1,
        read_ahead_size_max=1,
        batch_size_max=1,
        batch_count_max=1,
        payload_inline_max=rng.choice((1, 64)),
        outstanding_max=1,
        logs_max=rng.choice((1, 2, 10_000)),
    )


class Life(RandomWorld):
    """Nodes whose stores go back to backups; all limits are low if they are `tight`.

    An author whose store has gone back publishes again only with its log back from others: an
    earlier entry would fork the log.
    """

    def __init__(self, seed: int, *, tight: bool = False, backups: bool = True) -> None:
        self._tight = tight
        self._backups = backups
        self._kept: dict[Node, list[LogStore]] = {}
        self._heads: dict[LogKey, int] = {}  # of the entries ever published
        super().__init__(seed)

    def node(self, interest: Interest) -> Node:
        limits = least_limits(self.rng) if self._tight else random_limits(self.rng)
        return self.world.node(interest=interest, limits=limits)

    def go(self) -> None:
        actions = [self.author, self.author, self.connect, self.cut, self.pause]
        if self._backups:
            actions += [self.back_up, self.restore]
        self.happen((4, 16), *actions)
        for node in self.nodes:
            node.paused = False
        self.mend()

    def _payload(self) -> bytes:
        return super()._payload()[: 100 if self._tight else None]

    def back_up(self) -> None:
        node = self.rng.choice(self.nodes)
        self._kept.setdefault(node, []).append(deepcopy(node.store))

    def restore(self) -> None:
        """A node is killed, and starts again with any of its backups."""
        node = self.rng.choice(self.nodes)
        for n, cable in list(self.cables.items()):
            if node in (cable.left.node, cable.right.node):
                self.world.cut(self.cables.pop(n))
        node.ends.clear()
        node.changed.clear()
        node.store = deepcopy(self.rng.choice(self._kept.get(node) or [node.store]))

    def alike(self) -> bool:
        """Whether all nodes have everything that any of them has, including all of each payload.

        Where a store has gone back, others may be left with the beginning of a payload, for good.
        """
        nodes = [copy(node) for node in self.nodes]
        for node in nodes:
            node.store = deepcopy(node.store)
        stores = [node.store for node in nodes]
        for log in {log for store in stores for log in store.logs()}:
            kept = [stored for store in stores for stored in store.entries(log)]
            whole = {stored.seqnum for stored in kept if stored.payload_complete}
            for seqnum in {stored.seqnum for stored in kept} - whole:
                for store in stores:
                    if store.entry(log, seqnum) is not None:
                        store.discard_payload(log, seqnum)
        return same(*nodes)

    def _publish(self, node: Node, key: SigningKey, log_id: int, count: int) -> None:
        log = LogKey(bytes(key.verify_key), log_id)
        head = node.store.head(log)
        if (0 if head is None else head.seqnum) < self._heads.get(log, 0):
            return
        super()._publish(node, key, log_id, count)
        head = node.store.head(log)
        self._heads[log] = 0 if head is None else head.seqnum
