"""The memory of requests, their adjustments and ids: as much as the page says, or less."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from replicator_support import KEEP, World, news_of, store_of

from culm.intervals import Intervals
from culm.machines import call, lookup
from culm.machines.memory import retained_size
from culm.testing.record import driver_for, record
from culm.testing.spec import Scenario
from specs.point2point_hostile import GROWTH

PAGE = Path(__file__).resolve().parents[2] / "docs" / "point2point.md"
MACHINE = lookup("point2point")
FEW, MANY = 16, 60  # below the limits


def told(limit: str, words: str) -> list[int]:
    """The numbers that the page gives for a limit."""
    row = re.search(rf"\| `{limit}` \|.*?\|(.*)\|", PAGE.read_text(encoding="utf-8"))
    assert row is not None
    found = re.search(words, row[1])
    assert found is not None, row[1]
    return [int(number) for number in found.groups()]


def sides(scenario: Scenario) -> list[int]:
    """The bytes that either machine holds after the scenario."""
    sizes = []
    for side in record(MACHINE, scenario):
        config = {**side.config, "requests_max": MANY}
        driver = driver_for(MACHINE, replace(side, config=config))
        driver.start()
        for operation in side.operations:
            driver.run(operation)
        sizes.append(retained_size(driver.machine))
    return sizes


def growth(scenario: Callable[[int], Scenario]) -> float:
    """The bytes for one more of it, at the side with the larger increase."""
    few, many = sides(scenario(FEW)), sides(scenario(MANY))
    return max(b - a for a, b in zip(few, many, strict=True)) / (MANY - FEW)


def confirmed(count: int) -> Scenario:
    limits = {"requests_max": MANY}
    return Scenario(
        name="confirmed",
        left=limits,
        right={"role": "reactive", **limits},
        script=[
            *[("left", call("propose"))] * count,
            *(("right", call("confirm", request=2 * number)) for number in range(count)),
        ],
    )


def test_a_request() -> None:
    [kib] = told("requests_max", r"about (\d+) KiB each")
    assert kib / 2 < growth(confirmed) / 1024 < kib * 1.25
    assert growth(GROWTH["proposals"]) <= growth(confirmed)


@pytest.mark.parametrize("name", [name for name in GROWTH if "proposals" not in name])
def test_an_adjustment(name: str) -> None:
    kib, sparse_kib = told("request_adjustments_max", r"1 to (\d+) KiB each, up to (\d+) KiB")
    sparse = name == "ends of the longest path"
    assert 0 < growth(GROWTH[name]) < 1024 * (sparse_kib if sparse else kib)


def test_a_run_of_ids() -> None:
    [size] = told("dropped_max", r"some (\d+) bytes each")
    ids = Intervals()
    empty = retained_size(ids)
    for number in range(256):
        ids.add(2**61 + 3 * number)
    assert (retained_size(ids) - empty) / len(ids) < size


def test_the_hashes_of_a_log() -> None:
    """There are as many, or fewer, however long the log is."""
    count, size = told("requests_max", r"up to (\d+) hashes of the log, (\d+) bytes each")

    def held(length: int) -> int:
        world = World()
        server, reader = world.node(store_of(news_of((1,) * length))), world.node(interest=KEEP)
        world.connect(server, reader)
        world.settle()
        assert len(reader.store.entries(reader.store.logs()[0])) == length
        return max(retained_size(node.end.machine) for node in (server, reader))

    short = held(2)
    assert all(held(length) - short < count * size for length in (60, 200, 400))
