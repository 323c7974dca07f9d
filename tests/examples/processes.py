"""Runs ``culm directory`` in processes, and peers that misbehave."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from culm.wire.multihash import YAMF
from culm_io.command import command_of
from culm_io.programs.directory.check import check_log
from culm_io.stores.bamboo import SqliteStore, StoreFileError

SECONDS_MAX = 120  # before a hang counts as one: nothing that works takes any of it


@dataclass(frozen=True)
class Done:
    """A process that has ended: its exit status, its output, and the last line of that as JSON."""

    status: int
    output: str
    errors: str

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads(self.output.splitlines()[-1])
        return summary


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start a command; its errors go nowhere unless it is finished with `finish`."""
    return subprocess.Popen(
        command_of("directory", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> Done:
    """Wait for the end of a process."""
    try:
        output, errors = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert "Traceback" not in errors, errors
    return Done(process.returncode, output, errors)


def run(*arguments: object) -> Done:
    """Run a command to its end."""
    return finish(start(*arguments))


def fetch(store: Path, port: int, into: Path | None = None, *options: object) -> Done:
    """Fetch in a process, for no longer than a test may wait."""
    return finish(start_fetch(store, port, into, *options))


def start_fetch(
    store: Path, port: int, into: Path | None = None, *options: object
) -> subprocess.Popen[str]:
    target = [] if into is None else ["--into", into]
    address = f"127.0.0.1:{port}"
    return start(
        "fetch", "--store", store, "--from", address, *target, "--settle", "0.15", *options
    )


@contextmanager
def serving(store: Path, *options: object) -> Iterator[int]:
    """A server in a process; its port.  It has to end well."""
    with server_process(store, *options) as (port, _):
        yield port


@contextmanager
def server_process(store: Path, *options: object) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server in a process: its port, and the process.  It has to end well."""
    process = start("serve", "--store", store, "--port", "0", *options)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if line:
            yield json.loads(line)["port"], process
    finally:
        process.send_signal(signal.SIGTERM)
        done = finish(process)
    assert line, done.errors
    assert done.status == 0, done.errors


def stored_size(path: Path) -> int:
    """The bytes of payloads in a store, which may be in use or not exist yet."""
    if not path.exists():
        return 0
    try:
        with SqliteStore(path, family=YAMF, must_exist=True) as store:
            return sum(e.payload_stored for log in store.logs() for e in store.entries(log))
    except (sqlite3.Error, StoreFileError):
        return 0


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; the time limit of the test is the only one."""
    while not condition():
        time.sleep(0.02)


def whole_entries(path: Path) -> int:
    """The number of entries in a store that have their payloads; all of them must verify."""
    with SqliteStore(path, family=YAMF, must_exist=True) as store:
        reports = [check_log(store, log) for log in store.logs()]
    assert [report.faults for report in reports] == [[]] * len(reports)
    return sum(report.payloads for report in reports)


@contextmanager
def in_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS_MAX)
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def turns() -> None:
    """Let the loop do everything that is due, and everything that follows from it."""
    for _ in range(5):
        await asyncio.sleep(0)


@contextmanager
def server(factory: Callable[[], asyncio.BaseProtocol]) -> Iterator[int]:
    """A server in this process, with protocols made by `factory`; its port."""

    made: list[asyncio.BaseProtocol] = []

    def connected() -> asyncio.BaseProtocol:
        made.append(factory())
        return made[-1]

    async def begin() -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)

    async def end() -> None:
        await turns()  # newcomers get a transport, which needs a server that listens
        listening.close()
        for protocol in made:
            if (transport := getattr(protocol, "transport", None)) is not None:
                transport.abort()
        await turns()  # and lose it: a transport left open would be an error of some later test

    with in_loop() as loop:
        listening = asyncio.run_coroutine_threadsafe(begin(), loop).result(SECONDS_MAX)
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            asyncio.run_coroutine_threadsafe(end(), loop).result(SECONDS_MAX)


@contextmanager
def saying(data: bytes, *, then_close: bool = False) -> Iterator[int]:
    """A server that sends the same bytes to every client, whatever it hears; its port."""

    def talk(listening: socket.socket, stack: ExitStack) -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            stack.enter_context(connection)
            with suppress(OSError):  # the client is gone
                connection.sendall(data)
                if then_close:
                    connection.shutdown(socket.SHUT_WR)

    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=talk, args=(listening, stack))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(SECONDS_MAX)


class Throttle:
    """Passes bytes on to a server, and only a limited number of bytes back.

    Afterwards it is silent, or closes the connection.  With `flip`, one bit of the byte at that
    index is flipped.
    """

    def __init__(
        self,
        port: int,
        size: int | None = None,
        *,
        then_close: bool = False,
        flip: int | None = None,
    ) -> None:
        self.reached = threading.Event()
        self._target = port
        self._size = -1 if size is None else size
        self._flip = flip
        self._then_close = then_close
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> int:
        self._run(self._accept)
        port: int = self._listening.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        for each in (self._listening, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(SECONDS_MAX)

    def _run(self, target: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        try:
            near = self._listening.accept()[0]
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", self._target))
        self._connections += [near, far]
        self._run(self._pass_on, near, far)
        self._run(self._pass_on_some, far, near)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def _pass_on_some(self, source: socket.socket, sink: socket.socket) -> None:
        passed = 0
        with suppress(OSError):
            while passed != self._size:
                left = (self._size - passed) % (1 << 16) or 1 << 16
                data = bytearray(source.recv(left))
                if self._flip is not None and passed <= self._flip < passed + len(data):
                    data[self._flip - passed] ^= 1
                if not data:
                    break
                sink.sendall(data)
                passed += len(data)
            if passed != self._size or self._then_close:
                sink.shutdown(socket.SHUT_WR)
        self.reached.set()
