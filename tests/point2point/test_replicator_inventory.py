"""A replicator's knowledge of a stored log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from culm.bamboo.records import NewEntry
from culm.machines.sample_logs import make_log
from culm.point2point.replication import Interest
from culm.point2point.replication.log_sync import LogSync
from culm.point2point.replication.steps import EntriesStored
from culm.wire.multihash import YAMF
from stored_entries import head_of


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(1, 12), st.sampled_from(["none", "staged", "whole"])), max_size=6
        )
        | st.tuples(st.integers(1, 12), st.integers(0, 6)).map(
            lambda run: [(n, "whole") for n in range(run[0], min(13, sum(run)))]
        ),
        max_size=6,
    )
)
def test_what_is_stored_counts_whatever_the_batches(batches: list[list[tuple[int, str]]]) -> None:
    """Gaps, repeated entries, and empty batches."""
    log = make_log(YAMF)
    known = LogSync.of(log[0].entry.log, Interest(), family=YAMF)
    position = newest = 0
    due = False
    for batch in batches:
        news = [
            NewEntry(
                log[n - 1].entry, None if kind == "none" else log[n - 1].payload, kind == "staged"
            )
            for n, kind in batch
        ]
        before = known, vars(known).copy()
        known, _ = known.step(EntriesStored(news, 0))
        assert vars(before[0]) == before[1]
        for n, kind in batch:
            newest = max(newest, n)
            if n == position + 1:
                position, due = n, kind == "staged"
            elif n == position and kind == "whole":
                due = False
        assert (known.position, known.newest) == (position, newest)
        assert known.payload_due == due
        assert known.head == (head_of(log[position - 1]) if position else None)
