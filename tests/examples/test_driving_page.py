"""The loop of the page on driving, taken straight from the page; and the one for asyncio."""

from __future__ import annotations

import asyncio
import re
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from nacl.signing import SigningKey

import culm_io
from culm.bamboo import LogAuthor, MemoryStore
from culm.effects import Answer
from culm.machine import (
    Closed,
    Durable,
    Effect,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
    StoreFailed,
    StreamBase,
    StreamMachine,
    Timed,
)
from culm.machines.memory import retained_size
from culm.point2point import Limits, Role
from culm.point2point.replication import EntryStored, Interest, Replicator, ReplicatorLimits
from culm.pump import Limits as PumpLimits
from culm.pump import Pump
from culm.pump import Timing as PumpTiming
from culm.wire.multihash import YAMF
from culm_io.asyncio.driver import MachineProtocol
from culm_io.sockets import driver as socket_driver
from culm_io.sockets import links as socket_links_driver
from culm_io.sockets import udp as socket_udp_driver
from culm_io.trio.driver import MachineDriver
from toy_machines import Keeper, LineReceived, Lines, ToyErrorCode

Run = Callable[..., Closed]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "driving.md"
SECONDS_MAX = 60  # of a driver that hangs; a working one takes far less
PATIENT = PumpTiming(linger_s=3600, linger_after_error_s=3600)  # a slow peer is not given up


def loops_of_the_page() -> list[str]:
    """The page's blocks that are not dialogues: for a stream, datagrams, several links."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return [block for block in blocks if ">>>" not in block]


@cache
def page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(loops_of_the_page()[0], str(PAGE), "exec"), names)
    return names


def run_page(machine: Any, connection: socket.socket, **handlers: Any) -> Closed:
    closed = page()["run"](Pump(machine, **handlers), connection)
    assert isinstance(closed, Closed)
    return closed


def run_trio(machine: Any, connection: socket.socket, **handlers: Any) -> Closed:
    """The same with the driver for trio, in its own loop."""

    async def main() -> Closed:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        return await MachineDriver(machine, stream, **handlers).run()

    return trio.run(main)


def run_asyncio(machine: Any, connection: socket.socket, **handlers: Any) -> Closed:
    """The same with the driver for asyncio, in its own loop."""

    async def main() -> Closed:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(
            lambda: MachineProtocol(machine, **handlers), sock=connection
        )
        return await protocol.wait_closed()

    return asyncio.run(main())


@pytest.fixture(params=[run_page, run_asyncio, run_trio])
def run(request: pytest.FixtureRequest) -> Run:
    """The page's loop; other drivers keep its promises as well."""
    found: Run = request.param
    return found


def test_the_loops_are_those_of_the_drivers() -> None:
    drivers = (socket_driver, socket_udp_driver, socket_links_driver)
    for driver, loop in zip(drivers, loops_of_the_page(), strict=True):
        head, _, source = Path(driver.__file__).read_text(encoding="utf-8").partition(loop)
        assert head.endswith("from __future__ import annotations\n\n")
        assert source == ""


def test_a_driver_has_less_than_a_hundred_lines() -> None:
    """The remainder, once the pump has seen to everything else."""
    loops = ("anyio", "asyncio", "sockets", "trio", "twisted")
    found = [path for loop in loops for path in Path(culm_io.__file__).parent.glob(f"{loop}/*.py")]
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in found}
    assert len(lines) > 15
    assert {name: count for name, count in lines.items() if count >= 100} == {}


# Replicators


def stored(seed: int, count: int, size: int) -> MemoryStore:
    """A store with one log of `count` incompressible payloads."""
    author, random = LogAuthor(SigningKey(bytes([seed]) * 32), family=YAMF), Random(seed)
    store = MemoryStore(family=YAMF)
    store.append(author.log, [author.publish(random.randbytes(size)) for _ in range(count)])
    return store


def replicator(role: Role, **limits: int) -> Replicator:
    return Replicator(
        role=role,
        limits=ReplicatorLimits(connection=Limits(**limits)),
        interest=Interest(accept_new_logs=True),
    )


