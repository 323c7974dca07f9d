"""The page on the Replicator agrees with the code."""

from __future__ import annotations

import doctest
import re
from dataclasses import fields

import pytest
from p2p_page import filled
from replicator_page import PAGE, parts

from culm.machine import Event
from culm.point2point import replication
from culm.point2point.replication import Interest, ReplicatorLimits, Want


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_examples_run(page: str) -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S))
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 30
    assert result.failed == 0


def test_diagrams_are_those_of_the_code(page: str) -> None:
    """``python tests/point2point/replicator_page.py`` draws them anew."""
    assert filled(page, parts()) == page


def test_the_diagrams_show_what_they_are_about() -> None:
    drawn = parts()
    for name, words in (
        ("live", ["stored(log)", "MetadataReceived(request 0, seqnum 3, verified True)"]),
        ("sparse", ["pool from 1, pool to 40, sparse", "LogSynced(30)"]),
        ("fork", ["ForkSuspected", "Cancelled(request 4, FORK with both entries)"]),
        ("resume", ["entry 2, from byte 1", "EntryStored(2, with payload)"]),
    ):
        assert [word for word in words if word not in drawn[name]] == []


def test_every_event_is_explained(page: str) -> None:
    table = page[page.index("## Events") : page.index("## Limits")]
    told = set(re.findall(r"^\| `(\w+)` \|", table, flags=re.M))
    kinds = {
        name
        for name in replication.__all__
        if isinstance(kind := getattr(replication, name), type) and issubclass(kind, Event)
    }
    assert len(kinds) == 11
    assert told == kinds


def test_every_limit_is_listed_with_its_default(page: str) -> None:
    units = {"": 1, "s": 1, "KiB": 1024, "MiB": 1 << 20}
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([\w .()]+?)`? \|", page, flags=re.M))
    limits = ReplicatorLimits()
    for field in fields(limits):
        if field.name == "connection":
            assert rows["connection"] == "Limits()"
            continue
        number, _, unit = rows[field.name].partition(" ")
        assert float(number) * units[unit] == getattr(limits, field.name)


def test_every_wish_is_told(page: str) -> None:
    told = page[page.index("## What is wanted") :]
    names = {field.name for kind in (Interest, Want) for field in fields(kind)}
    assert {name for name in names if name not in told} == set()
