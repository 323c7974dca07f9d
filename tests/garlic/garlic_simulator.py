"""A deterministic cluster of whole nodes: frames on connections that stall and break.

The faults, the disks, the clients and the checks are those of `raft_simulator`; the messages of the
cores go over connections, in pieces, which may end in the middle of a frame.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from raft_clients import Node
from raft_simulator import Simulator
from raft_weather import ELECTION_TIMEOUT, TIMING

from culm import garlic
from culm.garlic.events import DialWanted, LinkClosed
from culm.garlic.handshake import Credentials
from culm.garlic.link import Link
from culm.garlic.raft import Raft, Server, Stored
from culm.garlic.raft import messages as m
from culm.garlic.translate import Translator
from culm.machine import LocalProtocolError
from culm.testing import captures

# Forbidden to every peer: an unknown type, a response, an oversize log, half a request.
BAD_FRAMES = (
    bytes([99]),
    bytes([4]) + bytes(25),
    bytes([3]) + bytes(40) + b"\x7f\xff\xff\xff",
    bytes([5]) + bytes(20),
    bytes([10]) + bytes(40) + b"\x00\x00\x00\x0f" + bytes(8) + b"\x04\x00\x00\x00\x02zz",
    b"GET / HTTP/1.1\r\n\r\n",
)

# The share of broken connections that break silently: a peer without power, a firewall that has
# forgotten them.
SILENCE = 0.3


ANSWER_TIMEOUT = 2 * ELECTION_TIMEOUT

# Bytes of a snapshot's chunk in a frame, beside its data
FRAME = 250

# In some clusters nodes have as few places as possible.
PLACES = {"strangers_max": 1, "unanswered_max": 1, "links_max": 1}


@dataclass
class End:
    """One side of a connection; `link` is ``None`` where the simulator itself has dialled."""

    node: Node | None
    link: Link | None
    life: int = 0
    arrival: float = 0.0  # of the last bytes on their way here
    sent: int = 0  # pieces sent here, and pieces taken, in the same order
    taken: int = 0
    closed: bool = False

    @property
    def alive(self) -> bool:
        node = self.node
        return (
            not self.closed
            and node is not None
            and node.core is not None
            and node.life == self.life
            and self.link is not None
            and not self.link.closed
        )


@dataclass(eq=False)
class Wire:
    """A connection: its dialling and its dialled end; `broken` once bytes get lost."""

    near: End
    far: End
    broken: bool = False
    silent: bool = False  # neither end is told of the break

    def other(self, end: End) -> End:
        return self.far if end is self.near else self.near


class GarlicSimulator(Simulator):
    """A cluster of nodes; in some seeds behind the handshake."""

    def __init__(self, seed: int, **options: object) -> None:
        chance = random.Random(seed)
        self.handshake = chance.random() < 0.2
        self._places = PLACES if chance.random() < 0.2 else {}
        # In some clusters there is room for only as many servers as there were founders.
        self._servers_max = 0 if chance.random() < 0.2 else 1024
        self._credentials: dict[int, Credentials] = {}  # each life of a server has its own
        self._ends: dict[int, tuple[Wire, End]] = {}  # by the link's identity
        self.wires: list[Wire] = []
        self.forgets_s = 0.0  # each connection is forgotten at about this age, and nobody is told
        super().__init__(seed, **options)  # type: ignore[arg-type]

    def _fill_line(self, rng: random.Random) -> int:
        """The whole frame of a chunk is on its way for so long, and nobody stands unasked."""
        drawn, self.handshake, self._servers_max = super()._fill_line(rng), True, 1024
        share = self.limits.chunk_size / (self.limits.chunk_size + FRAME)
        self.slow_lines = {to: seconds * share for to, seconds in self.slow_lines.items()}
        return drawn

    @property
    def _handshake_timeout(self) -> float:
        return ELECTION_TIMEOUT * (20 if self.slow_lines else 1)

    def _slowness(self) -> float:
        """A handshake on a line that has been cut in silence may have to end first."""
        return super()._slowness() + self.handshake * self._handshake_timeout

    def _wake(self, node: Node, stored: Stored) -> None:
        self._servers_max = self._servers_max or len(self.nodes)
        check = self._check_sends

        class Checked(Raft):
            """The core that the node makes for itself."""

            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                node.raft = self

            def messages_to_send(self) -> list[m.Message]:
                messages = super().messages_to_send()
                check(node, messages)
                return messages

        with patch("culm.garlic.node.Raft", Checked):
            node.core = captures.make(
                garlic.Node,
                server_id=node.id,
                stored=stored,
                timing=garlic.Timing(
                    handshake_timeout_s=self._handshake_timeout,
                    answer_timeout_s=ANSWER_TIMEOUT,
                    raft=TIMING,
                ),
                limits=garlic.Limits(
                    raft=self.limits, servers_max=self._servers_max, **self._places
                ),
                rng=random.Random(self.rng.random()),
                now=self.now * node.rate,
            )
        if self.handshake:
            rng = random.Random(self.rng.random())
            self._credentials[node.id] = captures.beside(
                node.core, Credentials, user="farm", password="er", rng=rng
            )

    def _check_sends(self, node: Node, messages: Sequence[m.Message]) -> None:
        if self.check_sends:
            for message in messages:
                self.checker.sends(message, node.disk)

    def crash(self, node: Node) -> None:
        super().crash(node)
        for wire in tuple(self.wires):
            if node in (wire.near.node, wire.far.node):
                self._break(wire)

    # Connections

    def _tell(self, node: Node, event: object) -> None:
        match event:
            case DialWanted(server=server):
                self.happened["dial"] += 1
                self._dial(node, server)
            case LinkClosed(error=error):
                self.happened["link closed"] += 1
                self.happened["fault"] += error is not None
                for wire in tuple(self.wires):
                    for end in (wire.near, wire.far):
                        if end.node is node and end.link is not None and end.link.closed:
                            self._hang_up(wire, end)
            case _:
                super()._tell(node, event)

    def _unless_gone(self, node: Node, act: Callable[[], None]) -> Callable[[], None]:
        life = node.life
        return lambda: act() if node.life == life and node.core is not None else None

    def _dial(self, node: Node, server: Server) -> None:
        delay = self.rng.uniform(0.0001, 0.002 if self.stopped else self.weather.delay_max)
        connect = self._unless_gone(node, lambda: self._connect(node, server))
        self.at(self.now + delay, lambda: self.awake(node, connect))

    def _connect(self, node: Node, server: Server) -> None:
        """The dialled server answers, or does not."""
        number = server.server_id
        core, peer = self.tell_time(node), self.nodes.get(number)
        assert isinstance(core, garlic.Node)
        cut = (node.id, number) in self.cuts or (number, node.id) in self.cuts
        lost = not self.stopped and self.rng.random() < self.weather.loss
        gone = peer is None or peer.core is None or cut or lost
        far = None if gone or peer is None else self._accept(peer)
        if far is None or peer is None:
            self.happened["dial failed"] += 1
            core.dial_failed(number)
            self.drain(node)
            return
        near = End(node, core.dialled(number, handshake=self._handshake(node, server)), node.life)
        wire = Wire(near, far)
        self.wires.append(wire)
        if self.forgets_s:
            age = self.rng.uniform(0.5, 1.5) * self.forgets_s
            self.at(self.now + age, lambda: self._forget(wire))
        self.drain(node)
        self.drain(peer)

    def _accept(self, peer: Node) -> End | None:
        """The dialled side of a new connection; ``None`` if it has no place for it."""
        listener = self.tell_time(peer)
        assert isinstance(listener, garlic.Node)
        try:
            return End(peer, listener.accepted(handshake=self._handshake(peer, None)), peer.life)
        except LocalProtocolError:
            self.happened["no place"] += 1
            return None

    def _handshake(self, node: Node, server: Server | None) -> Any:
        if not self.handshake:
            return None
        return self._credentials[node.id].handshake(server, self.now * node.rate)

    # Bytes

    def _send_all(self, node: Node) -> None:
        assert isinstance(node.core, garlic.Node)
        for link in node.core.links_to_send():
            data = link.data_to_send()
            for wire in self.wires:
                for end in (wire.near, wire.far):
                    if end.link == link:  # a recorded one is handed out anew each time
                        self._carry(wire, wire.other(end), data)

    def _carry(self, wire: Wire, to: End, data: bytes) -> None:
        """Let `data` arrive in pieces, after everything sent before it."""
        rng = self.rng
        self.happened["bytes"] += len(data)
        while data:
            size = rng.choice((1, 7, 45, 46, 100, len(data), len(data)))
            piece, data = data[:size], data[size:]
            delay_max = 0.002 if self.stopped else self.weather.delay_max
            delay = rng.uniform(0.0001, delay_max)
            if not self.stopped and rng.random() < self.weather.duplication / 10:
                self.happened["stall"] += 1
                delay += rng.uniform(0.02, ELECTION_TIMEOUT)
            arrival = self.now + delay
            if to.node is not None:
                arrival = self.carried(to.node.id, len(piece), delay)
            to.arrival = max(to.arrival, arrival)
            if not self.stopped and rng.random() < self.weather.loss / 10:
                torn = piece[: rng.randrange(len(piece))]
                self._send(wire, to, torn, last=True)
                return
            self._send(wire, to, piece, last=False)

    def _send(self, wire: Wire, to: End, data: bytes, *, last: bool) -> None:
        to.sent += 1
        number = to.sent

        def take() -> None:
            to.taken += 1
            assert to.taken == number, "a connection keeps the order"
            self._take(wire, to, data, last=last)

        node = to.node
        self.at(to.arrival, take if node is None else lambda: self.awake(node, take))

    def _take(self, wire: Wire, to: End, data: bytes, *, last: bool) -> None:
        if wire.broken:
            return
        way = tuple(end.node.id for end in (wire.other(to), to) if end.node is not None)
        if last or way in self.cuts:
            self.happened["broken on the way"] += 1
            self._break(wire)
        if to.alive and way not in self.cuts:
            assert to.node is not None
            assert to.link is not None
            self.tell_time(to.node)
            to.link.receive_data(data)
            self.drain(to.node)

    def _break(self, wire: Wire) -> None:
        """Nothing gets through any more; each side finds out in its own time, on its own."""
        if not wire.broken:
            wire.broken = True
            if self.rng.random() < SILENCE:
                self.happened["silence"] += 1
                wire.silent = True
                return
            for end in (wire.near, wire.far):
                delay = self.rng.uniform(0, 0.002 if self.stopped else ELECTION_TIMEOUT)
                self.at(self.now + delay, lambda end=end: self._end_of_stream(wire, end))

    def _forget(self, wire: Wire) -> None:
        self.happened["forgotten"] += 1
        wire.broken = wire.silent = True

    def _hang_up(self, wire: Wire, end: End) -> None:
        """The node at `end` has closed: the rest is sent, then the stream ends."""
        if end.closed:
            return
        assert end.link is not None
        end.closed = True
        other = wire.other(end)
        self._carry(wire, other, end.link.data_to_send())
        other.arrival = max(other.arrival, self.now)
        self.at(other.arrival, lambda: self._end_of_stream(wire, other))

    def _end_of_stream(self, wire: Wire, end: End) -> None:
        if end.node is None:
            self._ended(wire, end)
        else:
            self.awake(end.node, lambda: self._ended(wire, end))

    def _ended(self, wire: Wire, end: End) -> None:
        if end.alive and not wire.silent:
            assert end.node is not None
            assert end.link is not None
            self.tell_time(end.node)
            end.link.receive_eof()
            self.drain(end.node)
        end.closed = True
        if wire.near.closed and wire.far.closed and wire in self.wires:
            self.wires.remove(wire)

    # Faults

    def misfortune(self) -> None:
        if not self.stopped:
            self._vandal()
        super().misfortune()

    def _vandal(self) -> None:
        """A stranger connects to a node and sends forbidden bytes."""
        live = [node for node in self.nodes.values() if node.core is not None]
        if not live or self.rng.random() > 0.1:
            return
        self.happened["vandal"] += 1
        peer = self.rng.choice(live)
        far = self._accept(peer)
        if far is None:
            return
        wire = Wire(End(None, None, closed=True), far)
        self.wires.append(wire)
        self._carry(wire, wire.far, self.rng.choice(BAD_FRAMES))
        self.at(wire.far.arrival, lambda: self._end_of_stream(wire, wire.far))
        self.drain(peer)

    def forge(self, requests: Sequence[m.RaftRequest]) -> None:
        """A stranger connects to a node and speaks in the name of a server."""
        peer = self.nodes[requests[0].destination]
        if self.handshake or not isinstance(peer.core, garlic.Node):
            return
        self.happened["forged"] += 1
        far = self._accept(peer)
        if far is None:
            return
        wire = Wire(End(None, None, closed=True), far)
        self.wires.append(wire)
        translator = Translator(garlic.Limits())
        for request in requests:
            self._carry(wire, wire.far, translator.encode_request(request).encode())
        self.at(wire.far.arrival, lambda: self._end_of_stream(wire, wire.far))
        self.drain(peer)


@captures.of_failures
def run_garlic_seed(seed: int, **options: object) -> GarlicSimulator:
    """Run one seed; a failure names it."""
    simulator = GarlicSimulator(seed, **options)
    try:
        simulator.run()
    except Exception as error:
        error.add_note(f"seed {seed}; replay: CULM_GARLIC_FIRST_SEED={seed} CULM_GARLIC_SEEDS=1")
        raise
    return simulator