def pair(size: int = 8192) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets with little room between them."""
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    return ends


def test_two_replicators_with_more_to_say_than_fits_between_them(run: Run) -> None:
    """Each has 20 entries of 100 kB for the other: one that only writes waits for ever."""
    done: set[Role] = set()

    def side(role: Role, connection: socket.socket) -> int:
        store, machine, fetched = stored(role, 20, 100_000), replicator(role), 0

        def on_event(event: Event) -> None:
            nonlocal fetched
            if isinstance(event, EntryStored):
                fetched += 1
                if fetched == 20:
                    done.add(role)
                    if len(done) == 2:
                        machine.close()

        run(
            machine,
            connection,
            perform=store.perform,
            on_event=on_event,
        )
        return fetched

    ends = pair()
    with ThreadPoolExecutor(2) as pool:
        sides = [pool.submit(side, role, end) for role, end in zip(Role, ends, strict=True)]
        try:
            assert [each.result(SECONDS_MAX) for each in sides] == [20, 20]
        finally:
            for end in ends:  # wakes up the waiting end
                if end.fileno() >= 0:
                    end.shutdown(socket.SHUT_RDWR)


class Meter:
    """The bytes that a driver holds: taken from the machine, not yet by the socket."""

    def __init__(self, machine: Any) -> None:
        self.machine, self.held, self.retained_max, self.size_max = machine, 0, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)

    def data_to_send(self, size_max: int | None = None) -> bytes:
        data: bytes = self.machine.data_to_send(size_max)
        self.held += len(data)
        self.retained_max = max(self.retained_max, self.held)
        self.size_max = max(self.size_max, retained_size(self.machine))
        return data


def _delegated(name: str) -> property:
    return property(lambda meter: getattr(meter.machine, name))


# Protocols are looked up on the class: attributes found only by `__getattr__` do not count.
for _name in {name for kind in (StreamMachine, Timed, Durable) for name in dir(kind)}:
    if not _name.startswith("_") and _name != "data_to_send":
        setattr(Meter, _name, _delegated(_name))


class MeteredSocket(socket.socket):
    meter: Meter

    def send(self, data: Any, flags: int = 0) -> int:
        size = super().send(data, flags)
        self.meter.held -= size
        return size

    def sendall(self, data: Any, flags: int = 0) -> None:
        super().sendall(data, flags)
        self.meter.held -= len(data)


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a loop waits for a peer that takes nothing."""
    stalled = threading.Event()

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            ready = super().select(0)
            waits_to_write = any(
                key.events & selectors.EVENT_WRITE for key in self.get_map().values()
            )
            if not ready and waits_to_write:
                stalled.set()
            return ready or super().select(timeout)

    monkeypatch.setattr(selectors, "DefaultSelector", Selector)
    return stalled


def test_a_peer_that_asks_for_everything_and_reads_nothing(stalled: threading.Event) -> None:
    """40 MB are requested at once, with a window for all of it; memory stays bounded."""
    store = stored(1, 40, 1_000_000)
    near, far = pair()
    machine = replicator(Role.REACTIVE)
    meter = Meter(machine)
    metered = MeteredSocket(fileno=near.detach())
    metered.meter = meter

    def peer() -> int:
        """Requests everything; reads until the first entry is under way.

        Returns the amount held before it leaves: then that is dropped, piece by piece.
        """
        wants = replicator(Role.PROACTIVE, data_window_max=1 << 40)
        empty = MemoryStore(family=YAMF)
        received = 0
        with far:
            while received < 50_000:
                while wants.next_event() is not None:
                    pass
                if (effect := wants.next_effect()) is not None:
                    Answer.of(effect, empty.perform).give(wants)
                    continue
                if data := wants.data_to_send():
                    far.sendall(data)
                    continue
                data = far.recv(4096)
                assert data, "the other end has gone"
                received += len(data)
                wants.receive_data(data)
            assert stalled.wait(SECONDS_MAX)
            return meter.retained_max

    with ThreadPoolExecutor(1) as pool:
        talk = pool.submit(peer)
        run_page(meter, metered, perform=store.perform)
        retained_max = talk.result(SECONDS_MAX)
    assert 0 < retained_max <= PumpLimits().piece_size_max
    assert meter.size_max < 4_000_000


# The end


class Talker(Lines):
    """Has a lot to say at the end."""

    def __init__(self, last_words: bytes) -> None:
        super().__init__()
        self.last_words = last_words

    def _ended(self, error: RemoteProtocolError | None) -> None:
        super()._ended(error)
        self._outbox.append(self.last_words)


def talk(
    run: Run, machine: StreamBase, peer: Callable[[socket.socket], object]
) -> tuple[Closed, Any]:
    """Drive `machine` against `peer`; the end, and what `peer` returns."""
    near, far = pair()
    with ThreadPoolExecutor(1) as pool:

        def reply() -> object:
            with far:
                return peer(far)

        answered = pool.submit(reply)
        return run(machine, near), answered.result(SECONDS_MAX)


def read_all(far: socket.socket) -> bytes:
    return b"".join(iter(lambda: far.recv(1 << 16), b""))


def test_last_words_reach_a_peer_that_is_still_talking() -> None:
    """It breaks a rule, and reads only after its own last word."""

    def peer(far: socket.socket) -> bytes:
        far.sendall(bytes(1_000_000))
        return read_all(far)

    last_words = b"why" * 100_000
    closed, said = talk(partial(run_page, timing=PATIENT), Talker(last_words), peer)
    assert closed.error is not None
    assert closed.error.code is ToyErrorCode.LINE_TOO_LONG
    assert said == last_words


