"""Replicators over one store, each with a peer that acts at random, and what has to be true then.

Others write into the store, which takes its time, and users want anything.  In the end the peers
fall silent, and what is promised holds all the same.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from replicator_support import End, Node, World, check_store, key_of
from replicator_whims import LENGTH, any_interest, any_want, few_limits
from replicator_wilful import Draws, Peer, PeerNode, branches

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import find_fork
from culm.bamboo.links import lower_pool
from culm.bamboo.records import NewEntry, StoreError
from culm.machine import Effect, Event
from culm.point2point import ErrorCode, Mode, Setup
from culm.point2point.replication import (
    EntryStored,
    LogRefused,
    LogSynced,
    Replicator,
    Timing,
    Want,
)
from culm.signatures import with_signatures

_NO_BLAME = (None, ErrorCode.PEER_SILENT, ErrorCode.PEER_STALLED, ErrorCode.UNEXPECTED_EOF)
_EVENTS_MAX = 20_000  # of a session; more have no end


class Tried(End):
    """A replicator, and the ranges that its user has asked for."""

    def __init__(self, node: Node, machine: Replicator) -> None:
        super().__init__(node, machine)
        self.asked: list[tuple[LogKey, Want, int]] = []  # with the number of events before
        self.performed = 0  # effects

    def perform(self) -> None:
        self.performed += 1
        super().perform()

    def ask(self, log: LogKey, want: Want | None) -> None:
        if want and want.last is not None and want.eagerness.wants_metadata:
            self.asked.append((log, want, len(self.events)))
        self.machine.replicate(log, want)

    def untold(self) -> list[Want]:
        """Ranges of which it has not said that they are over, or do not come as a whole."""
        return [
            want
            for log, want, before in self.asked
            if not any(_tells(event, log, want) for event in self.events[before:])
        ]

    def _take(self, event: Event) -> None:
        super()._take(event)
        assert len(self.events) < _EVENTS_MAX, f"events for ever: {self.events[-3:]}"
        if isinstance(event, EntryStored):
            fork = self.node.store.fork(event.log)
            gone = fork is not None and fork.seqnum <= event.seqnum
            assert gone or self.node.store.entry(event.log, event.seqnum), f"not there: {event}"


def _tells(event: Event, log: LogKey, want: Want) -> bool:
    if isinstance(event, LogSynced):
        return event.log == log and event.seqnum == want.last
    return isinstance(event, LogRefused) and event.log == log


class Wilful(World):
    """One store, its replicators, and their peers."""

    end_type = Tried

    def __init__(self, seed: int, draws: Draws | None = None) -> None:
        self.draws = draws = draws or Draws.of(Random(seed))
        self.whims = Random(seed + 1)
        self.chance = Random(seed + 2)
        super().__init__(
            chunker=lambda size: self.chance.choice((1, 20, 300, size)),
            rng=self.chance,
            late=draws.late,
            take_size=lambda: self.chance.choice((None, None, 30)),
        )
        logs = [branches(number, forks) for number, forks in enumerate(draws.forks)]
        self.logs = {key_of(each[0]): each for each in logs}
        self.kept = self.node()
        self.kept.respond = self._perform
        self._answer_of_store = with_signatures(self.kept.store.perform)
        for log in self.logs:
            self._fill(log)
        pairs = [self._connect() for _ in range(draws.sessions)]
        self.tried = [end for pair in pairs for end in pair if isinstance(end, Tried)]
        self.peers = [end for pair in pairs for end in pair if isinstance(end, Peer)]

    def _perform(self, effect: Effect[object]) -> object:
        if self.whims.random() < self.draws.fails:
            raise OSError("disk")
        return self._answer_of_store(effect)

    # The beginning.

    def _fill(self, log: LogKey) -> None:
        """The store has the beginning of a branch, perhaps with gaps."""
        rng, store = self.whims, self.kept.store
        news = rng.choice((self.logs[log][0], rng.choice(self.logs[log])))
        length = rng.choice((0, 1, rng.randint(0, LENGTH), rng.randint(0, LENGTH), LENGTH))
        pool = lower_pool(rng.randint(1, LENGTH))[: rng.choice((0, 0, 9))]
        there = {*range(1, length + 1), *pool}
        gaps = rng.random() < 0.4
        for seqnum in sorted(there):
            new = news[seqnum - 1]
            store.append(log, [NewEntry(new.entry) if gaps and rng.random() < 0.4 else new])
        payload = news[length - 1].payload or b""
        if length and gaps and rng.random() < 0.5 and len(payload) > 1:
            store.discard_payload(log, length)
            store.write_payload(log, length, 0, payload[: rng.randrange(1, len(payload))])

    def _connect(self) -> tuple[End, End]:
        rng, draws = self.whims, self.draws
        other = PeerNode(self, draws, self.logs, rng)
        if draws.clocks:
            self.nodes.append(other)
        modes = [rng.choice((Mode.SAFE, Mode.GREEDY)) if draws.greedy else Mode.SAFE for _ in "12"]
        for node, (send, receive) in ((self.kept, modes), (other, modes[::-1])):
            node.setup = Setup(send_mode=send, receive_mode=receive)
            node.interest = any_interest(rng)
            node.limits = few_limits(rng, draws.tight)
            node.timing = Timing(progress_max_s=draws.progress_max_s)
        pair = [self.kept, other] if rng.random() < 0.5 else [other, self.kept]
        cable = self.connect(pair[0], pair[1])
        return cable.left, cable.right

    # What happens.

    def go(self) -> None:
        for _ in range(self.draws.steps):
            self._happen()
        self._calm_down()
        self._say_goodbye()
        check_store(self.kept.store)

    def _happen(self) -> None:
        chance = self.whims.random()
        if chance < 0.45:
            self.whims.choice(self.peers).act()
        elif chance < 0.94:
            self.run(1)
        elif chance < 0.955:
            self._pass_time()
        elif chance < 0.98:
            self._ask()
        elif chance < 0.9995:
            self._write()
        else:
            self._close()

    def _pass_time(self) -> None:
        self.now += self.whims.choice((0.01, 0.2, 0.6, 3, 10))
        for end in (end for node in self.nodes for end in node.ends if end.closed is None):
            end.machine.advance(self.now)
            end.drain()

    def _ask(self) -> None:
        rng = self.whims
        end = rng.choice(self.tried)
        if end.open:
            end.ask(rng.choice(list(self.logs)), any_want(rng) if rng.random() < 0.9 else None)
            end.drain()

    def _close(self) -> None:
        end = self.whims.choice([*self.tried, *self.peers])
        if end.open:
            end.machine.close()
            end.drain()

    def _write(self) -> None:
        """Another writer changes the store, or a user deletes a payload."""
        rng, store = self.whims, self.kept.store
        log = rng.choice(list(self.logs))
        entries = store.entries(log)
        match rng.choice(("append", "append", "fork", "delete")):
            case "append":
                self._append(log, rng.choice((1, 3)))
            case "fork" if rng.random() < 0.3:
                at = rng.randrange(LENGTH)
                one, other = rng.sample(self.logs[log], 2)
                if fork := find_fork(one[at].entry, other[at].entry):
                    store.add_fork(log, fork)
                    self.kept.changed.append((None, log))
            case "delete" if entries:
                store.discard_payload(log, rng.choice(entries).seqnum)

    def _append(self, log: LogKey, count: int) -> None:
        """The next entries of a branch of which the store has all before them."""
        store, head = self.kept.store, self.kept.store.head(log)
        length = 0 if head is None else head.seqnum
        for news in self.logs[log] if length < LENGTH and store.fork(log) is None else ():
            if head is None or news[length - 1].entry.hash() == head.hash:
                with suppress(StoreError):
                    store.append(log, news[length : length + count])
                    self.kept.changed.append((None, log))
                return

    # What has to be true.

    def _calm_down(self) -> None:
        """The peers do nothing more, and everything comes to rest.

        A range for which the peer gives no credit waits, though, for what it keeps the credit for.
        """
        asked = sum(len(end.asked) for end in self.tried)
        self.wait(2.5 * self.draws.progress_max_s * (8 + 2 * asked) + 200)
        before = [(end.sent_size, end.performed, len(end.events)) for end in self.tried]
        self.wait(600)
        for end, peer, (sent, performed, told) in zip(self.tried, self.peers, before, strict=True):
            assert end.sent_size <= sent + 400, f"{end.sent_size - sent} bytes at rest"
            assert end.performed <= performed + 20, f"{end.performed - performed} effects at rest"
            assert len(end.events) <= told + 6, f"at rest: {end.events[told:]}"
            waits = not (end.settled or end.machine.connection.proposal_credit)
            if end.open and peer.closed is None and not waits:
                assert not end.untold(), f"not told of {end.untold()}"

    def _say_goodbye(self) -> None:
        for end in self.tried:
            if end.closed is None:
                assert not end.eof_given, "it does not close"
                end.machine.receive_eof()
                end.drain()
        self.run()
        forked = any(at <= LENGTH for forks in self.draws.forks for at in forks)
        for end in self.tried:
            assert end.closed is not None, "it does not close"
            assert forked or end.code in _NO_BLAME, f"a peer is to blame for nothing: {end.closed}"
