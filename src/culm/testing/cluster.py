"""Many datagram machines on one faulty network, with crashes, restarts and slow stores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from culm.machine import DatagramMachine, Effect, Event
from culm.machines import Config, Verb
from culm.machines.driver import Driver, EndlessError, Turn
from culm.machines.operations import Advance, Call, Complete, Operation, ReceiveDatagram
from culm.machines.plain import JSON
from culm.testing.clock import SkewedClock
from culm.testing.disk import Disk
from culm.testing.network import Network
from culm.testing.spec import Conversation

Address = Hashable


class Host:
    """One address: a machine that may crash and be built again, and the data that outlive it.

    events: (true time, event) of all its lives.
    turns: all turns of the present life, if the cluster records.
    disk: outlives crashes, except for unsynced writes.
    incarnation: number of lives that it has begun.
    """

    def __init__(
        self,
        cluster: Cluster,
        address: Address,
        build: Callable[[Host], DatagramMachine],
        *,
        verbs: Mapping[str, Verb] | None,
        effects: Callable[[Host, Effect[Any]], None] | None,
        clock: SkewedClock,
        disk: Disk | None,
    ) -> None:
        self.address = address
        self.disk = disk
        self.events: list[tuple[float, Event]] = []
        self.turns: list[Turn] = []
        self.incarnation = 0
        self._cluster = cluster
        self._build = build
        self._verbs = verbs
        self._effects = effects
        self._clock = clock
        self._driver: Driver | None = None
        self._told = float("-inf")  # the local time that the machine knows
        self._deadline: float | None = None  # after the latest turn
        self._alarm: float | None = None  # the deadline for which a wake-up is entered
        self._queue: deque[Operation] = deque()
        self._busy = False

    @property
    def running(self) -> bool:
        """Whether it is up."""
        return self._driver is not None

    @property
    def machine(self) -> Any:
        """The machine of the present life.  Raises `LookupError` if it is down."""
        return self._up().machine

    @property
    def now(self) -> float:
        """The time that the node's own clock shows, in seconds."""
        return max(self._told, self._clock.local(self._cluster.network.clock.now))

    def call(self, method: str, /, **args: object) -> JSON:
        """Call a verb of the machine; returns its result as plain data.

        Raises `LocalProtocolError` if the machine refuses, `LookupError` if it is down.
        """
        self._up()
        turn = self._run(*self._time(), Call(method, args))
        if turn is not None and turn.error is not None:
            raise turn.error
        return None if turn is None else turn.result

    def complete(self, ticket: int, result: object = None) -> None:
        """Answer an effect."""
        self._enter(Complete(ticket, result))

    def after(self, delay: float, action: Callable[[], object]) -> None:
        """Call `action` in `delay` true seconds, unless this life is over by then."""
        life = self.incarnation
        self._cluster.network.timetable.after(
            delay, lambda: action() if self.running and self.incarnation == life else None
        )

    def start(self) -> None:
        """Begin a life; has no effect if it is up."""
        if self._driver is not None:
            return
        self.incarnation += 1
        self.turns = []
        self._told = float("-inf")
        self._alarm = None
        self._deadline = float("-inf")
        self._driver = Driver(self._build(self), verbs=self._verbs)
        self._cluster.network.attach(
            self.address, lambda payload, source: self._enter(ReceiveDatagram(payload, source))
        )
        self._run(None, *self._time())

    def crash(self) -> None:
        """End a life without warning; datagrams on their way and unsynced writes are at risk."""
        if self._driver is None:
            return
        self._driver = None
        self._queue.clear()
        self._cluster.network.detach(self.address)
        if self.disk is not None:
            self.disk.crash()

    def conversation(self, name: str, config: Config) -> Conversation:
        """The present life so far, as a conversation with a machine built from `config`."""
        return Conversation(
            name=name,
            config=config,
            operations=[turn.operation for turn in self.turns if turn.operation is not None],
        )

    def _up(self) -> Driver:
        if self._driver is None:
            raise LookupError(f"node {self.address!r} is down")
        return self._driver

    def _enter(self, operation: Operation) -> None:
        """Do `operation`, or queue it if the machine is in the middle of a turn."""
        if self._busy:
            self._queue.append(operation)
        elif self._driver is not None:
            self._run(*self._time(), operation)

    def _time(self) -> list[Operation]:
        """The operation that tells the machine the time, if it does not know it yet.

        Empty if nothing is due: then the machine is told here, and the next turn has the results.
        """
        now, driver = self.now, self._up()
        if not driver.is_timed or now == self._told:
            return []
        self._told = now
        if self._cluster.records or (self._deadline is not None and self._deadline <= now):
            return [Advance(now)]
        driver.apply(Advance(now))
        return []

    def _run(self, *operations: Operation | None) -> Turn | None:
        """Do the operations (``None``: just drain) and those queued meanwhile.

        Returns the turn of the last one; ``None`` if the node crashed before it.
        """
        outermost, self._busy = not self._busy, True
        turn: Turn | None = None
        try:
            for operation in operations:
                turn = self._turn(operation)
            while outermost and self._queue:
                self._turn(self._queue.popleft())
        finally:
            self._busy = not outermost
        if outermost:
            self._set_alarm()
        return turn

    def _turn(self, operation: Operation | None) -> Turn | None:
        driver = self._driver
        if driver is None:
            return None
        turn = driver.drain(None) if operation is None else driver.do(operation)
        self._deadline = turn.deadline
        self._handle(turn)
        return turn

    def _handle(self, turn: Turn) -> None:
        cluster, life = self._cluster, self.incarnation
        if cluster.records:
            self.turns.append(turn)
            cluster.log.append((self.address, turn))
        for destination, payload in turn.datagrams:
            cluster.network.send(self.address, destination, payload)
        for event in turn.events:
            self.events.append((cluster.network.clock.now, event))
            if cluster.on_event is not None:
                cluster.on_event(self, event)
        for effect in turn.effects:
            if self._effects is None:
                raise LookupError(f"node {self.address!r} has no store for {effect}")
            if self.running and life == self.incarnation:
                self._effects(self, effect)

    def _set_alarm(self) -> None:
        deadline = None if self._driver is None else self._deadline
        # An earlier wake-up checks the deadline again: one at a time is enough.
        if deadline is None or (self._alarm is not None and self._alarm <= deadline):
            return
        self._alarm = deadline
        self._cluster.network.timetable.at(self._clock.true(deadline), lambda: self._ring(deadline))

    def _ring(self, alarm: float) -> None:
        if self._driver is None or alarm != self._alarm:
            return  # of a former life, or overtaken by an earlier one
        self._alarm = None
        # Converting to true time and back may round down, but the alarm's time has come.
        now = max(self.now, alarm)
        deadline = self._driver.deadline()
        if deadline is not None and deadline <= now:
            self._told = now
            turn = self._run(Advance(now))
            if turn is not None and turn.deadline is not None and turn.deadline <= now:
                raise EndlessError(f"told that it is {now}, still waits for {turn.deadline}")
        else:
            self._deadline = deadline
            self._set_alarm()


