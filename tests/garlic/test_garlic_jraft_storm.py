"""Three servers of JRaft and two of ours, killed at random while clients write.

``CULM_JRAFT_STORM_S`` sets the duration (ten minutes), ``CULM_JRAFT_STORM_SEED`` the kills;
`jraft_field` lists the requirements.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from jraft_field import needs_jraft
from jraft_storm import JRAFT, Storm, compared, logs_of, rage, told_otherwise

pytestmark = [needs_jraft, pytest.mark.slow, pytest.mark.timeout(0)]

SECONDS = float(os.environ.get("CULM_JRAFT_STORM_S", "600"))
SEED = int(os.environ.get("CULM_JRAFT_STORM_SEED", "1"))


def say(text: str) -> None:
    print(text, flush=True)


def test_all_logs_of_a_mixed_cluster_are_equal_after_a_storm_of_kills(tmp_path: Path) -> None:
    storm = Storm(tmp_path, random.Random(SEED))
    say(f"\nseed {SEED}, {SECONDS:.0f} s, in {tmp_path}")
    try:
        acknowledged = asyncio.run(rage(storm, SECONDS, say))
    finally:
        for number in list(storm.processes):
            storm.kill(number)
    logs, ledger = logs_of(storm), storm.ledger
    agreed, differ = compared(logs, last=max(ledger.told))
    held = Counter(sum(index in log for log in logs.values()) for index in agreed)
    told = Counter(len(set().union(*values.values())) for values in ledger.told.values())
    led = Counter(
        "JRaft" if one in JRAFT else "culm" for by in ledger.leaders.values() for one in by
    )
    say(f"{acknowledged} values acknowledged, {len(agreed)} entries compared")
    say(f"entries by how many servers still hold them: {dict(sorted(held.items()))}")
    say(f"indexes by how many servers told them: {dict(sorted(told.items()))}")
    say(f"terms led, as ours have seen it: {dict(led)}")
    say(f"JRaft's stores that were mended: {storm.mended}")
    say(f"ended by themselves: {storm.ended}")
    assert not differ
    assert not told_otherwise(ledger, agreed)
    assert all(int(ended.partition(",")[0]) in JRAFT for ended in storm.ended)