def test_half_a_connection_is_enough_for_an_answer(run: Run) -> None:
    """The peer has said all (`shutdown`); everything it asked for still comes."""

    class Echo(Lines):
        def next_event(self) -> Event | None:
            event = super().next_event()
            if isinstance(event, LineReceived):
                self.say(event.text.upper())
            return event

    def peer(far: socket.socket) -> bytes:
        far.sendall(b"hello\n" * 50_000)
        far.shutdown(socket.SHUT_WR)
        return read_all(far)

    near, far = pair(1 << 20)
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(peer, far)
        closed = run(Echo(), near)
        assert said.result(SECONDS_MAX) == b"HELLO\n" * 50_000
    far.close()
    assert closed == Closed()


def test_an_effect_that_is_out_counts_as_bytes_to_come() -> None:
    """The peer has said all, and only then the store, in another thread, is at work."""
    ended = threading.Event()

    class Ended(Keeper):
        def receive_eof(self) -> None:
            super().receive_eof()
            ended.set()

    def perform(effect: Effect[Any]) -> int:
        assert ended.wait(SECONDS_MAX)
        return 1

    async def main() -> Closed:
        loop = asyncio.get_running_loop()
        machine = Ended(effects_max=1)
        _, protocol = await loop.create_connection(
            lambda: MachineProtocol(machine, perform=perform, executor=pool), sock=near
        )
        return await protocol.wait_closed()

    def peer() -> bytes:
        far.sendall(b"precious\nmore\n")
        far.shutdown(socket.SHUT_WR)
        return read_all(far)

    near, far = pair(1 << 16)
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as other, far:
        said = other.submit(peer)
        closed = asyncio.run(main())
        assert said.result(SECONDS_MAX) == b"ok\nok\n"
    assert closed == Closed()


def test_a_store_that_gives_no_answer_has_failed(run: Run) -> None:
    """Its answer is refused by the machine; the driver reports that after the goodbye."""
    events: list[Event] = []
    near, far = pair(1 << 16)
    with far:
        far.sendall(b"precious\n")
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(LocalProtocolError, match="wrong result"):
            run(Keeper(), near, perform=lambda effect: "place 1", on_event=events.append)
    assert isinstance(events[-2], StoreFailed)
    assert events[-1] == Closed()


def test_an_end_of_the_stream_that_is_no_end_to_the_machine() -> None:
    """No verbs are called from outside a blocking loop, so nothing more can happen."""

    class Unmoved(Lines):
        def _step_eof(self) -> Event | None:
            return Closed() if self._closing else None

    def peer(far: socket.socket) -> bytes:
        far.shutdown(socket.SHUT_WR)
        return read_all(far)

    assert talk(run_page, Unmoved(), peer) == (Closed(), b"bye\n")


def test_the_end_of_our_words_is_told_before_the_peer_ends() -> None:
    """The peer waits for our end of the stream, then says a last thing, then ends."""

    def peer(far: socket.socket) -> bytes:
        far.sendall(b"bye\n")
        said = read_all(far)
        far.sendall(b"what comes after the end")
        return said

    assert talk(run_page, Lines(), peer) == (Closed(), b"bye\n")


def test_a_peer_that_takes_nothing_any_more(run: Run) -> None:
    """Its earlier bytes are still read; ours go nowhere, and the machine is told."""
    read = threading.Event()
    events: list[Event] = []

    def on_event(event: Event) -> None:
        events.append(event)
        if event == LineReceived(text=b"one"):
            far.shutdown(socket.SHUT_RD)
            machine.say(b"in vain")
        if event == LineReceived(text=b"two"):
            read.set()

    near, far = pair()
    machine = Lines()
    far.sendall(b"one\ntwo\n")
    with ThreadPoolExecutor(1) as pool, far:
        driven = pool.submit(run, machine, near, on_event=on_event)
        assert read.wait(SECONDS_MAX)
        far.shutdown(socket.SHUT_WR)
        assert driven.result(SECONDS_MAX) == Closed()
    assert events == [LineReceived(text=b"one"), LineReceived(text=b"two"), Closed()]


# Time


def test_silence_is_measured_from_the_moment_when_something_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nearly a minute of waiting ends with a line: from then on, there is a minute again."""
    waits: list[float | None] = []
    now = 1000.0
    near, far = pair()

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            nonlocal now
            waits.append(timeout)
            if len(waits) == 1:
                now += 59.0
                far.sendall(b"still here\n")
            elif len(waits) == 2:
                assert timeout is not None
                now += timeout
                return []
            elif len(waits) == 3:
                far.sendall(b"bye\n")
                far.shutdown(socket.SHUT_WR)
            return super().select(1)

    monkeypatch.setattr(selectors, "DefaultSelector", Selector)
    monkeypatch.setitem(page(), "monotonic", lambda: now)
    with far:
        assert run_page(Keeper(idle=60.0), near, perform=lambda effect: 0) == Closed()
        assert read_all(far) == b"ok\nbye\n"
    assert waits[:2] == [60.0, 60.0]
