"""Numbers of machines, for monitoring."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pytest

from culm.garlic.raft import Raft, Server, Stored
from culm.machine import Closed, ContractErrorCode, RemoteProtocolError
from culm.machines.memory import retained_size
from culm.measures import Measure, Tally, measures
from culm.oxen import DropReason
from culm.ssb.ebt import SyncProgress
from culm.testing.record import conversations
from culm.testing.spec import MachineSpec
from culm.testing.suite.runs import driver_for
from specs import SPECS


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_machine_has_finite_numbers_at_any_time_and_reading_changes_nothing(
    spec: MachineSpec,
) -> None:
    told = conversations(spec)[0]
    driver = driver_for(spec, told)
    driver.start()
    for operation in told.operations:
        driver.run(operation)
        size, state = retained_size(driver.machine), driver.machine.state
        found = measures(driver.machine)
        assert Measure("state", 1, (("state", state.name),)) in found
        assert all(math.isfinite(each.value) for each in found)
        assert len({(each.name, each.labels) for each in found}) == len(found)
        assert measures(driver.machine) == found
        assert (retained_size(driver.machine), driver.machine.state) == (size, state)


@dataclass(frozen=True, slots=True)
class Peer:
    number: int
    match_index: int
    doing: str
    snapshot_index: int | None


class Machine:
    me = b"one"

    @property
    def peers(self) -> Sequence[Peer]:
        return [Peer(2, 7, "probe", None), Peer(3, 8, "probe", 5)]

    @property
    def dropped(self) -> MappingProxyType[DropReason, int]:
        return MappingProxyType({DropReason.TOO_LARGE: 4})

    @property
    def progress(self) -> SyncProgress:
        return SyncProgress(1, 2)

    @property
    def clock(self) -> dict[str, int]:
        return {"@feed": 9}

    @property
    def name(self) -> str:
        return "one"

    @property
    def _inner(self) -> int:
        return 1


def test_what_has_parts_is_labelled_or_counted() -> None:
    two, three = (("number", "2"),), (("number", "3"),)
    assert measures(Machine()) == [
        Measure("clock_count", 1),
        Measure("dropped_count", 1),
        Measure("dropped", 4, (("of", "TOO_LARGE"),)),
        Measure("peers_count", 2),
        Measure("peers_match_index", 7, two),
        Measure("peers_match_index", 8, three),
        Measure("peers_snapshot_index", 5, three),
        Measure("progress_current", 1),
        Measure("progress_target", 2),
    ]


def test_a_server_has_its_positions() -> None:
    servers = [Server(n, f"tcp://h:{n}") for n in (1, 2)]
    raft = Raft(server_id=1, stored=Stored.founding(servers), rng=random.Random(1), now=0.0)
    found = {each.name: each.value for each in measures(raft)}
    assert (found["term"], found["last_index"], found["peers_count"]) == (0, 0, 0)


def test_a_handler_hears_what_is_counted() -> None:
    tally, heard = Tally(), list[Closed]()
    handler = tally.before(heard.append)
    fault = Closed(error=RemoteProtocolError(ContractErrorCode.ALREADY_CLOSED))
    for event in (Closed(error=None), fault, Closed(error=None)):
        handler(event)
    assert heard == [Closed(error=None), fault, Closed(error=None)]
    assert tally.measures() == [
        Measure("events_total", 2, (("event", "Closed"), ("code", ""))),
        Measure("events_total", 1, (("event", "Closed"), ("code", "ALREADY_CLOSED"))),
    ]
