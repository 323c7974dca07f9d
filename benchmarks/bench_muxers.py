"""Echoes a second on many streams of one connection: bymux beside py-libp2p's muxers, by turns.

::

    python -m pip install libp2p
    python benchmarks/bench_muxers.py [--rounds 5] [--streams 100] [--echoes 20] [--size 1024]

Both ends run in one process, under trio, over a pair of sockets: one opens the streams, and on each
sends a message, waits for its echo, and sends the next.  The connection has no encryption, which in
libp2p comes before a muxer. py-libp2p has a task for each stream, culm a handler of events, as each
is meant to be used.  A message goes in one frame, and the windows have room for it.  The comparison
is of both ends' processor time; a ratio is the median of the rounds' ratios.  Without the package
there is nothing to compare: it says so, and exits with status 0.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import trio

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

from clock import frozen
from culm.bymux import Connection, ConnectionEvent, InitialState, Role, StreamCreated, StreamData
from culm_io.trio import MachineDriver


class Load(NamedTuple):
    """Numbers of streams, of echoes on each, and of bytes in a message."""

    streams: int
    echoes: int
    size: int


Meeting = Callable[[Load, trio.SocketStream, trio.SocketStream], Awaitable[int]]


# bymux


async def bymux(load: Load, ours: trio.SocketStream, theirs: trio.SocketStream) -> int:
    """The number of echoes received."""
    credit = 4 * load.size
    initial = InitialState(
        local_creation_credit=load.streams,
        local_creator_credit=credit,
        remote_creator_credit=credit,
    )
    client = Connection(role=Role.PROACTIVE, initial=initial)
    server = Connection(role=Role.REACTIVE, initial=initial.mirrored())
    message, came = bytes(load.size), dict.fromkeys(range(0, 2 * load.streams, 2), 0)

    def on_server(event: ConnectionEvent) -> None:
        match event:
            case StreamCreated():
                server.stream(event.stream_id).set_window(credit)
            case StreamData():
                stream = server.stream(event.stream_id)
                stream.consumed(len(event.data))
                stream.send_data(event.data)

    def on_client(event: ConnectionEvent) -> None:
        if isinstance(event, StreamData):
            stream = client.stream(event.stream_id)
            stream.consumed(len(event.data))
            came[event.stream_id] += len(event.data)
            whole, part = divmod(came[event.stream_id], load.size)
            if not part and whole < load.echoes:
                stream.send_data(message)
            elif not part and min(came.values()) == load.echoes * load.size:
                client.close()

    def begin() -> None:
        for _ in range(load.streams):
            stream = client.create_stream()
            stream.set_window(credit)
            stream.send_data(message)

    near = MachineDriver[ConnectionEvent](client, ours, on_event=on_client)
    far = MachineDriver[ConnectionEvent](server, theirs, on_event=on_server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.run)
        nursery.start_soon(far.run)
        await trio.lowlevel.checkpoint()
        near.call(begin)
    return sum(came.values()) // load.size


# py-libp2p


class Plain:
    """A connection without encryption, which a muxer of py-libp2p takes for a secured one."""

    def __init__(self, stream: trio.SocketStream, *, is_initiator: bool) -> None:
        self._stream, self.is_initiator = stream, is_initiator
        self._writing = trio.Lock()

    async def read(self, n: int | None = None) -> bytes:
        try:
            return bytes(await self._stream.receive_some(n))
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return b""

    async def write(self, data: bytes) -> None:
        async with self._writing:
            await self._stream.send_all(data)

    async def close(self) -> None:
        await self._stream.aclose()


async def read_all(stream: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await stream.read(size - len(data))
        assert piece, "the stream has ended"
        data += piece
    return data


async def libp2p(muxer: Any, load: Load, ours: trio.SocketStream, theirs: trio.SocketStream) -> int:
    """The number of echoes received."""
    peer = import_module("libp2p.peer.id").ID(b"peer")
    client = muxer(Plain(ours, is_initiator=True), peer)
    server = muxer(Plain(theirs, is_initiator=False), peer)
    message, came = bytes(load.size), 0

    async def echo(stream: Any) -> None:
        for _ in range(load.echoes):
            await stream.write(await read_all(stream, load.size))

    async def accept(nursery: trio.Nursery) -> None:
        for _ in range(load.streams):
            nursery.start_soon(echo, await server.accept_stream())

    async def ask(stream: Any) -> None:
        nonlocal came
        for _ in range(load.echoes):
            await stream.write(message)
            answer = await read_all(stream, load.size)
            came += answer == message

    async with trio.open_nursery() as running:
        for end in (client, server):
            running.start_soon(end.start)
            await end.event_started.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept, nursery)
            for _ in range(load.streams):
                nursery.start_soon(ask, await client.open_stream())
        running.cancel_scope.cancel()
    return came


def measured(meeting: Meeting, load: Load) -> float:
    """Echoes a processor second."""

    async def main() -> int:
        ends = [trio.SocketStream(trio.socket.from_stdlib_socket(s)) for s in socket.socketpair()]
        try:
            return await meeting(load, *ends)
        finally:
            for end in ends:
                await end.aclose()

    with frozen():
        start = process_time()
        came = trio.run(main)
        spent = process_time() - start
    assert came == load.streams * load.echoes
    return came / spent


def main() -> int:
    parser = argparse.ArgumentParser(description="Echoes on the streams of one connection.")
    parser.add_argument("--rounds", type=int, default=5)
    for name, default in Load(100, 20, 1024)._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    if find_spec("libp2p") is None:
        print("not compared: py-libp2p is not installed")
        return 0
    load = Load(given.streams, given.echoes, given.size)
    print(f"py-libp2p {version('libp2p')}: {load}")
    print("| Echoes a processor second | bymux | py-libp2p | ratio |\n| --- | ---: | ---: | ---: |")
    for name, place in (("Yamux", "yamux.yamux"), ("Mplex", "mplex.mplex")):
        muxer = getattr(import_module(f"libp2p.stream_muxer.{place}"), name)
        rounds = [
            (measured(bymux, load), measured(partial(libp2p, muxer), load))
            for _ in range(given.rounds)
        ]
        ours, theirs = (median(side) for side in zip(*rounds, strict=True))
        ratio = median(one / other for one, other in rounds)
        print(f"| {name.lower()} | {ours:,.0f} | {theirs:,.0f} | {ratio:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
