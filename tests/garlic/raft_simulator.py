"""A deterministic cluster of Raft cores: one seed gives one history.

Time, network, disks and clients are simulated; faults are drawn from the seed.  Every
step of every core is checked by `raft_checks`, client histories by `linearizability`.
"""

from __future__ import annotations

import contextlib
import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from linearizability import Operation, find_violation
from raft_checks import Checker, Violation
from raft_clients import Clients, Node
from raft_disk import Disk, State
from raft_intruder import Intruder
from raft_weather import ELECTION_TIMEOUT, TIMING, Weather, draw_limits

from culm import garlic
from culm.garlic.raft import (
    Apply,
    ChangeFailed,
    Committed,
    Compact,
    Configuration,
    ConfigurationChanged,
    Forwarded,
    ForwardFailed,
    Lost,
    PeerFault,
    Persist,
    Raft,
    ReadFailed,
    ReadReady,
    ReadSnapshot,
    Server,
    Snapshot,
    SnapshotInstalled,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.raft import (
    State as RaftState,
)
from culm.garlic.raft.change import ChangeState
from culm.garlic.raft.messages import (
    Extension,
    ForwardRequest,
    Message,
    RaftRequest,
    SnapshotRequest,
    VoteRequest,
)
from culm.machine import Closed, Effect, LocalProtocolError

SERVERS_MAX = 7

# A slow disk takes up to as many of the longest election timeouts for each chunk.
SLOW = 4
CHUNK_SIZES = 50, 100, 10_000
# So many chunks wait on a slow line, at most, and go over it so often, on average.
QUEUE = 5
REPEATED = 4

# Election timeouts in which servers come one step of terms closer, at most
STEP_TIMEOUTS = 3


def server(server_id: int, *, voter: bool = True) -> Server:
    return Server(server_id, f"sim://{server_id}", voter)


#: State of a server that is being added or removed.
_CHANGING = {state.value for state in ChangeState}


def joiner_of(core: Raft) -> int | None:
    """The server that a leader adds or removes."""
    return next((each.server_id for each in core.peers if each.doing in _CHANGING), None)


class Simulator:
    """A cluster of `size` servers under the faults that `seed` draws."""

    def __init__(
        self,
        seed: int,
        *,
        weather: Weather | None = None,
        size: int | None = None,
        check_sends: bool = True,
        pre_vote: bool | None = None,
        intrudes: bool | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.weather = Weather.draw(self.rng) if weather is None else weather
        self.limits = draw_limits(self.rng)
        self.intruder = Intruder(self, random.Random(f"intruder {seed}"))
        self.intrudes = seed % 5 == 3 if intrudes is None else intrudes
        self.is_attacked = self.intrudes  # somebody may be accused of what it has not said
        # servers whose removal was told are gone for good, with their disks
        self.buries = weather is None and seed % 4 == 2 and not self.weather.forgets
        if self.buries:
            self.weather.change = 0.8
        self.paddings = random.Random(f"paddings {seed}")
        self.pads = self.paddings.random() < 0.3
        self.falls = seed % 7 == 6  # finally all servers are switched off, and on again
        self.checker = Checker()
        self.clients = Clients(self)
        self.history = self.clients.history
        self.happened: Counter[str] = Counter()
        self.stopped = False  # no more faults
        self.check_sends = check_sends
        self.pre_vote = seed % 2 == 1 if pre_vote is None else pre_vote
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.cuts: set[tuple[int, int]] = set()
        self._newest: dict[tuple[int, int], int] = {}  # message delivered on each way
        drawn = self.rng.choice((3, 3, 4, 5, 5, 7))
        self.absent: set[int] = set()  # servers that are switched off, and stay so
        self.laggard: int | None = None
        self.slow_writes: dict[int, float] = {}  # seconds for each chunk of a snapshot, by server
        self.slow_reads: dict[int, float] = {}
        self.slow_persists: dict[int, float] = {}  # seconds for each write of log and term
        self.slow_lines: dict[int, float] = {}  # seconds for each byte to a server, also in the end
        self.line_s = 0.0  # such a line carries a chunk in so long
        self.latency_s = 0.0  # and all that it carries arrives so much later
        self._free_at: dict[int, float] = {}  # when such a line has carried all that it has taken
        slow = random.Random(f"slow {seed}")
        if weather is None and size is None and slow.random() < 0.1:
            drawn = self._slow_down(slow)
        elif weather is None and size is None and slow.random() < 0.05:
            drawn = self._fill_line(slow)
        elif random.Random(f"pair {seed}").random() < 0.1:  # where neither can do without the other
            drawn = 2
        founders = tuple(server(number) for number in range(1, (size or drawn) + 1))
        start = Snapshot(configuration=Configuration(servers=founders))
        self.nodes = {one.server_id: self._node(one.server_id, start) for one in founders}
        for node in self.nodes.values():
            self.start(node)

    def _slow_down(self, rng: random.Random) -> int:
        """Let each chunk of a snapshot take longer than any election timeout, also in the end.

        One of three servers lags by a snapshot, and then another is switched off: neither of the
        two that are left can do without the other.
        """
        self.laggard, seconds = rng.choice((1, 2, 3)), rng.uniform(1, SLOW) * ELECTION_TIMEOUT
        if rng.random() < 0.5:
            self.slow_writes[self.laggard] = seconds
        else:
            self.slow_reads = dict.fromkeys((1, 2, 3), seconds)
        self._keep_little(rng)
        return 3

    def _fill_line(self, rng: random.Random) -> int:
        """Let a server lag by a snapshot, behind a line that takes all at once, and is slow.

        Each chunk is on its way for longer than its leader waits before it sends it again.
        """
        self.laggard = rng.choice((1, 2, 3))
        self._keep_little(rng)
        self.line_s = rng.uniform(1, 2) * TIMING.request_timeout_s
        self.latency_s = rng.choice((0.0, self.line_s))
        self.slow_lines[self.laggard] = self.line_s / self.limits.chunk_size
        self.limits = replace(self.limits, attempts_max=20)
        self.pre_vote = True  # it hears its leader too seldom
        return 3

    def _keep_little(self, rng: random.Random) -> None:
        """Let no change of membership help a server that lags, and snapshots come often."""
        self.weather.change = 0.0
        self.buries = False
        self.limits = replace(
            self.limits,
            chunk_size=rng.choice(CHUNK_SIZES),
            snapshot_distance=rng.choice((1, 5)),
            trailing_entries=0,
            catch_up_entries=0,
        )

    def _padding(self) -> bytes:
        """Bytes by which images of one index differ from server to server, in length as well."""
        return b" " * self.paddings.randrange(200) if self.pads else b""

    def _node(self, number: int, snapshot: Snapshot) -> Node:
        skew = self.weather.skew
        return Node(number, Disk(snapshot=snapshot), rate=self.rng.uniform(1 - skew, 1 + skew))

    # The clock

    def at(self, time: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (time, next(self._order), act))

    def run_until(self, time: float, done: Callable[[], bool] | None = None) -> bool:
        queue = self._queue
        while queue and queue[0][0] <= time:
            self.now, _, act = heapq.heappop(queue)
            act()
            if done is not None and done():
                return True
        self.now = max(self.now, time)
        return False

    # Servers

    def start(self, node: Node) -> None:
        self.happened["start"] += 1
        stored = self._remembered(node.disk)
        try:
            self._wake(node, stored)
        except ValueError as error:
            raise Violation(f"what {node.id} has stored is refused: {error}") from error
        node.life += 1
        node.state = State(node.disk.image)
        node.applied = stored.snapshot.index
        assert node.raft is not None
        self.checker.restarted(node.raft)
        self.drain(node)

    def _remembered(self, disk: Disk) -> Stored:
        """The contents of the disk: the commit index may be an older one.

        Everything else there is a promise, and has to be kept.
        """
        stored = disk.stored()
        if self.weather.forgets and self.rng.random() < 0.5:
            self.happened["older commit index"] += 1
            low, high = sorted((stored.snapshot.index, stored.commit_index))
            return replace(stored, commit_index=self.rng.randint(low, high))
        return stored

    def _wake(self, node: Node, stored: Stored) -> None:
        node.core = node.raft = Raft(
            server_id=node.id,
            stored=stored,
            timing=TIMING,
            limits=self.limits,
            rng=random.Random(self.rng.random()),
            now=self.now * node.rate,
            pre_vote=self.pre_vote,
            asks_leader=True,
        )
        for peer in range(1, SERVERS_MAX + 1):
            node.raft.reachable(peer, Extension)

    def crash(self, node: Node) -> None:
        if node.core is not None and node.changes:
            # Had it been closed instead, it would have told of each change.
            node.core.close()
            while (event := node.core.next_event()) is not None:
                self._tell_changes(node, event)
            if node.changes:
                raise Violation(f"{node.id} is closed, and has not told of {node.changes}")
        node.core = node.raft = None
        node.life += 1
        node.timer = None
        self.happened["crash"] += 1
        self.happened["crash with changes pending"] += bool(node.disk.pending)
        self.happened["torn write"] += node.disk.crash(self.rng)
        node.forget()

    def drain(self, node: Node) -> None:
        """Take everything that a core has to offer after an input."""
        core = node.core
        assert core is not None
        while True:
            while (event := core.next_event()) is not None:
                self._tell(node, event)
            effect = core.next_effect()
            if effect is None:
                break
            self._do(node, effect)
        self.happened["step"] += 1
        assert node.raft is not None
        self.checker.step(node.raft)
        self._send_all(node)
        self._set_timer(node)

    def _send_all(self, node: Node) -> None:
        assert node.raft is not None
        for message in node.raft.messages_to_send():
            if self.check_sends:
                self.checker.sends(message, node.disk)
            self.send(message)

    def _set_timer(self, node: Node) -> None:
        assert node.core is not None
        deadline = node.core.next_deadline()
        if deadline is None:
            return
        # A little late, so that rounding never gives a time just before the deadline
        time = max(self.now, deadline / node.rate + 1e-7)
        if node.timer is not None and node.timer <= time:
            return
        node.timer, life = time, node.life

        def fire() -> None:
            if node.life == life and node.core is not None and node.timer == time:
                node.timer = None
                node.core.advance(self.now * node.rate)
                self.drain(node)

        self.at(time, lambda: self.awake(node, fire))

    def awake(self, node: Node, act: Callable[[], None]) -> None:
        """Do `act` as soon as the process of `node` runs, after all earlier input."""
        node.waiting.append(act)
        self._go_on(node)

    def _go_on(self, node: Node) -> None:
        while node.waiting and node.stalled <= self.now:
            node.waiting.popleft()()
        if node.waiting:
            self.at(node.stalled, lambda: self._go_on(node))

    def tell_time(self, node: Node) -> Raft | garlic.Node:
        assert node.core is not None
        node.core.advance(self.now * node.rate)
        return node.core

    def _later(self, node: Node, act: Callable[[], None], least: float = 0.0) -> None:
        """Do `act` when the disk is ready, unless the server crashes in the meantime."""
        rng, weather, life = self.rng, self.weather, node.life
        duration = least + rng.uniform(0, weather.disk_delay_max)

        def unless_crashed(act: Callable[[], None]) -> Callable[[], None]:
            return lambda: act() if node.life == life and node.core is not None else None

        self.at(self.now + duration, lambda: self.awake(node, unless_crashed(act)))
        if not self.stopped and rng.random() < weather.write_crash:
            crash = unless_crashed(lambda: self._crash_for_a_while(node))
            self.at(self.now + rng.uniform(0, duration), crash)

    def _persist(self, node: Node, effect: Persist) -> None:
        disk = node.disk
        disk.writing.append(effect)
        self.happened["writes under way at once"] += len(disk.writing) > 1

        def written() -> None:
            done = disk.writing.pop(0)  # in order, whenever the disk is ready
            disk.write(done)
            if self.limits.writes_max > 1 and self.rng.random() < 0.3:
                self.happened["write told of late"] += 1
                self._later(node, lambda: self._complete(node, done.ticket))
            else:
                self._complete(node, done.ticket)

        self._later(node, written, self.slow_persists.get(node.id, 0.0))

    def _change_disk(
        self, node: Node, ticket: int, change: Callable[[], object], least: float = 0.0
    ) -> None:
        """Make a change that happens as a whole or not at all, and takes at least so long."""
        disk = node.disk
        disk.pending.append(change)

        def changed() -> None:
            disk.pending.remove(change)
            self._complete(node, ticket, change())

        self._later(node, changed, least)

    def _complete(self, node: Node, ticket: int, result: object = None) -> None:
        assert node.core is not None
        node.core.complete(ticket, result)
        self.drain(node)

    def _do(self, node: Node, effect: Effect) -> None:
        disk, core = node.disk, node.core
        assert core is not None
        self.happened[type(effect).__name__] += 1
        match effect:
            case Persist():
                self._persist(node, effect)
            case Apply():
                self._apply(node, effect)
                core.complete(effect.ticket, None)
            case TakeSnapshot(snapshot=snapshot):
                if snapshot.index != node.applied:
                    raise Violation("a snapshot of another index than applied")
                image = node.state.machine.snapshot() + self._padding()
                self._change_disk(node, effect.ticket, lambda: disk.put_snapshot(snapshot, image))
            case Compact():
                self._change_disk(node, effect.ticket, lambda: disk.compact(effect.index))
            case ReadSnapshot():
                read = partial(disk.read_chunk, effect.snapshot, effect.offset, effect.size)
                if seconds := self.slow_reads.get(node.id):
                    self.happened["slow read"] += 1
                    self._later(node, lambda: self._complete(node, effect.ticket, read()), seconds)
                else:
                    core.complete(effect.ticket, read())
            case WriteSnapshot():
                if effect.offset + len(effect.data) > self.limits.snapshot_size_max:
                    raise Violation("a snapshot grows without bound")

                def restore(state: State) -> None:
                    node.state, node.applied = state, effect.snapshot.index

                seconds = self.slow_writes.get(node.id, 0.0)
                self.happened["slow write"] += bool(seconds)
                write = partial(disk.write_chunk, effect, restore)
                self._change_disk(node, effect.ticket, write, seconds)
            case _:
                raise AssertionError(effect)

    def _apply(self, node: Node, effect: Apply) -> None:
        if effect.first_index != node.applied + 1:
            raise Violation(f"applied {node.applied}, then {effect.first_index}")
        self.checker.applies(node.id, effect.first_index, effect.entries)
        for index, entry in enumerate(effect.entries, effect.first_index):
            if isinstance(entry.data, bytes):
                node.state.machine.apply(index, entry.data)
            self.clients.applied(node, index, entry)
        node.applied += len(effect.entries)

    def _tell(self, node: Node, event: object) -> None:
        self.happened[type(event).__name__] += 1
        self._tell_changes(node, event)
        match event:
            case PeerFault(peer=peer) if not self.is_attacked:
                raise Violation(f"{node.id} accuses {peer}: {event.error}")
            case Committed() | Lost():
                self.checker.tells(node.id, event)
                if isinstance(event, Committed):
                    self.clients.told(node, event)
            case Forwarded() | ForwardFailed():
                certain = isinstance(event, ForwardFailed) and event.certain
                self.happened["ForwardFailed for certain"] += certain
                self.clients.told(node, event)
            case Closed(error=error) if error is not None:
                raise Violation(f"{node.id} stops: {error}")
            case ReadReady() | ReadFailed():
                kind = "at the leader" if node.raft and node.raft.leader == node.id else "elsewhere"
                self.happened[f"{type(event).__name__} {kind}"] += 1
                self.clients.told(node, event)
            case ConfigurationChanged() if self.buries:
                self._bury_others(node)
            case SnapshotInstalled(snapshot=snapshot) if node.applied < snapshot.index:
                raise Violation("installed without a state")

    @staticmethod
    def _tell_changes(node: Node, event: object) -> None:
        match event:
            case ChangeFailed(server_id=number):
                del node.changes[number]
            case ConfigurationChanged(configuration=configuration):
                for number, wanted in list(node.changes.items()):
                    if configuration.find(number) == wanted:
                        del node.changes[number]

    # The network

    def send(self, message: Message) -> None:
        rng, weather, happened = self.rng, self.weather, self.happened
        happened["message"] += 1
        happened["transfer"] += isinstance(message, VoteRequest) and message.transfer
        if (message.source, message.destination) in self.cuts:
            happened["message cut off"] += 1
            return
        copies = 1
        if not self.stopped:
            if rng.random() < weather.loss:
                happened["message lost"] += 1
                return
            once = isinstance(message, ForwardRequest)
            copies += rng.random() < weather.duplication and not once
            happened["message doubled"] += copies - 1
        delay_max = 0.002 if self.stopped else weather.delay_max
        number = happened["message"]
        size = len(message.data) if isinstance(message, SnapshotRequest) else 0
        carries = self._free_at.get(message.destination, 0.0) - self.now
        if carries > QUEUE * size * self.slow_lines.get(message.destination, 0.0) > 0:
            happened["message without place"] += 1  # as on a link, which has places for so many
            return
        for _ in range(copies):
            time = self.carried(message.destination, size, rng.uniform(0.0001, delay_max))
            self.at(time, lambda: self._arrive(message, number))

    def carried(self, to: int, size: int, delay: float) -> float:
        """When bytes sent now to that server arrive, behind what its line has yet to carry."""
        if to not in self.slow_lines:
            return self.now + delay
        self.happened["slow line"] += 1
        free_at = max(self.now, self._free_at.get(to, 0.0)) + size * self.slow_lines[to]
        self._free_at[to] = free_at
        return free_at + self.latency_s + delay

    def forge(self, requests: Sequence[RaftRequest]) -> None:
        """Deliver these at once to the server they are addressed to, whoever sends them."""
        self.happened["forged"] += 1
        for request in requests:
            self._deliver(request, self.happened["message"])

    def _arrive(self, message: Message, number: int) -> None:
        node = self.nodes.get(message.destination)
        if node is not None:
            self.awake(node, lambda: self._deliver(message, number))

    def _deliver(self, message: Message, number: int) -> None:
        node = self.nodes.get(message.destination)
        way = (message.source, message.destination)
        self.happened["message overtaken"] += number < self._newest.get(way, 0)
        self._newest[way] = max(number, self._newest.get(way, 0))
        if node is None or node.raft is None:
            return
        if (message.source, message.destination) in self.cuts:
            return
        self.tell_time(node)
        node.raft.receive_message(message)
        self.drain(node)
        if not self.stopped and self.rng.random() < self._crash_at_message(node):
            self._crash_for_a_while(node)

    def _crash_at_message(self, node: Node) -> float:
        if node.core is not None and node.core.state is RaftState.LEADER:
            return self.weather.leader_crash
        return self.weather.joiner_crash if self._is_joiner(node) else 0.0

    def _is_joiner(self, node: Node) -> bool:
        """Whether a leader is adding or removing that server."""
        cores = [leader.raft for leader in self.leaders()]
        return any(core is not None and joiner_of(core) == node.id for core in cores)

    # Faults

    def misfortune(self) -> None:
        """One draw of every fault; repeats until `stopped`."""
        if self.stopped:
            return
        rng, weather = self.rng, self.weather
        if self.intrudes:
            self.happened["intruder"] += 1
            self.intruder.strike()
        if rng.random() < weather.crash:
            self._crash_some()
        if rng.random() < weather.partition:
            self._partition()
        if rng.random() < weather.partition:
            self.cuts.clear()
        if rng.random() < weather.stall:
            self._stall()
        if rng.random() < weather.transfer:
            self._on_leader(lambda core: core.transfer_leadership(rng.choice(list(self.nodes))))
        self.at(self.now + weather.pause, self.misfortune)

    def administrator(self) -> None:
        """Changes the membership now and then; repeats until `stopped`."""
        if not self.stopped:
            if self.rng.random() < self.weather.change:
                self._change()
            self.at(self.now + 0.05, self.administrator)

    def _crash_some(self) -> None:
        """Power fails: at one server, at the leader, or at several at once."""
        rng = self.rng
        live = [node for node in self.nodes.values() if node.core is not None]
        leaders = self.leaders()
        draw = rng.random()
        if draw < 0.2:
            live = rng.sample(live, rng.randint(0, len(live)))
        elif draw < 0.6 and leaders:
            live = [rng.choice(leaders)]
        elif live:
            live = [rng.choice(live)]
        for node in live:
            self._crash_for_a_while(node)

    def _stall(self) -> None:
        """A process is stopped: its input waits, and time goes on."""
        node = self.rng.choice(list(self.nodes.values()))
        self.happened["stalled process"] += 1
        node.stalled = self.now + self.rng.uniform(0, 3 * ELECTION_TIMEOUT)

    def _crash_for_a_while(self, node: Node) -> None:
        self.happened["joiner crashed"] += self._is_joiner(node)
        self.crash(node)
        self.at(self.now + self.rng.uniform(0.001, 0.4), lambda: self._restart(node))

    def _bury_others(self, node: Node) -> None:
        """Take away other servers that are no members, as one does on a leader's word."""
        disks = [other.disk.term for other in self.nodes.values()]
        raft = node.raft
        if raft is None or raft.leader != node.id or raft.term < max(disks):
            return  # its word may be out of date
        leaving = [
            other
            for other in self.nodes.values()
            if other.applied
            and not other.buried
            and raft.find_server(other.id) is None
            # One that leads without being a member stays until it has told `Left`.
            and other is not node
        ]
        for other in leaving:
            self.happened["server buried"] += 1
            other.buried = True
        if leaving and self.rng.random() < 0.5:
            leaving.append(node)  # which has to know it all the same when it is back
        for other in leaving:
            self.at(self.now, partial(self._crash_in, other, other.life))

    def _crash_in(self, node: Node, life: int) -> None:
        """Crash a server, if it has not crashed since that life."""
        if node.life == life and node.core is not None:
            self._crash_for_a_while(node)

    def _restart(self, node: Node) -> None:
        if node.core is None and not node.buried and node.id not in self.absent:
            self.start(node)

    def _partition(self) -> None:
        numbers = list(self.nodes)
        self.rng.shuffle(numbers)
        split = self.rng.randint(1, len(numbers) - 1) if len(numbers) > 1 else 1
        one_way = self.rng.random() < 0.3
        self.happened["one-way partition" if one_way else "partition"] += 1
        for left in numbers[:split]:
            for right in numbers[split:]:
                self.cuts.add((left, right))
                if not one_way:
                    self.cuts.add((right, left))

    def running(self) -> list[Node]:
        """Nodes whose processes exist, and are not stopped."""
        return [
            node
            for node in self.nodes.values()
            if node.core is not None and node.stalled <= self.now
        ]

    def leaders(self) -> list[Node]:
        """The running leaders."""
        return [
            node
            for node in self.running()
            if node.core is not None and node.core.state is RaftState.LEADER
        ]

    def _on_leader(self, act: Callable[[Raft | garlic.Node], None]) -> None:
        leaders = self.leaders()
        if not leaders:
            return
        node = self.rng.choice(leaders)
        with contextlib.suppress(LocalProtocolError):
            act(self.tell_time(node))
        self.drain(node)

    def _ask(self, core: Raft | garlic.Node, change: Server | int) -> None:
        """Add a server, or remove that of this number; the core has to tell the end of it."""
        changes = self.nodes[core.server_id].changes
        if isinstance(change, Server):
            core.add_server(change)
            number, wanted = change.server_id, change
        else:
            core.remove_server(change)
            number, wanted = change, None
        if changes:
            raise Violation(f"{core.server_id} begins a change before {changes} have ended")
        changes[number] = wanted

    def _change(self) -> None:
        """Add or remove a server, sometimes against the rules, or let a learner vote."""
        rng, leaders = self.rng, self.leaders()
        if not leaders:
            return
        core = rng.choice(leaders).core
        assert core is not None
        if rng.random() < 0.1:
            self._on_leader(self._cancel)
        members = core.configuration.ids
        nodes, least = self.nodes.values(), 1 if self.buries else 2
        others = [node.id for node in nodes if node.id not in members and not node.buried]
        if len(self.nodes) < SERVERS_MAX and (not others or rng.random() < 0.3):
            number = len(self.nodes) + 1
            node = self.nodes[number] = self._node(number, Stored().snapshot)
            self.start(node)
            others.append(number)
        if rng.random() < 0.1:
            others = list(self.nodes)
        learners = sorted(members - core.configuration.voters)
        if learners and rng.random() < 0.3:
            learner = rng.choice(learners)
            self._on_leader(lambda core: self._ask(core, server(learner)))
        elif others and (len(members) <= least or rng.random() < 0.5):
            voter = rng.random() < 0.5
            added = partial(server, voter=voter)
            self._on_leader(lambda core: self._ask(core, added(rng.choice(others))))
        elif len(members) > least:
            self._on_leader(lambda core: self._ask(core, rng.choice(sorted(members))))

    def _cancel(self, core: Raft | garlic.Node) -> None:
        core.cancel_change()
        self.happened["change cancelled"] += 1

    # The whole

    def run(self, seconds: float = 1.5) -> None:
        """Faults and clients for a while; then quiet, in which everything must settle."""
        for pause in (0.02, 0.05):
            self.at(self.rng.uniform(0, 0.1), lambda pause=pause: self.clients.client(pause))
        self.at(self.rng.uniform(0, 0.1), self.clients.impatient)
        self.at(0.2, self.misfortune)
        self.at(0.2, self.administrator)
        if self.laggard is not None:
            self.at(0.3, self._lag)
        self.run_until(seconds)
        self.stopped = True
        self.cuts.clear()
        if self.laggard is not None and not self.slow_lines:
            others = [node for node in self.nodes.values() if node.id != self.laggard]
            ahead = max(others, key=lambda node: node.disk.last_index)
            self.absent = {node.id for node in others if node is not ahead}
            for number in self.absent:
                self.crash(self.nodes[number])
        elif self.laggard is not None:
            self.absent.clear()
        for node in self.nodes.values():
            node.stalled = 0.0
            if self.falls and node.core is not None:
                self.crash(node)
            self._restart(node)
        self._check_liveness()
        if self.absent:
            for number in self.absent:
                self.start(self.nodes[number])
            self.absent.clear()
            self._check_liveness()
        if self.laggard in self.slow_lines:
            self._join(self.slow_lines[self.laggard])
        self.clients.check(said for _, said in self.checker.committed.values())
        leader = self.followed_leader()
        assert leader is not None
        for node in self.nodes.values():
            if node.applied == leader.applied:
                self.clients.check_tokens(node.state)
        key = find_violation(self.history)
        if key is not None:
            raise Violation(f"the history of {key!r} is not linearizable")

    def _lag(self) -> None:
        assert self.laggard is not None
        self.absent = {self.laggard}
        self.crash(self.nodes[self.laggard])

    def _check_liveness(self) -> None:
        """A leader within 10 election timeouts; then everything is applied everywhere."""
        terms = [node.raft.term for node in self.nodes.values() if node.raft is not None]
        steps = (max(terms) - min(terms)) // self.limits.term_step_max
        self.happened["steps"] += steps
        timeouts = 10 + STEP_TIMEOUTS * steps
        limit = self.now + timeouts * ELECTION_TIMEOUT / (1 - self.weather.skew)
        if not self.run_until(limit, lambda: self.followed_leader() is not None):
            raise Violation("no leader")
        # Entries of earlier terms are committed with one of the leader's own.
        limit += 5 + self._slowness()
        call: Operation | None = None
        while call is None or call.end > self.now:
            leader = self.followed_leader()
            if leader is not None:
                call = self.clients.call(leader, "a", write=True)
            if self.now > limit or self.run_until(self.now + 0.3, self._settled):
                break
        if not self.run_until(limit, self._settled):
            raise Violation("live servers have not applied everything")
        # A learner whose server does not tell that it knows learners is waited for.
        limit = max(limit, self.now + TIMING.change_timeout_s / (1 - self.weather.skew))
        if not self.run_until(limit, self._may_change):
            raise Violation("a live leader's change does not end")

    def _join(self, line: float) -> None:
        """Another server behind such a line starts empty, and is made a member."""
        number = len(self.nodes) + 1
        self.slow_lines[number] = line
        node = self.nodes[number] = self._node(number, Stored().snapshot)
        self.start(node)
        limit = self.now + 5 + 2 * self._slowness()
        while not node.applied or node.raft is None or node.raft.find_server(number) is None:
            if self.now > limit:
                raise Violation("a server is not let in")
            if self._may_change():
                self._on_leader(lambda core: self._ask(core, server(number)))
            self.run_until(self.now + ELECTION_TIMEOUT)

    def _slowness(self) -> float:
        """Seconds that slow disks take for a snapshot, and for another one that replaces it."""
        seconds = max([*self.slow_writes.values(), *self.slow_reads.values()], default=0.0)
        size = max(len(node.disk.image) for node in self.nodes.values())
        return 2 * (seconds + REPEATED * self.line_s) * (2 + size // self.limits.chunk_size)

    def _may_change(self) -> bool:
        """Whether a change of membership could start."""
        leader = self.followed_leader()
        return leader is not None and leader.raft is not None and joiner_of(leader.raft) is None

    def followed_leader(self) -> Node | None:
        """A leader followed by a majority of its configuration."""
        for node in self.leaders():
            core = node.core
            assert core is not None
            servers = [self.nodes[number].core for number in core.configuration.voters]
            following = [
                other
                for other in servers
                if other is not None and (other.term, other.leader) == (core.term, node.id)
            ]
            if len(following) > len(servers) // 2:
                return node
        return None

    def _settled(self) -> bool:
        leader = self.followed_leader()
        if leader is None or leader.raft is None:
            return False
        core = leader.raft
        if core.commit_index < core.last_index:
            return False
        return all(
            self.nodes[one.server_id].applied == core.commit_index
            for one in core.configuration.servers
            if one.server_id not in self.absent
        )


def run_seed(seed: int, **options: object) -> Simulator:
    """Run one seed; a failure names it."""
    simulator = Simulator(seed, **options)  # type: ignore[arg-type]
    try:
        simulator.run()
    except Exception as error:
        error.add_note(f"seed {seed}; replay: CULM_RAFT_FIRST_SEED={seed} CULM_RAFT_SEEDS=1")
        raise
    return simulator
