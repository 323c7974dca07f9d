"""A deadline is over when its time has come, however its numbers round."""

from __future__ import annotations

import random

import pytest

from culm.garlic.raft import ForwardFailed, Raft, ReadFailed, Server, Stored, Timing
from culm.garlic.raft.messages import AppendRequest

SERVERS = [Server(number, f"tcp://localhost:{9000 + number}") for number in (1, 2, 3)]


def drain(core: Raft) -> bool:
    """Whether a forwarded value or a read has ended."""
    ended = False
    while True:
        while (event := core.next_event()) is not None:
            ended = ended or isinstance(event, ForwardFailed | ReadFailed)
        if (effect := core.next_effect()) is None:
            core.messages_to_send()
            return ended
        core.complete(effect.ticket, None)


def hear(core: Raft) -> None:
    """The leader shows that it is alive."""
    core.receive_message(
        AppendRequest(
            source=1,
            destination=2,
            term=1,
            previous_index=1,
            previous_term=0,
            commit_index=1,
            entries=[],
        )
    )


@pytest.mark.parametrize("verb", ["forward", "read"])
def test_what_nobody_answers_ends_at_its_deadline(verb: str) -> None:
    draw = random.Random(1)
    for seed in range(150):
        now = draw.uniform(1.75, 2.0)
        core = Raft(
            server_id=2,
            stored=Stored.founding(SERVERS),
            rng=random.Random(seed),
            now=now,
            asks_leader=True,
        )
        hear(core)
        drain(core)
        _ = core.forward([b"x"]) if verb == "forward" else core.read()
        ended = drain(core)
        while not ended:
            deadline = core.next_deadline()
            assert deadline is not None
            assert deadline > now, (seed, "still due")
            now = min(deadline, now + 0.05)
            core.advance(now)
            ended = drain(core)
            if now < deadline:
                hear(core)
                ended = drain(core) or ended


@pytest.mark.parametrize(
    "times",
    [
        {"heartbeat_interval_s": 0.0},
        {"heartbeat_interval_s": 1e-9},
        {"election_timeout_min_s": 0.0, "election_timeout_max_s": 0.0},
        {"election_timeout_min_s": 0.3, "election_timeout_max_s": 0.2},
    ],
)
def test_what_is_due_again_at_once_is_no_timing(times: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"heartbeat_interval_s|election_timeout"):
        Timing(**times)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("now", [0.0, 2.0**30])
def test_the_shortest_times_leave_nothing_due(now: float, members: int) -> None:
    timing = Timing(
        election_timeout_min_s=1e-6, election_timeout_max_s=1e-6, heartbeat_interval_s=1e-6
    )
    stored = Stored.founding(SERVERS[:members])
    core = Raft(server_id=1, stored=stored, rng=random.Random(1), now=now, timing=timing)
    for step in range(1, 50):
        core.advance(now + step)
        drain(core)
        deadline = core.next_deadline()
        assert deadline is not None
        assert deadline > now + step
