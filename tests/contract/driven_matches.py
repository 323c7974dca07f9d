"""Each pump and each driver hands a machine's own events to a ``match`` that has every case.

This is never run: mypy and pyright check it.  A handler for another machine's events is an error; a
comment allows each one here, and mypy reports a comment that is not needed.
"""

# pyright: reportUnnecessaryComparison=false, reportPrivateUsage=false

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random
from typing import assert_never, assert_type

from anyio.abc import ByteStream
from trio.abc import Stream
from twisted.internet.base import ReactorBase

from culm import bymux, garlic, oxen
from culm.capture import Recorder, record
from culm.garlic import raft
from culm.garlic.store import Store
from culm.machine import Closed, StoreFailed
from culm.point2point import replication
from culm.pump import DatagramPump, LinkedPump, Pump
from culm.ssb import peer
from culm.ssb.store import FeedStore
from culm_io import anyio, asyncio, sockets, trio, twisted
from culm_io.asyncio.garlic import NodeDriver
from culm_io.asyncio.ssb import DialFailed, PeerDriver
from culm_io.trio.garlic import NodeDriver as TrioNodeDriver

Sink = Callable[[bytes], object]


def at_replicator(event: replication.ReplicatorEvent) -> None:
    match event:
        case replication.LogOffered() | replication.LogSynced() | replication.LogEnded():
            pass
        case replication.EntryStored() | replication.PayloadProgress():
            pass
        case replication.PiecesNotified() | replication.ForkFound() | replication.LogRefused():
            pass
        case replication.Settled() | StoreFailed() | Closed():
            pass
        case rest:
            assert_never(rest)


def at_server(event: oxen.NodeEvent) -> None:
    match event:
        case oxen.MessageReceived() | oxen.Delivered() | oxen.SendFailed() | oxen.Writable():
            pass
        case oxen.SendWaiting() | oxen.SendResumed():
            pass
        case oxen.PeerJoined() | oxen.PeerLeft() | oxen.TagsChanged():
            pass
        case oxen.PeerReachable() | oxen.PeerUnreachable() | oxen.PeerForgotten():
            pass
        case Closed():
            pass
        case rest:
            assert_never(rest)


def at_streams(event: bymux.ConnectionEvent) -> None:
    match event:
        case bymux.StreamCreated() | bymux.StreamEnded() | bymux.StreamData():
            pass
        case bymux.StreamCredit() | bymux.CreationCredit():
            pass
        case bymux.PingReceived() | bymux.PongReceived():
            pass
        case bymux.CloseReceived() | bymux.StopReadReceived() | Closed():
            pass
        case rest:
            assert_never(rest)


def at_node(event: garlic.NodeEvent) -> None:
    match event:
        case garlic.DialWanted() | garlic.LinkClosed():
            pass
        case rest:
            assert_type(rest, raft.RaftEvent)


def at_peer(event: peer.PeerEvent | DialFailed) -> None:
    match event:
        case DialFailed() | peer.PeerDisconnected():
            pass
        case _:
            pass


def streams(connection: bymux.Connection) -> None:
    """A machine built on `StreamBase`."""
    assert_type(Pump(connection, on_event=at_streams), Pump[bymux.ConnectionEvent])
    driver = asyncio.MachineProtocol(connection, on_event=at_streams)
    assert_type(driver, asyncio.MachineProtocol[bymux.ConnectionEvent])
    Pump(connection, on_event=at_server)  # type: ignore[arg-type]


def recorded(connection: bymux.Connection, node: garlic.Node, sink: Sink) -> None:
    """A machine that is recorded, which has its own type."""
    recorder = Recorder(sink)
    assert_type(recorder.stand_in(connection), bymux.Connection)
    assert_type(record(node, sink), garlic.Node)
    assert_type(recorder.make(oxen.Node, me=b"a", rng=Random(), epoch=0.0), oxen.Node)
    pump = Pump(connection, on_event=at_streams, tap=recorder.stand_in)
    assert_type(pump, Pump[bymux.ConnectionEvent])
    recorder.make(oxen.Node, sid=1)  # type: ignore[call-arg]


