"""The cost of a session of reconciliation: rounds, bytes, and processor time of both sides.

``CULM_RECONCILE_ITEMS`` is the size of the sets, 300,000 by default here.  Bytes are counted as
if each message had one for its kind, counts had two, and bounds, items and digests their size.
"""

from __future__ import annotations

import os
from random import Random
from time import process_time

import pytest

from culm import kernels
from culm.reconcile import ItemReceived, Parameters, Role, Session, State, Tree
from culm.reconcile.messages import Message, Payload, RangeFingerprint

COUNT = int(os.environ.get("CULM_RECONCILE_ITEMS", "300000"))
SIZE = 32
DIGEST = 8

pytestmark = pytest.mark.skipif(
    kernels.IMPLEMENTATIONS["tree"] != "compiled", reason="sets of that size ask for the kernel"
)


def size_of(message: Message) -> int:
    size = 1
    if isinstance(message, RangeFingerprint):
        size += DIGEST + 2
    if isinstance(message, Payload):
        size += len(message.item)
    bound = getattr(message, "upper_bound", getattr(message, "bound", None))
    return size + len(bound or b"")


def talk(first: Session, second: Session) -> list[list[Message]]:
    rounds: list[list[Message]] = []
    speaker, listener = first, second
    while State.ENDED not in (first.state, second.state):
        said: list[Message] = []
        while (message := speaker.next_message()) is not None:
            said.append(message)
            listener.receive(message)
        rounds.append(said)
        speaker, listener = listener, speaker
    return rounds


@pytest.mark.parametrize("differences", [0, 10, 1000, 20_000])
def test_what_a_session_takes(capsys, differences):
    half = differences // 2
    chance = Random(differences)
    ids = [chance.randbytes(SIZE) for _ in range(COUNT + half)]
    trees = [Tree(item_size=SIZE) for _ in range(2)]
    for tree, held in zip(trees, (ids[:COUNT], ids[half:]), strict=True):
        tree.fill(b"".join(held))
    sessions = [
        Session(view=tree, role=role, parameters=Parameters(digest_size=DIGEST))
        for tree, role in zip(trees, Role, strict=True)
    ]
    start = process_time()
    rounds = talk(*sessions)
    time = process_time() - start
    for session, lacking in zip(sessions, (ids[COUNT:], ids[:half]), strict=True):
        received = [
            event.item
            for event in iter(session.next_event, None)
            if isinstance(event, ItemReceived)
        ]
        assert sorted(received) == sorted(lacking)
    size = sum(size_of(message) for said in rounds for message in said)
    with capsys.disabled():
        print(f"\n{COUNT} items, {differences} differ: {len(rounds)} rounds,", end=" ")
        print(f"{size / 1000:.1f} kB, {1000 * time:.1f} ms", end="")
