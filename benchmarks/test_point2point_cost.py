"""The cost of an entry on the wire when a whole log is replicated.

``python -m pytest benchmarks/test_point2point_cost.py -s`` prints the table.  Costs are
counted, so they are exact and the same on every machine; the time is that of both ends and of
two stores in memory.
"""

from __future__ import annotations

import pytest

from wire_cost import bound, cost_of, log_of, replicate

PAYLOAD_SIZE = 100


@pytest.mark.benchmark(group="point2point, a whole log")
@pytest.mark.parametrize("take_size", [1 << 16, 1400], ids=["64 KiB at a time", "1400 bytes"])
@pytest.mark.parametrize("count", [1000, 10_000])
def test_an_entry_costs_what_it_has_to(benchmark, capsys, count, take_size):
    source = log_of(count, PAYLOAD_SIZE)
    store, said = benchmark.pedantic(
        replicate, args=(source,), kwargs={"take_size": take_size}, rounds=1
    )
    (log,) = source.logs()
    assert store.head(log) == source.head(log)
    cost = cost_of(count, PAYLOAD_SIZE, said)
    benchmark.extra_info |= {
        "bytes an entry": round(cost.per_entry, 3),
        "of which bymux": round(cost.bymux_per_entry, 3),
    }
    with capsys.disabled():
        print(
            f"\n{count} entries, {take_size} bytes taken at a time: {cost.per_entry:.3f} bytes an"
            f" entry besides its payload (at most {bound(PAYLOAD_SIZE)}), of which"
            f" {cost.bymux_per_entry:.3f} bymux, {cost.channels[0] / count:.3f} control channel"
        )
    assert cost.per_entry <= bound(PAYLOAD_SIZE)
    # Unavoidable: a byte for the entry and two for the packet of its payload.
    assert cost.channels[1] - cost.payload >= count * (bound(PAYLOAD_SIZE) - 1)
