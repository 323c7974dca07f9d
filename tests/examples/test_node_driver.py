"""The asyncio driver of a node honours backpressure, both ways."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from itertools import count

import pytest
from driving import Tls
from processes import SECONDS_MAX

from culm.capture import Recorder, read
from culm.capture.dissect import bytes_of
from culm.garlic.events import DialWanted
from culm.garlic.handshake import Credentials
from culm.garlic.limits import Limits
from culm.garlic.messages import RESPONSE_SIZE, MessageType, RequestFrame, ResponseFrame
from culm.garlic.node import Node
from culm.garlic.raft import Configuration, Server, Snapshot, Stored
from culm.garlic.store import MemoryStore
from culm.garlic.values import LogEntry, ValueType, encode_entries
from culm.machine import Event
from culm.testing.raft_store_model import Values
from culm_io.asyncio.garlic import NodeDriver

COUNT = 20_000
VALUE = LogEntry(0, ValueType.APPLICATION, b"x" * 100)
ASKED = RequestFrame(type=MessageType.CLIENT_REQUEST, log=encode_entries([VALUE])).encode()


async def ask_much_and_read_late() -> tuple[list[ResponseFrame], int]:
    """A client sends everything before it reads anything; the answers, and the bytes received."""
    servers = (Server(1, "tcp://127.0.0.1:1"),)
    store = MemoryStore(
        Values(), Stored(snapshot=Snapshot(configuration=Configuration(0, 0, servers)))
    )
    loop = asyncio.get_running_loop()
    node = Node(server_id=1, stored=store.load(), rng=random.Random(1), now=loop.time())
    driver = NodeDriver(node, store)
    _, port = await driver.listen("127.0.0.1", 0)
    while node.leader != 1 or node.applied_index < 1:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASKED * COUNT)
    await asyncio.sleep(0.2)  # everything that can be taken without a reader is
    data = await reader.readexactly(COUNT * RESPONSE_SIZE)
    writer.close()
    await driver.stop()
    limits = Limits()
    pieces = range(0, len(data), RESPONSE_SIZE)
    return [
        ResponseFrame.decode(data[at : at + RESPONSE_SIZE], limits) for at in pieces
    ], node.commit_index


async def ask_for_a_wrong_path_and_go_on(size: int) -> bytes:
    """A client sends more than the node wants before it reads; the bytes that it reads."""
    loop = asyncio.get_running_loop()
    node = Node(server_id=1, stored=Stored(), rng=random.Random(1), now=loop.time())
    handshake = Credentials(user="u", password="p", rng=random.Random(2)).handshake
    driver = NodeDriver(node, MemoryStore(Values(), Stored()), handshake=handshake)
    _, port = await driver.listen("127.0.0.1", 0)

    def talk() -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /elsewhere HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(size))
            return b"".join(iter(lambda: client.recv(1 << 16), b""))

    said = await asyncio.to_thread(talk)
    await driver.stop()
    return said


async def say_something_to_a_recorded_node() -> bytes:
    """A client says something; the capture."""
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine="garlic-node")
    loop = asyncio.get_running_loop()
    node = Node(server_id=1, stored=Stored(), rng=random.Random(1), now=loop.time())
    store = MemoryStore(Values(), Stored())
    driver = NodeDriver(node, store, tap=recorder.stand_in)
    _, port = await driver.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASKED)
    await reader.readexactly(RESPONSE_SIZE)
    writer.close()
    await driver.stop()
    recorder.flush()
    return b"".join(pieces)


def test_a_tap_hears_what_goes_over_links() -> None:
    capture = asyncio.run(say_something_to_a_recorded_node())
    moved = [(step.name, each.data) for step in read(capture) for each in bytes_of(step)]
    assert ("receive_data", ASKED) in moved
    assert {name for name, _ in moved} == {"receive_data", "data_to_send"}


def test_last_words_reach_a_client_that_still_talks() -> None:
    """Closing a connection with unread bytes would reset it, and the answer would be lost."""
    said = asyncio.run(ask_for_a_wrong_path_and_go_on(3_000_000))
    assert said.startswith(b"HTTP/1.1 404")


def test_a_client_that_reads_late_is_answered_in_full() -> None:
    answers, committed = asyncio.run(ask_much_and_read_late())
    assert all(answer.accepted for answer in answers)
    assert [answer.next_index for answer in answers] == list(range(3, COUNT + 3))
    assert committed == COUNT + 1


async def dial(endpoint: str, handshake: Callable[[Server | None, float], None]) -> None:
    """Founds a cluster with the server at `endpoint`, until it has been dialled three times."""
    loop = asyncio.get_running_loop()
    servers = (Server(1, "tcp://127.0.0.1:1"), Server(2, endpoint))
    node = Node(server_id=1, stored=Stored.founding(servers), rng=random.Random(1), now=loop.time())
    third: asyncio.Future[None] = loop.create_future()
    dials = count(1)

    def notice(event: Event) -> None:
        if isinstance(event, DialWanted) and next(dials) == 3:
            third.set_result(None)

    store = MemoryStore(Values(), Stored())
    driver = NodeDriver(node, store, handshake=handshake, on_event=notice)
    loop.set_exception_handler(lambda loop, context: None)
    await driver.listen("127.0.0.1", 0)
    await asyncio.wait_for(third, SECONDS_MAX)
    await driver.stop()


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "tcp://127.0.0.1:99999", "nonsense"])
def test_a_server_that_cannot_be_reached_is_dialled_again(endpoint: str) -> None:
    asyncio.run(dial(endpoint, lambda server, now: None))


def test_a_server_is_dialled_again_when_its_handshake_cannot_be_made() -> None:
    """An exception on the way to a link used to end all dialling."""

    def broken(server: Server | None, now: float) -> None:
        raise RuntimeError("no password")

    with socket.create_server(("127.0.0.1", 0)) as there:
        asyncio.run(dial(f"tcp://127.0.0.1:{there.getsockname()[1]}", broken))


STRANGERS_MAX = 3


async def serve_beside_strangers(said: bytes) -> tuple[list[bytes], int, bytes]:
    """Strangers send bytes that are not TLS; their answers, the links left, and our answer."""
    loop = asyncio.get_running_loop()
    limits = Limits(strangers_max=STRANGERS_MAX)
    node = Node(server_id=1, stored=Stored(), rng=random.Random(1), now=loop.time(), limits=limits)
    driver = NodeDriver(node, MemoryStore(Values(), Stored()), server_tls=Tls(True).context)
    _, port = await driver.listen("127.0.0.1", 0)
    strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
    for _, writer in strangers:
        writer.write(said)
    ended = strangers if said else strangers[:-STRANGERS_MAX]
    heard = [await heard_of(reader) for reader, _ in ended]
    left = len(node.links)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=Tls(False).context, server_hostname="localhost"
    )
    writer.write(ASKED)
    answer = await reader.readexactly(RESPONSE_SIZE)
    for _, each in [*strangers, (reader, writer)]:
        each.transport.abort()
    await driver.stop()
    return heard, left, answer


async def heard_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize("said", [b"", b"no TLS at all" * 100], ids=["nothing", "no TLS"])
def test_strangers_that_do_not_begin_tls_take_nobody_s_place(said: bytes) -> None:
    async def main() -> tuple[list[bytes], int, bytes]:
        return await asyncio.wait_for(serve_beside_strangers(said), SECONDS_MAX)

    _, left, answer = asyncio.run(main())
    assert left == (0 if said else STRANGERS_MAX)
    assert ResponseFrame.decode(answer, Limits()).type is MessageType.APPEND_ENTRIES_RESPONSE
