"""Everything that a user can count costs twice the work for twice as many; the page lists it."""

from __future__ import annotations

import pytest

from culm.testing.suite.work import growth
from doubling import HEAD, PAGE, RULE, grown, things
from specs import SPECS

#: These have no law of work: libraries do most of theirs.
_WITHOUT_LAW = sorted(spec.name for spec in SPECS if spec.bounds.work is None)


def test_the_page_lists_all_that_there_may_be_many_of() -> None:
    _, _, after = PAGE.read_text(encoding="utf-8").partition(HEAD + RULE)
    rows = after.split("\n\n")[0].splitlines()
    told = [tuple(cell.strip(" `") for cell in row.split("|")[1:3]) for row in rows]
    assert told == things()


def test_every_machine_that_holds_many_things_has_some() -> None:
    without = {spec.name for spec in SPECS} - {machine for machine, _ in things()}
    # These carry one conversation, and keep nothing of it but the part under way.
    assert without == {"garlic", "garlic-handshake", "ssb-box-stream", "ssb-handshake"}


@pytest.mark.once
@pytest.mark.parametrize("machine", _WITHOUT_LAW)
def test_what_has_no_law_of_work_grows_no_faster(machine: str) -> None:
    growth(next(spec for spec in SPECS if spec.name == machine))


@pytest.mark.once
def test_what_grows_is_told() -> None:
    found = next(grown("bymux writes"))
    assert found.steps == tuple(sorted(found.steps))
    assert 0.9 < found.exponent < 1.1
