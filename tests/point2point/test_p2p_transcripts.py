"""Whole conversations, as kept in ``tests/transcripts/point2point``.

Those of the registered scenarios, and those of two replicators over stores that change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from replicator_support import FETCH, KEEP, SERVE, SMALL, news_of, store_of

from culm.bamboo.records import NewEntry
from culm.bamboo.store import MemoryStore
from culm.point2point import Role, Setup
from culm.point2point.replication import Interest, Replicator, Want
from culm.testing import transcript
from culm.testing.link import MachinePair
from culm.testing.record import play
from culm.testing.spec import MachineSpec, Scenario
from culm.wire.multihash import YAMF
from specs import spec_of

Same = Callable[[str, str], None]

SCENARIOS = [
    (spec, scenario)
    for spec in (spec_of("point2point"), spec_of("point2point-replicator"))
    for scenario in spec.usage.scenarios
]
# Random payloads, two of them too large to be written along with the entry.
NEWS = news_of((20, 100, 0, 64, 150, 7, 8, 9))
LOG = NEWS[0].entry.log


def file_name(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


@pytest.mark.parametrize(
    ("spec", "scenario"), SCENARIOS, ids=[scenario.name for _, scenario in SCENARIOS]
)
def test_conversation(spec: MachineSpec, scenario: Scenario, same_transcript: Same) -> None:
    name = file_name(f"{spec.name.removeprefix('point2point').removeprefix('-')} {scenario.name}")
    same_transcript(
        f"point2point/{name.strip('-')}", transcript.of_link(play(spec.machine, scenario))
    )


def link_of(
    left: MemoryStore, right: MemoryStore, interests: tuple[Interest, Interest] = (FETCH, SERVE)
) -> MachinePair:
    """A fetching replicator, left, and a serving one, in small pieces and without compression."""
    setup = Setup(send_window_max=0, receive_window_max=0)
    roles = (Role.PROACTIVE, Role.REACTIVE)
    machines = [
        Replicator(role=role, setup=setup, limits=SMALL, interest=interest)
        for role, interest in zip(roles, interests, strict=True)
    ]
    respond = tuple(store.perform for store in (left, right))
    return MachinePair.of_machines(*machines, respond=respond).run(until=1.0)


def told(link: MachinePair) -> str:
    """The transcript of a link that ends in good order."""
    link.call("left", "close")
    link.run()
    text = transcript.of_link(link)
    assert text.count("Closed(error=None)") == 2
    assert "LocalProtocolError" not in text
    return text


def empty() -> MemoryStore:
    return MemoryStore(family=YAMF)


def test_live_forwarding(same_transcript: Same) -> None:
    author, reader = store_of(NEWS[:1]), empty()
    link = link_of(reader, author, (KEEP, SERVE))
    for new in NEWS[1:3]:
        author.append(LOG, [new])
        link.call("right", "stored", log=LOG)
        link.run(until=link.clock.now + 1.0)
    assert len(reader.entries(LOG)) == 3
    same_transcript("point2point/replicator-live-forwarding", told(link))


def test_one_entry_with_its_certificate_pools(same_transcript: Same) -> None:
    reader = empty()
    link = link_of(reader, store_of(NEWS), (replace(FETCH, want=None), SERVE))
    link.call("left", "replicate", log=LOG, want=Want(first=5, last=5, sparse=True))
    link.run()
    assert [kept.seqnum for kept in reader.entries(LOG)] == [1, 4, 5, 6, 7, 8]
    same_transcript("point2point/replicator-one-entry-with-its-certificate-pools", told(link))


def test_a_payload_goes_on_where_the_store_ends(same_transcript: Same) -> None:
    reader = store_of(
        [*NEWS[:4], NewEntry(NEWS[4].entry, (NEWS[4].payload or b"")[:70], staged=True)]
    )
    link = link_of(reader, store_of(NEWS))
    assert [kept.payload_complete for kept in reader.entries(LOG)] == [True] * 8
    same_transcript("point2point/replicator-a-payload-goes-on-where-the-store-ends", told(link))


def test_payloads_up_to_a_size_and_the_others_later(same_transcript: Same) -> None:
    reader = empty()
    link = link_of(reader, store_of(NEWS), (replace(FETCH, want=Want(size_max=64)), SERVE))
    assert [kept.seqnum for kept in reader.entries(LOG) if not kept.payload_complete] == [2, 5]
    link.call(
        "left", "replicate", log=LOG, want=Want(first=2, last=5, payload_only=True, size_min=65)
    )
    link.run()
    assert all(kept.payload_complete for kept in reader.entries(LOG))
    same_transcript("point2point/replicator-payloads-up-to-a-size-and-the-others-later", told(link))
