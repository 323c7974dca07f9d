"""Replicators whose users have whims: what may come together is drawn together.

Sessions between two to four stores, one beside and after the other; users who want anything, and
something else a moment later; low limits, slow lines, slow stores that fail, logs with gaps, with
forks, with an end, without payloads.  After that it is calm, and then all that is promised holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from random import Random

from replicator_support import KEEP, Cable, End, Node, World, news_of

from culm.bamboo.entry import LogKey
from culm.bamboo.records import NewEntry
from culm.machine import Closed, Event
from culm.point2point import EVERYTHING, NOTIFY, Limits, Mode, Setup, payloads_up_to
from culm.point2point.errors import ErrorCode
from culm.point2point.replication import (
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
    Replicator,
    ReplicatorLimits,
    Settled,
    Timing,
    Want,
)
from culm.wire.varu64 import MAX

LENGTH = 24  # entries of a log, at most
_SIZES = ((0, 1, 2, 5, 10), (0, 1, 63, 64, 65, 128, 257), (0, 5, 100, 300, 700), (1, 3, 64, 200))
_ENDS = {1: 3, 4: 8, 6: 18}  # the last entries of the logs that end
_IMPATIENT = (ErrorCode.PEER_SILENT, ErrorCode.PEER_STALLED)


@cache
def branches(number: int) -> tuple[tuple[NewEntry, ...], ...]:
    """Both branches of a log that its author may have forked."""
    rng = Random(number)
    sizes = rng.choices(_SIZES[number % len(_SIZES)], k=_ENDS.get(number, LENGTH))
    fork_at, ended = rng.choice((1, 2, 5, 9)), number in _ENDS
    return tuple(
        news_of(tuple(sizes), log_id=number, branch=branch, fork_at=fork_at, ended=ended)
        for branch in (b"", b"other")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """A kind of world: what may happen in it.

    `stay_s`: how long the weather lasts; `store_s`: what the store takes for an effect, at most;
    `rates`: bytes a second of a line, and of the other; `whims`: what happens, at any times.
    """

    nodes: int
    shape: str
    logs: tuple[int, ...]
    whims: tuple[str, ...]
    stay_s: float
    settle_s: float
    progress_max_s: float
    latency: float
    store_s: float
    late: bool
    capacity: int
    rates: tuple[int, ...]
    tight: bool
    alike: bool
    greedy: bool
    forks: bool
    gaps: bool
    deletes: bool
    interests: bool
    wants: bool

    @classmethod
    def of(cls, rng: Random) -> Draws:
        def chance(probability: float) -> bool:
            return rng.random() < probability

        deletes, wants = chance(0.5), chance(0.75)
        kinds = ["publish"] * 4 + ["replicate"] * 8 * wants + ["delete"] * 2 * deletes
        trouble = ["cut", "kill", "restore", "fail", "close", "stall", "stall", "copy", "back_up"]
        kinds += rng.sample(trouble, rng.randrange(1, 6)) if chance(0.6) else ["stall"]
        slow = chance(0.2)
        return cls(
            nodes=rng.choice((2, 2, 2, 2, 3, 4)),
            shape=rng.choice(("chain", "star", "all", "double", "double")),
            logs=tuple(rng.sample(range(7), rng.choice((1, 1, 2, 3, 5)))),
            whims=tuple(rng.choices(kinds, k=rng.choice((0, 3, 10, 30)))),
            stay_s=rng.choice((1, 10, 60, 200)),
            settle_s=rng.choice((0.0, 0.0, 0.5, 3)),
            progress_max_s=rng.choice((5, 20)),
            latency=rng.choice((0.0, 0.0, 0.02, 0.3)),
            store_s=rng.choice((0.0, 0.0, 0.0, 0.01, 0.1)),
            late=chance(0.4),
            capacity=rng.choice((1 << 20, 1 << 20, 3000, 300)),
            rates=(100, 1000, 1 << 30) if slow else (),
            tight=chance(0.75),
            alike=chance(0.4),
            greedy=chance(0.2),
            forks=chance(0.3),
            gaps=chance(0.4),
            deletes=deletes,
            interests=chance(0.5),
            wants=wants,
        )


def few_limits(rng: Random, tight: bool) -> ReplicatorLimits:
    def some(*small: int, usual: int) -> int:
        return rng.choice(small) if tight and rng.random() < 0.45 else usual

    packet_size_max = some(64, 100, 1000, usual=1 << 18)
    return ReplicatorLimits(
        connection=Limits(
            data_window_max=some(64, 100, 300, 2000, usual=1 << 20),
            packet_size_max=packet_size_max,
            unsent_size_max=some(1, 64, 500, usual=1 << 18),
            requests_max=some(1, 1, 2, 3, usual=256),
            request_adjustments_max=some(2, 3, usual=64),
            dropped_max=some(1, 2, usual=256),
            compression_window_max=some(0, 1, 64, usual=1 << 16),
        ),
        unwritten_size_max=some(1, 100, 1000, usual=1 << 23),
        read_ahead_size_max=some(30, 100, 1000, usual=1 << 23),
        batch_size_max=some(30, 100, usual=1 << 20),
        batch_count_max=some(1, 2, usual=512),
        payload_inline_max=max(packet_size_max, some(64, 300, usual=1 << 18)),
        logs_max=some(1, 1, 2, 3, usual=10_000),
        outstanding_max=some(1, 2, 3, usual=4096),
        verifying_max=some(1, 2, usual=0),
    )


def any_want(rng: Random) -> Want:
    """Of every eagerness and size; mostly a range."""
    first = rng.choice((None, None, 1, 1, 2, 4, 5, 9, rng.randint(1, LENGTH)))
    last = rng.choice((None, first, first, 1, 5, 13, 40, rng.randint(1, LENGTH)))
    if first is None or (last is not None and last < first):
        last = None
    eager = (EVERYTHING, EVERYTHING, NOTIFY, payloads_up_to(rng.choice((0, 1, 64, 1000))))
    return Want(
        first=first,
        last=last,
        sparse=last is not None and rng.random() < 0.3,
        payload_only=first is not None and rng.random() < 0.3,
        eagerness=rng.choice(eager),
        payload_mandatory=rng.random() < 0.2,
        size_min=rng.choice((0, 0, 0, 0, 1, 64)),
        size_max=rng.choice((MAX, MAX, MAX, 0, 64, 300)),
    )


def any_interest(rng: Random) -> Interest:
    wants = (None, Want(), *[Want(eagerness=NOTIFY)] * 2, Want(eagerness=payloads_up_to(64)))
    wants += (Want(payload_mandatory=True), Want(size_max=rng.choice((0, 64, 1000))))
    return Interest(
        live=rng.random() < 0.7,
        accept_new_logs=rng.random() < 0.7,
        offer_stored=rng.random() < 0.8,
        want=rng.choice(wants),
    )


class WhimEnd(End):
    """An end of a slow line, and what its user has asked for and been told."""

    world: Weather

    def __init__(self, node: Node, machine: Replicator) -> None:
        super().__init__(node, machine)
        assert isinstance(node.world, Weather)
        self.world = node.world
        self.interest = node.interest
        self.rate = self.world.any_rate()
        self.told: dict[LogKey, list[LogSynced | LogRefused]] = defaultdict(list)
        self.asked: list[tuple[LogKey, Want, int]] = []  # ranges, and how much was told before
        self.own: set[LogKey] = set()  # logs for which there was a wish of its own
        self.asked_payloads: set[LogKey] = set()  # without the entries
        self.rests = False  # settled, and nothing since
        self.fails = False  # the store, at the next effect
        self.goes = False  # once it has settled
        self.stalled_until = 0.0

    @property
    def name(self) -> str:
        return f"a session of node {self.world.nodes.index(self.node)}"

    @property
    def follows_all(self) -> bool:
        """Whether every log is to be here, but for payloads."""
        interest, want = self.interest, self.interest.want
        if want is None or want.payload_mandatory or not want.eagerness.wants_metadata:
            return False
        return interest.live and interest.accept_new_logs

    @property
    def is_astray(self) -> bool:
        """Whether payloads alone have come, of a branch other than ours; neither knew of that."""
        blamed = [event.log for event in self.events if isinstance(event, LogRefused)][-1:]
        return self.world.draws.forks and any(log in self.asked_payloads for log in blamed)

    @property
    def given_up(self) -> set[LogKey]:
        """Logs of which the user has been told that the peer does not go on."""
        return {
            log
            for log, told in self.told.items()
            for event in told
            if isinstance(event, LogRefused) and event.reason is event.fault is None
        }

    def ask(self, log: LogKey, want: Want | None) -> None:
        self.rests = False
        if want in (None, Want()):
            self.own.discard(log)
        elif not want.is_range:
            self.own.add(log)
        elif want.last is not None and want.eagerness.wants_metadata:
            self.asked.append((log, want, len(self.told[log])))
        if want is not None and want.payload_only:
            self.asked_payloads.add(log)
        self.machine.replicate(log, want)

    def go(self) -> None:
        if self.open:
            self.machine.close()
            self.drain()

    def perform(self) -> None:
        self.world.works(self.node)
        if self.fails:
            self.fails = False
            self.answers.append((self.effects.popleft(), OSError("disk")))
        else:
            super().perform()

    def stall(self, until: float) -> None:
        """Nothing that it has sent arrives before that."""
        self.stalled_until = until
        self.line = type(self.line)((max(time, until), data) for time, data in self.line)

    def _take(self, event: Event) -> None:
        super()._take(event)
        self.world.happened()
        match event:
            case Settled():
                self.rests = True
                if self.goes:
                    self.world.at(self.world.now, self.go)
            case LogSynced() | LogRefused():
                self.told[event.log].append(event)
            case LogOffered() | LogEnded():
                pass
            case Closed():
                self.world.has_closed(self)
            case _:
                self.rests = False
        self.world.may_ask(self)

    def _send(self) -> bool:
        world, line = self.world, self.line
        capacity = min(world.capacity, self.rate * 3 // 2)
        room = capacity - len(self.out) - sum(len(data) for _, data in line)
        if self.ended or room <= 0:
            return False
        data = self.machine.data_to_send(min(room, world.take_size() or room))
        arrives = max(world.now + world.any_latency(), self.stalled_until)
        if line:
            arrives = max(arrives, line[-1][0])
        if data:
            line.append((arrives + (len(data) / self.rate if self.rate < 1 << 30 else 0), data))
            self.sent_size += len(data)
        self.land()
        return bool(data)


class Weather(World):
    """Sessions that break and are made anew, and stores that take their time."""

    end_type = WhimEnd

    def __init__(self, seed: int, draws: Draws) -> None:
        rng = Random(seed + 1)
        super().__init__(
            chunker=lambda size: rng.choice((size, size, size, 100, 7)),
            rng=rng,
            capacity=draws.capacity,
            take_size=rng.choice((lambda: None, lambda: 300, lambda: rng.choice((7, 100, 4000)))),
            steps_max=50_000,
            late=draws.late,
        )
        self.draws = draws
        self.whims = Random(seed)
        self.pairs: list[tuple[Node, Node]] = []
        self.lines: dict[int, Cable] = {}  # by the index of their pair
        self.wild = True
        self.stays = True  # lines that break are made anew
        self.active = 0.0  # the last time at which something has happened,
        self.carried_by_then = 0  # and the bytes by then
        self._free_at: dict[Node, float] = {}
        self._base = [few_limits(self.whims, draws.tight) for _ in range(2)]

    # Chance.

    def any_rate(self) -> int:
        return self.whims.choice(self.draws.rates or (1 << 30,))

    def any_latency(self) -> float:
        assert self.rng is not None
        return self.draws.latency and self.rng.random() * self.draws.latency

    def may_ask(self, end: WhimEnd) -> None:
        """The user may want something as soon as he is told of something."""
        rng = self.whims
        if self.wild and self.draws.wants and rng.random() < 0.03 and end.open:
            end.ask(self.any_log(), self.any_want())

    def any_log(self) -> LogKey:
        return branches(self.whims.choice(self.draws.logs))[0][0].entry.log

    def any_want(self) -> Want | None:
        return any_want(self.whims) if self.whims.random() < 0.9 else None

    # Time.

    def happened(self) -> None:
        self.active, self.carried_by_then = self.now, self.carried

    def works(self, node: Node) -> None:
        self.happened()
        assert self.rng is not None
        if self.draws.store_s and self.rng.random() < 0.5:
            self._free_at[node] = self.now + self.rng.random() * self.draws.store_s
            self.at(self._free_at[node], lambda: None)

    def moves(self) -> Iterator[Callable[[], object]]:
        for node in self.nodes:
            node.paused = self._free_at.get(node, 0.0) > self.now
        return super().moves()

    def rest(self, quiet: float) -> None:
        """Wait until nothing has happened for so long; everything comes to rest."""
        self.happened()
        until = self.now + 100 * self.draws.progress_max_s + 1000
        while self.now < self.active + quiet:
            assert self.now < until, f"something happens for ever: {self.last_events()}"
            self.wait(self.active + quiet - self.now)
        said = self.carried - self.carried_by_then
        assert said < 300 * len(self.cables) + 1, f"{said} bytes without anything new"

    def last_events(self) -> list[object]:
        return [end.events[-3:] for node in self.nodes for end in node.ends if end.closed is None]

    # Sessions.

    def ends(self) -> list[WhimEnd]:
        found = [end for cable in self.cables for end in (cable.left, cable.right) if end.open]
        return [end for end in found if isinstance(end, WhimEnd)]

    def join(self, index: int, *interests: Interest) -> None:
        """Make that connection, with the interests of both, or any."""
        if index in self.lines:
            return
        rng, draws = self.whims, self.draws
        for node, interest in zip(self.pairs[index], interests or (None, None), strict=True):
            node.ends = [end for end in node.ends if end.closed is None or end.effects]
            usual = not draws.interests or rng.random() < 0.4
            node.interest = interest or (KEEP if usual else any_interest(rng))
            node.limits = rng.choice(self._base) if draws.alike else few_limits(rng, draws.tight)
            modes = [rng.choice((Mode.SAFE, Mode.GREEDY)) for _ in range(2)]
            window = rng.choice((0, 64, 65536))
            node.setup = Setup(
                send_window_max=window,
                receive_window_max=window,
                send_mode=modes[0] if draws.greedy else Mode.SAFE,
                receive_mode=modes[1] if draws.greedy else Mode.SAFE,
            )
            node.timing = Timing(
                idle_timeout_s=rng.choice((6, 30)),
                keepalive_s=rng.choice((10, 30, 30)),
                progress_max_s=draws.progress_max_s,
                settle_s=draws.settle_s,
            )
        self.lines[index] = self.connect(*self.pairs[index])

    def has_closed(self, end: WhimEnd) -> None:
        for index, cable in self.lines.items():
            if end in (cable.left, cable.right):
                self.at(self.now + 0.1, partial(self._replace, index, cable))
        weather = self.now < self.draws.stay_s + 6 * self.draws.progress_max_s
        impatient = end.code in _IMPATIENT and (weather or self.draws.rates)
        broken = end.code is ErrorCode.UNEXPECTED_EOF and (end.cut or end.eof_given)
        assert end.code is None or impatient or broken or end.is_astray, end.closed

    def _replace(self, index: int, cable: Cable) -> None:
        """A connection has ended, at one end at least."""
        if self.lines.get(index) is not cable:
            return
        if not cable.over:
            for end in (cable.left, cable.right):
                if end.eof_given and not end.effects and not end.answers:
                    end.go()
            self.at(self.now + 1, partial(self._replace, index, cable))
            return
        del self.lines[index]
        self.cables.remove(cable)
        self.come_back(index)

    def come_back(self, index: int) -> None:
        if self.stays:
            self.at(self.now + self.whims.choice((0.1, 1, 5)), partial(self.join, index))

    def break_off(self, index: int) -> None:
        self.cut(self.lines.pop(index))
        self.come_back(index)

    def kill(self, node: Node) -> None:
        """All that it was doing is lost, but for its store."""
        for index, cable in list(self.lines.items()):
            if node in (cable.left.node, cable.right.node):
                self.break_off(index)
        node.ends.clear()
        node.changed.clear()