class Cluster:
    """Nodes on one `network`.

    on_event: called with the node for every event.
    after_step: called after every step, to check invariants.
    records: keep every turn, for conversations.
    log: all turns of all nodes in order, with addresses, if it records.
    """

    def __init__(
        self,
        network: Network,
        *,
        on_event: Callable[[Host, Event], None] | None = None,
        after_step: Callable[[], None] | None = None,
        records: bool = False,
    ) -> None:
        self.network = network
        self.nodes: dict[Address, Host] = {}
        self.on_event = on_event
        self.after_step = after_step
        self.records = records
        self.log: list[tuple[Address, Turn]] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.network.__exit__(kind, error, traceback)

    def __iter__(self) -> Iterator[Host]:
        return iter(self.nodes.values())

    def __getitem__(self, address: Address) -> Host:
        return self.nodes[address]

    def add(
        self,
        address: Address,
        build: Callable[[Host], DatagramMachine],
        *,
        verbs: Mapping[str, Verb] | None = None,
        effects: Callable[[Host, Effect[Any]], None] | None = None,
        clock: SkewedClock | None = None,
        disk: Disk | None = None,
        start: bool = True,
    ) -> Host:
        """Add a node and start it.

        build: makes the machine of each life; it may read ``node.disk`` and ``node.now``.
        verbs: calls that `Host.call` may name besides the machine's methods.
        effects: called with each effect, which it answers with ``node.complete``, at once or
            later by ``node.after``.
        """
        if address in self.nodes:
            raise ValueError(f"there is a node {address!r} already")
        node = Host(
            self,
            address,
            build,
            verbs=verbs,
            effects=effects,
            clock=SkewedClock() if clock is None else clock,
            disk=disk,
        )
        self.nodes[address] = node
        if start:
            with self:
                node.start()
        return node

    def run(self, until: float, *, done: Callable[[], bool] | None = None) -> bool:
        """Like `Network.run`, with `after_step` after every step."""
        return self.network.run(until, done=lambda: self._checked(done)) or done is None

    def _checked(self, done: Callable[[], bool] | None) -> bool:
        if self.after_step is not None:
            self.after_step()
        return done is not None and done()
