"""What has been said is not said again: the conversations of every machine come to rest."""

from __future__ import annotations

import pytest

from culm.garlic import DialWanted
from culm.testing.record import joined
from culm.testing.spec import MachineSpec, Stage
from specs import SPECS

REST_S = 300.0
QUICK_S = {"garlic-node": 10.0}  # whose heartbeats go on
STAGES = [(spec, stage) for spec in SPECS for stage in spec.usage.stages]


@pytest.mark.parametrize(
    ("spec", "stage"), STAGES, ids=[f"{spec.name}-{stage.name}" for spec, stage in STAGES]
)
def test_nothing_happens_at_rest(spec: MachineSpec, stage: Stage) -> None:
    """Neither an event nor an effect, but that a missing member is dialled."""
    together = joined(spec.machine, stage)
    rest_s = QUICK_S.get(spec.name, REST_S)
    together.run(until=together.clock.now + 2 * rest_s)
    seen = {name: len(end.turns) for name, end in together.ends.items()}
    together.run(until=together.clock.now + rest_s)
    for name, end in together.ends.items():
        turns = end.turns[seen[name] :]
        happened = [each for turn in turns for each in (*turn.events, *turn.effects)]
        assert [each for each in happened if not isinstance(each, DialWanted)] == []
