"""The driver for trio: cancelled, resumed, and with a server of `examples/` as its peer."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from nacl.signing import SigningKey
from processes import SECONDS_MAX, serving, wait_until

from culm.bamboo import LogAuthor, LogKey, MemoryStore
from culm.machine import Closed, Effect, Event
from culm.point2point import Role
from culm.point2point.replication import (
    EntryStored,
    Interest,
    PayloadProgress,
    Replicator,
    ReplicatorLimits,
)
from culm.pump import AbortedError, Timing
from culm.wire.multihash import YAMF
from culm_io.stores.bamboo import SqliteStore
from culm_io.trio.driver import MachineDriver
from toy_machines import Keeper, Kept, LineReceived, Lines, ToyState

KEY = SigningKey(bytes(range(32)))
LOG = LogKey(bytes(KEY.verify_key), 0)
SIZE = 20_000_000
LIMITS = ReplicatorLimits(unwritten_size_max=1 << 21)  # may be stored after a cancellation


async def fetch(port: int, store: MemoryStore, until: int | None) -> tuple[int, list[Event]]:
    """Fetch until `until` bytes of the payload are stored, then be cancelled; bytes and events."""
    events: list[Event] = []
    machine = Replicator(
        role=Role.PROACTIVE, interest=Interest(accept_new_logs=True), limits=LIMITS
    )

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, PayloadProgress) and until is not None and event.stored >= until:
            scope.cancel()
        elif isinstance(event, EntryStored) and event.payload_stored:
            machine.close()

    with trio.CancelScope() as scope:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        driver = MachineDriver(machine, stream, perform=store.perform, on_event=on_event)
        await driver.run()
    assert scope.cancelled_caught is (until is not None)
    return driver.pump.bytes_received, events


def test_a_payload_of_20_mb_is_resumed_after_two_cancellations(tmp_path: Path) -> None:
    author, payload = LogAuthor(KEY, family=YAMF), Random(1).randbytes(SIZE)
    with SqliteStore(tmp_path / "store", family=YAMF) as published:
        published.append(LOG, [author.publish(payload)])
    store = MemoryStore(family=YAMF)
    missing = SIZE
    with serving(tmp_path / "store") as port:
        for until in (SIZE // 4, SIZE // 2, None):
            size, events = trio.run(fetch, port, store, until)
            assert size < 1.1 * missing  # no stored byte comes again
            kept = store.entry(LOG, 1)
            assert kept is not None
            missing = SIZE - kept.payload_stored
            if until is not None:
                assert until <= kept.payload_stored < SIZE
                assert not any(isinstance(event, Closed) for event in events)
    assert events[-1] == Closed()
    assert store.read_payload(LOG, 1, 0, SIZE) == payload


def drive(
    machine: Any, talk: Any, clock: trio.testing.MockClock | None = None, **handlers: Any
) -> Closed:
    """Run `machine` against `talk`, which gets the other end of a stream in memory.

    Time passes when there is nothing else to do, unless `clock` says otherwise.
    """

    async def main() -> Closed:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            driver = MachineDriver(machine, near, **handlers)
            nursery.start_soon(talk, driver, far)
            return await driver.run()

    return trio.run(main, clock=clock or trio.testing.MockClock(autojump_threshold=0.01))


def test_verbs_may_be_called_from_other_tasks() -> None:
    machine = Lines()

    async def talk(driver: MachineDriver, far: Any) -> None:
        driver.call(machine.say, b"hello")
        assert await far.receive_some() == b"hello\n"
        await far.send_all(b"bye\n")
        assert await far.receive_some() == b"bye\n"
        await far.aclose()

    assert drive(machine, talk) == Closed()


def test_time_is_told_when_it_is_due() -> None:
    clock = trio.testing.MockClock()  # which does not take a busy thread for idleness

    async def talk(driver: MachineDriver, far: Any) -> None:
        clock.jump(6)
        await far.send_all(b"a sign of life\n")
        assert await far.receive_some() == b"ok\n"
        clock.jump(9)
        await trio.testing.wait_all_tasks_blocked()
        assert machine.state is ToyState.OPEN
        clock.jump(1)
        assert await far.receive_some() == b"bye\n"
        await far.aclose()

    machine = Keeper(idle=10)
    assert drive(machine, talk, clock, perform=lambda effect: 1) == Closed()


def test_last_words_that_nobody_takes_are_given_up() -> None:
    async def talk(driver: MachineDriver, far: Any) -> None:
        await far.send_all(b"bye\n")
        started = trio.current_time()
        while not driver.pump.hung_up:
            await trio.sleep(0.5)
        assert 6 <= trio.current_time() - started <= 8

    assert drive(Lines(), talk, timing=Timing(linger_s=7)) == Closed()


def test_a_slow_store_holds_up_nobody_and_is_waited_for_when_cancelled() -> None:
    proceed, began, done = threading.Event(), threading.Event(), threading.Event()

    def perform(effect: Effect[Any]) -> int:
        began.set()
        assert proceed.wait(SECONDS_MAX)
        done.set()
        return 1

    def let_go(driver: MachineDriver) -> None:
        wait_until(lambda: driver.pump.hung_up)
        proceed.set()

    events: list[Event] = []

    async def main() -> None:
        near, far = trio.testing.memory_stream_pair()
        driver = MachineDriver(Keeper(), near, perform=perform, on_event=events.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(driver.run)
            await far.send_all(b"first\nsecond\n")
            while not began.is_set() or len(events) < 2:
                await trio.sleep(0.001)
            threading.Thread(target=let_go, args=(driver,)).start()
            nursery.cancel_scope.cancel()
        assert driver.pump.hung_up
        with pytest.raises(AbortedError):
            driver.pump.result()

    trio.run(main)
    assert done.is_set()
    assert events == [LineReceived(text=b"first"), LineReceived(text=b"second")]


def test_what_a_handler_raises_ends_the_connection() -> None:
    async def talk(driver: MachineDriver, far: Any) -> None:
        await far.send_all(b"line\n")
        assert await far.receive_some() == b""

    def fail(event: Event) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        drive(Lines(), talk, on_event=fail)


def test_effects_are_answered_in_order() -> None:
    texts = [b"%d" % number for number in range(40)]
    kept: list[bytes] = []
    events: list[Event] = []

    def perform(effect: Any) -> int:
        kept.append(effect.text)
        return len(kept)

    async def talk(driver: MachineDriver, far: Any) -> None:
        await far.send_all(b"\n".join([*texts, b"bye", b""]))
        async for _ in far:
            pass
        await far.aclose()

    assert drive(Keeper(), talk, perform=perform, on_event=events.append) == Closed()
    assert kept == texts
    places = [event.place for event in events if isinstance(event, Kept)]
    assert places == list(range(1, 41))
