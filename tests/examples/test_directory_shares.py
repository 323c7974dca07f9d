"""Several servers at once: fast ones are asked for more, and none holds up the others."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from processes import Throttle, run, serving
from trees import contents

from culm.bamboo import LogKey
from culm.point2point.replication import Want
from culm_io.programs.directory import command as replicate_directory
from culm_io.programs.directory import fetch
from culm_io.programs.directory.shares import Share, Shares

LOGS = [LogKey(bytes(32), number) for number in range(2)]
TREE: dict[str, bytes | str | None] = {
    "small": b"small",
    **{f"photos/{n}.raw": Random(n).randbytes(400_000) for n in range(4)},
}


@dataclass
class Server:
    """Sends the requested payloads one after the other, each in `pace` ticks (0: never)."""

    pace: int
    has: set[tuple[LogKey, int]]
    share: Share | None = None
    sent: int = 0
    queue: list[int] = field(default_factory=list)

    def ask(self, share: Share) -> None:
        self.share = share
        assert share.want.last is not None
        self.queue = list(range(share.want.first or 0, share.want.last + 1))


@dataclass
class Fetching:
    """A simulation of a fetch: the payloads that have arrived, and the number that came twice."""

    servers: list[Server]
    numbers: dict[LogKey, list[int]]
    gaps: dict[LogKey, list[Want]]
    twice: int = 0

    def ticks(self, most: int) -> int:
        """The ticks until everything that any server sends is here."""
        shares, here = Shares(self.numbers, self.gaps), set[tuple[LogKey, int]]()
        offered = dict.fromkeys(LOGS, 1 << 30)
        for tick in range(1, most):
            for index, server in enumerate(self.servers):
                if server.share is None:
                    server.share = shares.take(index, offered, servers=len(self.servers))
                    if server.share is not None:
                        server.ask(server.share)
                if server.share is not None and server.pace and tick % server.pace == 0:
                    self._send(server, shares, here)
                    if not server.queue:
                        server.share = None
                        shares.over(index)
            if shares.done:
                return tick
        return most

    def _send(self, server: Server, shares: Shares, here: set[tuple[LogKey, int]]) -> None:
        assert server.share is not None
        place = server.share.log, server.queue.pop(0)
        if place in server.has:
            self.twice += place in here
            here.add(place)
            shares.came(*place)


def gap(first: int, last: int) -> Want:
    return Want(first=first, last=last, payload_only=True, size_min=100)


@pytest.mark.parametrize("others", [[0], [300], [0, 0], [300, 0, 1000], [1, 0]])
def test_a_slow_server_or_a_stuck_one_holds_up_nothing(others: list[int]) -> None:
    numbers, gaps = {LOGS[0]: list(range(1, 201))}, {LOGS[0]: [gap(1, 120), gap(121, 200)]}
    has = {(LOGS[0], number) for number in numbers[LOGS[0]]}
    alone = Fetching([Server(1, has)], numbers, gaps).ticks(10_000)
    for order in (1, -1):
        servers = [Server(pace, has) for pace in [1, *others][::order]]
        fetching = Fetching(servers, numbers, gaps)
        assert fetching.ticks(10_000) <= alone + 5
        assert fetching.twice <= 5 * len(servers)


@pytest.mark.parametrize("seed", range(200))
def test_what_any_server_has_comes(seed: int) -> None:
    """Whatever the others lack, and however slow they are."""
    rng = Random(seed)
    numbers = {log: sorted(rng.sample(range(1, 60), rng.randint(1, 30))) for log in LOGS}
    gaps = {log: [gap(1, 20), gap(21, 59)] for log in LOGS}
    every = {(log, number) for log, each in numbers.items() for number in each}
    servers = [
        Server(rng.choice((0, 1, 1, 3, 10)), {place for place in every if rng.random() < 0.7})
        for _ in range(rng.randint(1, 4))
    ]
    servers.append(Server(1, every - set().union(*(each.has for each in servers if each.pace))))
    assert Fetching(servers, numbers, gaps).ticks(3000) < 3000


@pytest.fixture
def two_stores(tmp_path: Path, published: Path) -> list[Path]:
    shutil.copy(published, tmp_path / "copy.store")
    return [published, tmp_path / "copy.store"]


@pytest.mark.once
@pytest.mark.parametrize(("stuck", "size"), [(0, 0), (0, 250_000), (1, 30_000)])
def test_a_server_that_falls_silent_is_not_waited_for(
    tmp_path: Path,
    source: Path,
    two_stores: list[Path],
    stuck: int,
    size: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wherever it stops, and whether it is asked first or second: a healthy one sends it all."""
    monkeypatch.setattr(fetch, "_PATIENCE_MAX_S", 0.5)
    with serving(two_stores[0]) as well, serving(two_stores[1]) as ill, Throttle(ill, size) as slow:
        ports = [well, slow] if stuck else [slow, well]
        peers = [part for port in ports for part in ("--from", f"127.0.0.1:{port}")]
        options = ["--settle", "1.5", "--timeout", "3600"]
        target, store = tmp_path / "target", tmp_path / "fetched.store"
        command = ["fetch", "--store", str(store), "--into", str(target), *peers, *options]
        assert replicate_directory.main(command) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["code"] is None
    assert summary["entries"] == summary["head"]  # none is counted twice
    assert contents(target) == contents(source)
    assert run("check", "--store", store).status == 0