def pumps(replicator: replication.Replicator, node: garlic.Node, server: oxen.Node) -> None:
    pump = Pump(replicator, on_event=at_replicator)
    assert_type(pump, Pump[replication.ReplicatorEvent])
    assert_type(pump.machine.next_event(), replication.ReplicatorEvent | None)
    assert_type(LinkedPump(node, on_event=at_node), LinkedPump[garlic.NodeEvent])
    datagrams = DatagramPump(server, on_event=at_server)
    assert_type(datagrams.next_datagram(0.0), tuple[bytes, bytes] | None)
    Pump(replicator, on_event=at_server)  # type: ignore[arg-type]
    LinkedPump(node, on_event=at_replicator)  # type: ignore[arg-type]
    DatagramPump(server, on_event=at_node)  # type: ignore[arg-type]


def drivers_of_connections(
    machine: replication.Replicator, stream: Stream, bytes_: ByteStream, reactor: ReactorBase
) -> None:
    assert_type(
        trio.MachineDriver(machine, stream, on_event=at_replicator),
        trio.MachineDriver[replication.ReplicatorEvent],
    )
    assert_type(
        anyio.StreamDriver(machine, bytes_, on_event=at_replicator),
        anyio.StreamDriver[replication.ReplicatorEvent],
    )
    assert_type(
        asyncio.MachineProtocol(machine, on_event=at_replicator),
        asyncio.MachineProtocol[replication.ReplicatorEvent],
    )
    assert_type(
        twisted.MachineProtocol(machine, reactor, on_event=at_replicator),
        twisted.MachineProtocol[replication.ReplicatorEvent],
    )
    trio.MachineDriver(machine, stream, on_event=at_server)  # type: ignore[arg-type]
    anyio.StreamDriver(machine, bytes_, on_event=at_server)  # type: ignore[arg-type]
    asyncio.MachineProtocol(machine, on_event=at_server)  # type: ignore[arg-type]
    twisted.MachineProtocol(machine, reactor, on_event=at_server)  # type: ignore[arg-type]
    sockets.run(Pump(machine, on_event=at_replicator), socket.socket())


def drivers_of_links(node: garlic.Node, store: Store, friend: peer.Peer, feeds: FeedStore) -> None:
    NodeDriver(node, store, on_event=at_node)
    sockets.LinksLoop(LinkedPump(node, on_event=at_node), socket.socket(), node.accepted)
    TrioNodeDriver(node, store, on_event=at_node)
    PeerDriver(friend, feeds, on_event=at_peer)
    asyncio.LinksDriver(node, on_event=at_node)
    trio.LinksDriver(node, on_event=at_node)
    NodeDriver(node, store, on_event=at_server)  # type: ignore[arg-type]
    TrioNodeDriver(node, store, on_event=at_server)  # type: ignore[arg-type]
    PeerDriver(friend, feeds, on_event=at_node)  # type: ignore[arg-type]
    asyncio.LinksDriver(node, on_event=at_server)  # type: ignore[arg-type]
    trio.LinksDriver(node, on_event=at_server)  # type: ignore[arg-type]


def drivers_of_datagrams(
    server: oxen.Node,
    address_of: Callable[[bytes], tuple[str, int]],
    name_of: Callable[[tuple[str, int]], bytes | None],
    number_of: Callable[[tuple[str, int]], int | None],
    addresses: dict[bytes, tuple[str, int]],
) -> None:
    asyncio.UdpDriver(server, address_of=address_of, name_of=name_of, on_event=at_server)
    sockets.run_datagrams(DatagramPump(server, on_event=at_server), socket.socket(), addresses)
    asyncio.UdpDriver(server, address_of=address_of, name_of=name_of, on_event=at_node)  # type: ignore[arg-type]
