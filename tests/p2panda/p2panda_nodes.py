"""Nodes: stores with authors, and replicators between them."""

from __future__ import annotations

from random import Random
from typing import Any

from nacl.signing import SigningKey

from culm.p2panda import Mode, Policy, Replicator, ReplicatorLimits, materialise
from culm.p2panda.author import Author
from culm.p2panda.store import MemoryStore, OperationStore
from culm.testing.link import MachinePair, whole
from culm.testing.pipe import Chunker
from culm.wire.multihash import YASMF

SCHEMA = "panda_" + YASMF.hash(b"pandas").hex()
OTHER = "place_" + YASMF.hash(b"places").hex()


class Node:
    """A store and its author."""

    def __init__(self, name: int, store: OperationStore | None = None) -> None:
        self.store = MemoryStore() if store is None else store
        self.author = Author(SigningKey(name.to_bytes(32, "big")), self.store)

    def create(self, **fields: Any) -> bytes:
        return self.author.create(SCHEMA, fields or {"name": "Lu"})

    def documents(self, *schema_ids: str) -> dict[bytes, Any]:
        """All documents, materialised."""
        return {
            each: materialise(self.store.operations(each), backlinks=self.store.backlinks(each))
            for schema_id in schema_ids or (SCHEMA, OTHER)
            for each in self.store.documents(schema_id)
        }


def replicators(
    *,
    mode: Mode = Mode.SET_RECONCILIATION,
    live: bool = False,
    asks: tuple[bool, bool] = (True, False),
    **options: Any,
) -> tuple[Replicator, Replicator]:
    left, right = (
        Replicator(
            local_peer=ids[0],
            remote_peer=ids[1],
            policy=Policy(asks=ask, mode=mode, live=live),
            **options,
        )
        for ids, ask in zip(((b"a", b"b"), (b"b", b"a")), asks, strict=True)
    )
    return left, right


def connect(
    left: Node,
    right: Node,
    *,
    schema_ids: tuple[str, ...] = (SCHEMA, OTHER),
    machines: tuple[Replicator, Replicator] | None = None,
    rng: Random | None = None,
    chunker: Chunker = whole,
    run: bool = True,
    **options: Any,
) -> MachinePair:
    """Connect two nodes that announce the same schemas, and run until all is quiet."""
    machines = machines or replicators(**options)
    link = MachinePair.of_machines(
        *machines,
        respond=(
            left.store.perform,
            right.store.perform,
        ),
        chunker=chunker,
        **({} if rng is None else {"rng": rng}),
    )
    for machine in machines:
        machine.announce(schema_ids, timestamp=1)
    return link.run() if run else link


def kinds(events: list[Any]) -> list[str]:
    return [type(event).__name__ for event in events]


__all__ = ["OTHER", "SCHEMA", "Node", "ReplicatorLimits", "connect", "kinds", "replicators"]
