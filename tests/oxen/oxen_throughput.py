"""The speed of messages to a peer: over lossy paths, and beside other traffic.

``python tests/oxen/oxen_throughput.py`` prints the remaining speed at each rate of loss, in virtual
time: the same on every machine.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import median
from typing import Any

from oxen_simulation import EPOCH

from culm.machine import LocalProtocolError
from culm.oxen import ErrorCode, MessageReceived, Node, PeerState, SendFailed
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network


class Bottleneck(Network):
    """A network on which all senders in `shared` have one queue in common.

    rate: datagrams a second; room: the longest queue; further datagrams are lost.
    """

    def __init__(self, *, seed: int, conditions: Conditions, rate: float, room: int) -> None:
        super().__init__(seed=seed, conditions=conditions)
        self.shared: set[Hashable] = set()
        self.passed: dict[Hashable, int] = {}
        self.refused: dict[Hashable, int] = {}
        self._interval = 1 / rate
        self._room = room
        self._free = 0.0

    def send(self, source: Hashable, destination: Hashable, payload: Any) -> None:
        if source not in self.shared:
            super().send(source, destination, payload)
            return
        start = max(self._free, self.clock.now)
        if start - self.clock.now > self._room * self._interval:
            self.refused[source] = self.refused.get(source, 0) + 1
            return
        self.passed[source] = self.passed.get(source, 0) + 1
        self._free = start + self._interval
        self.timetable.at(
            self._free, lambda: super(Bottleneck, self).send(source, destination, payload)
        )


class Reno:
    """Another program's traffic: a plain TCP, as RFC 5681 has it, without a limit of its own."""

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.ends = (name + " sender", name + " receiver")
        self.arrived = 0
        self._window, self._threshold = 10.0, 1e9
        self._next = 0
        self._under_way: dict[int, float] = {}
        self._recover = 0
        network.attach(self.ends[1], self._acknowledge)
        network.attach(self.ends[0], self._hear)

    def start(self) -> None:
        self._fill()
        self._watch()

    def _acknowledge(self, number: Any, source: Hashable) -> None:
        self.arrived += 1
        self.network.send(self.ends[1], self.ends[0], number)

    def _hear(self, payload: Any, source: Hashable) -> None:
        number = int(payload)
        if self._under_way.pop(number, None) is None:
            return
        self._window += 1 if self._window < self._threshold else 1 / self._window
        missing = [other for other in self._under_way if other < number - 3]
        if missing:
            for other in missing:
                del self._under_way[other]
            if number > self._recover:
                self._threshold = self._window = max(2.0, self._window / 2)
                self._recover = self._next
        self._fill()

    def _fill(self) -> None:
        while len(self._under_way) < self._window:
            self._next += 1
            self._under_way[self._next] = self.network.clock.now
            self.network.send(self.ends[0], self.ends[1], b"%d" % self._next)

    def _watch(self) -> None:
        """The retransmission timer, roughly."""
        if self._under_way and self.network.clock.now - min(self._under_way.values()) > 1.0:
            self._under_way.clear()
            self._threshold, self._window = max(2.0, self._window / 2), 1.0
            self._fill()
        self.network.timetable.after(0.1, self._watch)


class Pair:
    """A sender that always has something to say to its receiver, in order."""

    def __init__(self, network: Network, names: Sequence[bytes]) -> None:
        self.network = network
        self.names = names
        self.cluster = Cluster(network, on_event=self._note)
        self.arrived = 0
        self.failed = 0
        self._left = 0
        self._next = 0
        for sid in names:
            self.cluster.add(sid, self._build)
        self.sender, self.receiver = (self.cluster[sid] for sid in names)
        self.receiver.call("start")
        self.sender.call("join", sid=names[1])
        for _ in range(600):
            if any(v.state is PeerState.JOINED for v in self.sender.machine.peers().values()):
                break
            network.run(network.clock.now + 0.1)

    def start(self, count: int) -> None:
        """Begin to send `count` messages."""
        self._left = count
        self._fill()

    def seconds_for(self, count: int) -> float:
        """The time until `count` messages have arrived."""
        begin, before = self.network.clock.now, self.arrived
        self.start(count)
        assert self.network.run(begin + 2000.0, done=lambda: self.arrived == before + count)
        assert self.failed == 0
        return self.network.clock.now - begin

    def _build(self, host: Host) -> Node:
        assert isinstance(host.address, bytes)
        return Node(me=host.address, rng=self.network.random(repr(host.address)), epoch=EPOCH)

    def _note(self, host: Host, event: object) -> None:
        if isinstance(event, MessageReceived):
            assert event.data == b"%d" % self.arrived
            self.arrived += 1
        elif isinstance(event, SendFailed):
            self.failed += 1
        if host is self.cluster.nodes.get(self.names[0]) and self._left:
            host.after(0.0, self._fill)

    def _fill(self) -> None:
        while self._left:
            try:
                self.sender.call("send_in_order", to=self.names[1], data=b"%d" % self._next)
            except LocalProtocolError as error:
                if error.code is not ErrorCode.QUEUE_FULL:
                    raise
                return
            self._next += 1
            self._left -= 1


def rate(
    loss: float, count: int, *, seed: int = 1, delays: tuple[float, float] = (0.01, 0.02)
) -> float:
    """Messages a second, in order, from one node to another over a lossy path."""
    network = Network(seed=seed, conditions=Conditions(delay_min=delays[0], delay_max=delays[1]))
    pair = Pair(network, [b"A", b"B"])
    network.set_conditions(Conditions(loss=loss, delay_min=delays[0], delay_max=delays[1]))
    return count / pair.seconds_for(count)


def rates_by_loss() -> dict[float, int]:
    """Messages a second by the share of lost datagrams: the median of three seeds."""
    return {
        loss: round(median(rate(loss, 3000, seed=seed) for seed in range(3)))
        for loss in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
    }


if __name__ == "__main__":
    for loss, found in rates_by_loss().items():
        print(f"{loss:.0%} lost: {found:,} messages a second")
