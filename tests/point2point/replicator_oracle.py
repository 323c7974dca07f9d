"""Worlds of users with whims: weather, then calm, and what has to be true then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from random import Random
from typing import NamedTuple

from replicator_support import FETCH, KEEP, Cable, Node, check_store
from replicator_whims import Draws, Weather, WhimEnd, branches

from culm.bamboo.entry import LogKey
from culm.bamboo.links import certificate_pool
from culm.bamboo.records import NewEntry
from culm.bamboo.store import LogStore
from culm.machine import Effect
from culm.point2point import EVERYTHING, NOTIFY, payloads_up_to
from culm.point2point.replication import LogRefused, Settled, Want
from culm.signatures import Verify, verify
from culm.wire.varu64 import MAX


class Asked(NamedTuple):
    """A range asked for in the calm, of a peer with these payloads."""

    end: WhimEnd
    server: WhimEnd
    log: LogKey
    want: Want
    told: int  # before
    payloads: set[int]


class Whims:
    """One world, and what happens in it."""

    def __init__(self, seed: int, draws: Draws | None = None) -> None:
        self.draws = draws = draws or Draws.of(Random(seed))
        self.world = world = Weather(seed, draws)
        self.rng = world.whims
        for _ in range(draws.nodes):
            node = world.node()
            node.respond = partial(self._perform, node)
        self.homes: dict[tuple[int, int], Node] = {}  # of the authors of branches of logs
        self._kept: dict[Node, list[LogStore]] = {}
        self._fill()
        self._pair()
        waits = 5 * draws.progress_max_s + 40
        self.quiet = waits + 100 * bool(draws.rates)  # longer than anything is waited for

    def _perform(self, node: Node, effect: Effect[object]) -> object:
        if isinstance(effect, Verify):
            return verify(effect.signatures)
        return node.store.perform(effect)

    def _pair(self) -> None:
        nodes, shape = self.world.nodes, self.draws.shape
        pairs = list(pairwise(nodes))
        if shape == "star":
            pairs = [(nodes[0], node) for node in nodes[1:]]
        elif shape == "all":
            pairs = [(left, right) for left in nodes for right in nodes[: nodes.index(left)]]
        elif shape == "double":
            pairs += [(nodes[0], nodes[1])] * self.rng.choice((1, 2))
        self.world.pairs = [(a, b) if self.rng.random() < 0.5 else (b, a) for a, b in pairs]

    # The stores at the beginning.

    def _fill(self) -> None:
        rng, draws = self.rng, self.draws
        for number in draws.logs:
            both = draws.forks and rng.random() < 0.7
            for branch, news in enumerate(branches(number)[: 1 + both]):
                log = news[0].entry.log
                free = [node for node in self.world.nodes if node.store.newest(log) is None]
                if not free:
                    break
                home = self.homes[number, branch] = rng.choice(free)
                for node in free:
                    if node is home or rng.random() < 0.6:
                        length = rng.choice((0, 1, 2, 3, 4, 8, 13, 20))
                        self._begin(node, log, news[:length], home=node is home)

    def _begin(self, node: Node, log: LogKey, news: tuple[NewEntry, ...], *, home: bool) -> None:
        rng, store = self.rng, node.store
        if not home:
            news = news[: rng.randint(0, len(news))]
        if not news:
            return
        length = len(news)
        if not home and self.draws.gaps and rng.random() < 0.5:
            at = rng.randint(1, length)
            for seqnum in certificate_pool(at):
                if seqnum <= length:
                    new = news[seqnum - 1]
                    store.append(log, [new if seqnum == at else NewEntry(new.entry)])
            return
        store.append(log, news)
        if not self.draws.deletes or rng.random() < 0.5:
            return
        for seqnum in range(1, length + 1):
            if rng.random() < 0.4:
                store.discard_payload(log, seqnum)
        payload = news[-1].payload or b""
        if rng.random() < 0.4 and len(payload) > 1:
            store.discard_payload(log, length)
            store.write_payload(log, length, 0, payload[: rng.randrange(1, len(payload))])

    # The weather.

    def _publish(self) -> None:
        (number, branch), home = self.rng.choice(list(self.homes.items()))
        self._grow(home, branches(number)[branch], self.rng.choice((1, 1, 2, 5)))

    def _grow(self, node: Node, news: tuple[NewEntry, ...], count: int) -> None:
        """The next entries of that branch, if the store has all before them."""
        log, store = news[0].entry.log, node.store
        head, newest = store.head(log), store.newest(log)
        length = 0 if head is None else head.seqnum
        if store.fork(log) is not None or length >= len(news) or head != newest:
            return
        if head is not None and news[length - 1].entry.hash() != head.hash:
            return
        store.append(log, news[length : length + count])
        node.changed.append((None, log))

    def _copy(self) -> None:
        """Entries come to a node in another way."""
        (number, branch), home = self.rng.choice(list(self.homes.items()))
        news = branches(number)[branch]
        head = home.store.head(news[0].entry.log)
        if head is not None:
            self._grow(self._node(), news[: head.seqnum], self.rng.choice((1, 3, 40)))

    def _delete(self) -> None:
        log, node = self.world.any_log(), self._node()
        newest = node.store.newest(log)
        seqnum = self.rng.randint(1, 1 if newest is None else newest.seqnum)
        if node.store.entry(log, seqnum) is not None:
            node.store.discard_payload(log, seqnum)

    def _replicate(self) -> None:
        self._of_an_end(lambda end: end.ask(self.world.any_log(), self.world.any_want()))

    def _cut(self) -> None:
        if self.world.lines:
            self.world.break_off(self.rng.choice(sorted(self.world.lines)))

    def _kill(self) -> None:
        self.world.kill(self._node())

    def _back_up(self) -> None:
        node = self._node()
        self._kept.setdefault(node, []).append(deepcopy(node.store))

    def _restore(self) -> None:
        node = self._node()
        self.world.kill(node)
        node.store = deepcopy(self.rng.choice(self._kept.get(node) or [node.store]))

    def _fail(self) -> None:
        self._of_an_end(lambda end: setattr(end, "fails", True))

    def _close(self) -> None:
        self._of_an_end(WhimEnd.go)

    def _stall(self) -> None:
        patience = self.draws.progress_max_s
        pause = self.rng.choice((0.1, 1, 0.8 * patience, 3 * patience))
        self._of_an_end(lambda end: end.stall(self.world.now + pause))

    def _node(self) -> Node:
        return self.rng.choice(self.world.nodes)

    def _of_an_end(self, action: Callable[[WhimEnd], object]) -> None:
        ends = self.world.ends()
        if ends:
            end = self.rng.choice(ends)
            action(end)
            end.drain()

    # What happens.

    def go(self) -> None:
        world, rng, draws = self.world, self.rng, self.draws
        for index in range(len(world.pairs)):
            world.at(rng.random() * rng.choice((0, 1, draws.stay_s)), partial(world.join, index))
        for whim in draws.whims:
            world.at(rng.random() * draws.stay_s, getattr(self, f"_{whim}"))
        world.wait(draws.stay_s)
        world.wild = False
        for end in world.ends():
            end.fails = False
            end.stall(world.now)
        self._calm_down()
        if rng.random() < 0.6:
            self._ask_for_ranges()
        if rng.random() < 0.6:
            self._have_news()
        self._say_goodbye()
        if rng.random() < 0.4:
            self._fetch()
        world.stays = True
        for index in range(len(world.pairs)):
            world.join(index, KEEP, KEEP)
        self._calm_down()
        self._have_news()
        if not (draws.deletes or draws.wants or draws.gaps or draws.forks or draws.interests):
            self._check_payloads()

    def _calm_down(self) -> None:
        self.world.rest(self.quiet)
        self._check()

    def _have_news(self) -> None:
        for (number, branch), home in self.homes.items():
            self._grow(home, branches(number)[branch], 1)
        self._calm_down()

    def _say_goodbye(self) -> None:
        world = self.world
        world.stays = False
        for cable in list(world.cables):
            ends = self._ends(cable)
            for end in ends:
                end.rate = 1 << 30
            for end in self.rng.sample(ends, self.rng.choice((1, 2, 2))):
                end.go()
        world.wait(4 * self.draws.progress_max_s + 60)
        assert not world.lines, "they do not close"

    def _fetch(self) -> None:
        """One-time fetchers, one after the other."""
        for index, pair in enumerate(self.world.pairs):
            at = self.rng.randrange(2)
            server = pair[1 - at].store
            lengths = {log: offered(server, log) for log in server.logs()}
            self.world.join(index, *((FETCH, KEEP) if at == 0 else (KEEP, FETCH)))
            fetcher, other = self._ends(self.world.lines[index])[:: 1 if at == 0 else -1]
            fetcher.goes = True
            self.world.rest(self.quiet)
            assert index not in self.world.lines, "a fetcher that never goes"
            assert fetcher.of(Settled) or fetcher.code or other.code, "a fetcher that never settles"
            for log, length in lengths.items():
                told, store = fetcher.told[log], pair[at].store
                if told and not refused(told) and store.fork(log) is server.fork(log) is None:
                    assert offered(store, log) >= length, f"not all of {log.log_id} was fetched"

    def _ask_for_ranges(self) -> None:
        """Of peers whose stores stand still."""
        asked = list[Asked]()
        for cable in self.world.cables:
            for end, server in (ends := self._ends(cable)), ends[::-1]:
                for log in server.node.store.logs() if self.rng.random() < 0.6 else ():
                    asked += self._some(end, server, log)
        self._calm_down()
        for each in asked:
            self._check_asked(each)
            wants = {other.want for other in asked if other[:3] == each[:3]}
            count = sum(want.eagerness.wants_metadata for want in wants)
            told = each.end.told[each.log][each.told :]
            assert len(told) >= count, f"{each.end.name}: told {told} of {wants}"

    def _some(self, end: WhimEnd, server: WhimEnd, log: LogKey) -> list[Asked]:
        rng, store = self.rng, server.node.store
        head = store.head(log)
        if head is None or rng.random() < 0.5:
            return []
        payloads = {each.seqnum for each in store.entries(log) if each.payload_complete}
        asked, before = [], len(end.told[log])
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            first = rng.randint(1, head.seqnum)
            want = Want(
                first=first,
                last=rng.choice((first, head.seqnum, rng.randint(first, head.seqnum))),
                sparse=rng.random() < 0.3,
                payload_only=rng.random() < 0.2,
                payload_mandatory=rng.random() < 0.2,
                eagerness=rng.choice((EVERYTHING, EVERYTHING, payloads_up_to(64), NOTIFY)),
                size_max=rng.choice((MAX, MAX, 64)),
                size_min=rng.choice((0, 0, 64)),
            )
            asked.append(Asked(end, server, log, want, before, payloads))
            end.ask(log, want)
            end.drain()
        return asked

    # What has to be true.

    def _ends(self, cable: Cable) -> list[WhimEnd]:
        return [end for end in (cable.left, cable.right) if isinstance(end, WhimEnd)]

    def _check(self) -> None:
        world = self.world
        for node in world.nodes:
            check_store(node.store)
        for index in range(len(world.pairs)):
            assert index in world.lines, f"no session {index}"
            ends = self._ends(world.lines[index])
            for end in ends:
                self._check_end(end)
            if all(end.follows_all for end in ends):
                for number in self.draws.logs:
                    self._compare(ends, branches(number)[0][0].entry.log)

    def _check_end(self, end: WhimEnd) -> None:
        machine = end.machine
        assert end.open, f"{end.name} is closed"
        assert not [*end.effects, *end.answers], f"{end.name}: work for the store is left"
        assert end.rests, f"{end.name} has not settled"
        assert machine.read_ahead_size == machine.unwritten_size == 0, f"{end.name} holds data"
        for log, want, before in end.asked:
            assert len(end.told[log]) > before, f"{end.name}: not told of {want} of {log.log_id}"
        end.asked.clear()

    def _compare(self, ends: list[WhimEnd], log: LogKey) -> None:
        """What both want and may have is alike."""
        if any(log in end.own for end in ends):
            return
        stores = [end.node.store for end in ends]
        forks = [fork and fork.seqnum for fork in (store.fork(log) for store in stores)]
        assert forks[0] == forks[1], f"forks of {log.log_id} at {forks}"
        if any(log in end.given_up for end in ends):
            return
        heads = [store.head(log) for store in stores]
        lengths = [head and head.seqnum for head in heads]
        assert lengths[0] == lengths[1], f"lengths of {log.log_id}: {lengths}"
        if heads[0] is not None and heads[0] == heads[1]:
            last = [entry for store in stores if (entry := store.entry(log, heads[0].seqnum))]
            wanted = (end.interest.want or Want() for end in ends)
            begun = all(entry.payload_stored for entry in last)
            if begun and all(want.admits_payload(last[0].payload_size) for want in wanted):
                whole = [each.payload_complete for each in last]
                assert whole[0] == whole[1], f"last payloads of {log.log_id}: {whole}"

    def _check_asked(self, asked: Asked) -> None:
        """It is here, as far as the peer has it, if it is reported as such."""
        end, server, log, want, before, payloads = asked
        told, stores = end.told[log][before:], (end.node.store, server.node.store)
        if not want.eagerness.wants_metadata or refused(told) or not server.interest.offer_stored:
            return
        if any(store.fork(log) for store in stores):
            return
        assert want.first is not None
        assert want.last is not None
        for seqnum in range(want.last if want.sparse else want.first, want.last + 1):
            entry, theirs = (store.entry(log, seqnum) for store in stores)
            if theirs is None:
                continue
            if entry is None:
                assert want.payload_only, f"{end.name}: no entry {seqnum} of {want}"
                return
            if seqnum in payloads and want.admits_payload(theirs.payload_size):
                assert entry.payload_complete, f"{end.name}: no payload {seqnum} of {want}"

    def _check_payloads(self) -> None:
        for node in self.world.nodes:
            for log in node.store.logs():
                assert all(each.payload_complete for each in node.store.entries(log))


def refused(told: Sequence[object]) -> bool:
    return any(isinstance(event, LogRefused) for event in told)


def offered(store: LogStore, log: LogKey) -> int:
    """The number of entries, but for a last one of whose payload only the beginning is there."""
    head = store.head(log)
    last = None if head is None else store.entry(log, head.seqnum)
    if last is None:
        return 0
    return last.seqnum - (last.payload_begun and not last.payload_complete)
