"""The driver for anyio, on each of its event loops."""

from __future__ import annotations

import socket
import threading
from typing import Any

import anyio
import anyio.abc
import pytest
from driving import connected
from processes import SECONDS_MAX, wait_until

from culm.machine import Closed, Event
from culm.pump import AbortedError
from culm_io.anyio.driver import StreamDriver
from toy_machines import Keeper, Kept, LineReceived

LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return LOOPS[request.param]


def test_verbs_effects_and_the_end(loop: dict[str, Any]) -> None:
    texts = [b"%d" % number for number in range(40)]
    kept: list[bytes] = []
    events: list[Event] = []

    def keep(effect: Any) -> int:
        kept.append(effect.text)
        return len(kept)

    async def main() -> Closed:
        machine = Keeper()
        with connected() as (near, far):
            stream = await anyio.abc.SocketStream.from_socket(near)
            driver = StreamDriver(machine, stream, perform=keep, on_event=events.append)
            driver.call(machine.say, b"hello")
            far.sendall(b"\n".join([*texts, b"bye", b""]))
            far.shutdown(socket.SHUT_WR)
            closed = await driver.run()
            assert far.makefile("rb").read() == b"hello\n" + b"ok\n" * 40 + b"bye\n"
        return closed

    assert anyio.run(main, **loop) == Closed()
    assert kept == texts
    assert [event.place for event in events if isinstance(event, Kept)] == list(range(1, 41))


def test_cancelled_it_waits_for_the_thread_at_the_store(loop: dict[str, Any]) -> None:
    began, proceed, done = threading.Event(), threading.Event(), threading.Event()
    events: list[Event] = []

    def keep(effect: Any) -> int:
        began.set()
        assert proceed.wait(SECONDS_MAX)
        done.set()
        return 1

    def let_go(driver: StreamDriver) -> None:
        wait_until(lambda: driver.pump.hung_up)
        proceed.set()

    async def main() -> None:
        with connected() as (near, far):
            stream = await anyio.abc.SocketStream.from_socket(near)
            driver = StreamDriver(Keeper(), stream, perform=keep, on_event=events.append)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(driver.run)
                far.sendall(b"first\nsecond\n")
                while not began.is_set() or len(events) < 2:
                    await anyio.sleep(0.001)
                threading.Thread(target=let_go, args=(driver,)).start()
                tasks.cancel_scope.cancel()
            with pytest.raises(AbortedError):
                driver.pump.result()

    anyio.run(main, **loop)
    assert done.is_set()
    assert events == [LineReceived(text=b"first"), LineReceived(text=b"second")]


def test_time_is_told_when_it_is_due(loop: dict[str, Any]) -> None:
    heard: list[bytes] = []

    def listen(far: socket.socket) -> None:
        with far.makefile("rb") as words:
            heard.append(words.readline())
            far.shutdown(socket.SHUT_WR)
            heard.append(words.read())

    async def main() -> Closed:
        with connected() as (near, far):
            thread = threading.Thread(target=listen, args=(far,))
            thread.start()
            stream = await anyio.abc.SocketStream.from_socket(near)
            closed = await StreamDriver(Keeper(idle=0.05), stream, perform=lambda _: 1).run()
            thread.join()
        return closed

    assert anyio.run(main, **loop) == Closed()
    assert heard == [b"bye\n", b""]
