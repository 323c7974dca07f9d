"""Long-running programs report their numbers to Prometheus, at ``--metrics``."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import SECONDS_MAX, run, serving, turns, wait_until

from culm.measures import Measure
from culm_io.command import command_of
from culm_io.programs.numbers import Metrics
from culm_io.programs.places import Places
from culm_io.programs.ports import HOST, free_ports
from culm_io.programs.visitors import Visits

pytest.importorskip("prometheus_client")


def page(port: int) -> str:
    """The answer there, as soon as there is a listener."""
    limit = time.monotonic() + SECONDS_MAX
    while True:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=")
                return str(answer.read().decode())
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > limit:
                raise
            time.sleep(0.05)


@contextmanager
def running(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A program that must end well, with an empty stderr."""
    pipe = subprocess.PIPE
    command = command_of(*words)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            errors = process.communicate(timeout=SECONDS_MAX)[1]
            assert (process.returncode, errors) == (0, "")


def published(folder: Path) -> Path:
    (folder / "tree").mkdir()
    (folder / "tree" / "file").write_text("content")
    assert run("publish", folder / "tree", "--store", folder / "a.store").status == 0
    return folder / "a.store"


Words = Callable[[Path, ExitStack], list[object]]
PROGRAMS: dict[str, tuple[Words, list[str]]] = {
    "raft run": (
        lambda folder, _: [*in_cluster(folder), 1],
        [
            'culm_state{of_machine="server 1",state="LEADER"} 1.0',
            'culm_commit_index{of_machine="server 1"} 1.0',
            'culm_events_total{code="",event="LeaderChanged",of_machine="server 1"} 1.0',
        ],
    ),
    "oxen node": (
        lambda folder, _: ["oxen", "node", *free_ports(1, kind=socket.SOCK_DGRAM)],
        ['state="ACTIVE"} 1.0', "culm_unix_time{"],
    ),
    "p2panda serve": (
        lambda folder, _: ["p2panda", "serve", "--store", folder / "p.store", "--port", 0],
        ['culm_waiting{of_machine="p2panda"} 0.0'],
    ),
    "ssb run": (
        lambda folder, _: ["ssb", "run", "--dir", folder / "pub", "--port", 0],
        ['culm_links_count{of_machine="ssb"} 0.0', "culm_progress_target{"],
    ),
    "directory serve": (
        lambda folder, _: ["directory", "serve", "--store", published(folder), "--port", 0],
        ['culm_waiting{of_machine="directory"} 0.0'],
    ),
    "directory fetch --live": (
        lambda folder, stack: [
            *("directory", "fetch", "--store", folder / "b.store", "--live"),
            *("--from", f"{HOST}:{stack.enter_context(serving(published(folder)))}"),
        ],
        [
            'culm_state{of_machine="directory",state="ESTABLISHED"} 1.0',
            r'culm_positions\{log="\w{64}/0",of_machine="directory"\} 1.0',
            r'culm_offered\{log="\w{64}/0",of_machine="directory"\} 1.0',
            'culm_events_total{code="",event="EntryStored",of_machine="directory"} 1.0',
        ],
    ),
}


def in_cluster(folder: Path) -> list[object]:
    farm = folder / "farm"
    code = "import sys; from pathlib import Path; from culm_io.programs.raft.farm import Farm\n"
    code += "Farm.found(Path(sys.argv[1]), 1, tls=False)"
    subprocess.run([sys.executable, "-c", code, str(farm)], check=True)
    return ["raft", "run", "--dir", farm]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_tells_its_numbers(name: str, tmp_path: Path) -> None:
    words, wanted = PROGRAMS[name]
    (port,) = free_ports(1)
    with ExitStack() as stack:
        stack.enter_context(running(*words(tmp_path, stack), "--metrics", port))

        def told() -> bool:
            text = page(port)
            assert "process_open_fds " in text
            return all(re.search(each, text) if "\\" in each else each in text for each in wanted)

        wait_until(told)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_port_that_is_taken_ends_it_with_a_sentence(name: str, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken, ExitStack() as stack:
        port = taken.getsockname()[1]
        words = command_of(*PROGRAMS[name][0](tmp_path, stack), "--metrics", f"{HOST}:{port}")
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    (sentence,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert f"metrics at {HOST}:{port}: " in sentence
    assert "address already in use" in sentence


def test_the_servers_of_a_cluster_have_ports_in_a_row(tmp_path: Path) -> None:
    first = next(port for port in free_ports(50) if not taken(port + 1))
    folder = tmp_path / "farm"
    words = ("raft", "start", "--dir", folder, "--nodes", 2, "--metrics", f"{HOST}:{first}")
    with running(*words):
        for number in 1, 2:
            assert f'of_machine="server {number}"' in page(first + number - 1)
    done = subprocess.run(
        command_of("raft", "start", "--dir", folder, "--metrics", 65535),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "--metrics: there is no port 65536\n")


def taken(port: int) -> bool:
    with closing(socket.socket()) as made:
        return made.connect_ex((HOST, port)) == 0


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from culm_io.command import main
main()
"""


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    words = ["p2panda", "serve", "--store", str(tmp_path / "p.store"), "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words, "--metrics", str(port)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=os.environ,
    )
    advice = "python -m pip install 'culm-io[metrics]'"
    wanted = f"prometheus_client is missing, which the extra metrics brings: {advice}\n"
    assert (done.returncode, done.stderr) == (2, wanted)


def ask(port: int, question: bytes) -> bytes:
    """The whole answer to a client that waits for the end."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as made:
        made.sendall(question)
        made.shutdown(socket.SHUT_WR)
        found = b""
        while data := made.recv(1 << 16):
            found += data
    return found


def test_what_is_no_question_is_answered() -> None:
    (port,) = free_ports(1)
    asked = [
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /metrics HTTP/1.1", b"200 OK"),  # the end of the stream ends the line
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"501 "),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"501 "),
        (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431 "),
    ]
    no_questions = [
        b"\xff\x00 \r\n\r\n",
        b"\r\n\r\n",
        b"GET /metrics HTTP/3.0\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nAccept: text/plain; version=x\r\n\r\n",
        b"x" * (1 << 17),
        b"GET /" + b"x" * (1 << 17),
    ]

    async def main() -> None:
        numbers = [Measure("size", 1), Measure("size", 2), Measure("size", 4, (("of", "a"),))]
        async with Metrics((HOST, port)).served("it", lambda: numbers):
            for question, status in asked:
                answer = await asyncio.to_thread(ask, port, question)
                assert answer.startswith(b"HTTP/1.0 " + status), question[:40]
            for question in no_questions:
                answer = await asyncio.to_thread(ask, port, question)
                assert b"culm_size" not in answer, question[:40]
            full = await asyncio.to_thread(ask, port, asked[0][0])
            body = full.split(b"\r\n\r\n", 1)[1]
            assert b'culm_size{of_machine="it"} 3.0' in body  # added up
            assert b'culm_size{of="a",of_machine="it"} 4.0' in body
            packed = b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n"
            answer = await asyncio.to_thread(ask, port, packed)
            head, body = answer.split(b"\r\n\r\n", 1)
            assert b"Content-Encoding: gzip" in head
            assert b"culm_size" in gzip.decompress(body)

    asyncio.run(main())


def test_whoever_is_not_to_be_told_is_not_heard() -> None:
    async def main() -> None:
        metrics, heard = Metrics(), list[object]()
        assert metrics.counted(heard.append) == heard.append
        async with metrics.served("it", lambda: pytest.fail("there was no request")):
            pass

    asyncio.run(main())


# The places of clients


async def echo(question: bytes) -> bytes:
    return question


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def with_places(
    test: Callable[[Callable[..., Awaitable[Client]], Places[Any]], Awaitable[None]],
    answer: Callable[[bytes], Awaitable[bytes]] = echo,
) -> None:
    """Run a server with two places; `test` gets a way to connect to it, and its places."""

    async def main() -> None:
        (port,) = free_ports(1)
        visits = Visits(answer, end=b"\n", size_max=1 << 10, busy=b"busy\n", clients_max=2)
        async with visits.at(HOST, port), asyncio.timeout(SECONDS_MAX):
            made: list[asyncio.StreamWriter] = []

            async def connect(limit: int = 1 << 16) -> Client:
                reader, writer = await asyncio.open_connection(HOST, port, limit=limit)
                made.append(writer)
                return reader, writer

            await test(connect, visits.places)
            for writer in made:
                writer.close()
            await turns()

    asyncio.run(main())


async def say(client: Client, line: bytes) -> bytes:
    client[1].write(line)
    return await client[0].readline()


def test_who_is_silent_makes_way_and_no_question_is_lost() -> None:
    async def test(connect: Callable[..., Awaitable[Client]], places: Places[Any]) -> None:
        silent = [await connect() for _ in range(2)]
        assert [await say(each, b"a\n") for each in silent] == [b"a\n"] * 2
        third = await connect()
        assert await say(third, b"b\n") == b"b\n"  # in place of the longest silent one
        assert await silent[0][0].read() == b""
        assert await say(silent[1], b"c\n") == b"c\n"

    with_places(test)


def test_while_all_are_at_work_others_wait_unread() -> None:
    free = asyncio.Event()

    async def slow(question: bytes) -> bytes:
        await free.wait()
        return question

    async def test(connect: Callable[..., Awaitable[Client]], places: Places[Any]) -> None:
        working = [await connect() for _ in range(2)]
        for each in working:
            each[1].write(b"a\n")
        while len(places.clients) < 2:
            await asyncio.sleep(0.01)
        third = await connect()
        third[1].write(b"b\n")
        await asyncio.sleep(1.5)  # longer than a client may be silent
        assert (len(places.clients), places.waiting) == (2, 1)
        free.set()
        assert [await each[0].readline() for each in working] == [b"a\n"] * 2
        assert await third[0].readline() == b"b\n"

    with_places(test, slow)


def test_whoever_finds_no_room_to_wait_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("culm_io.programs.places._WAITING_MAX", 1)

    async def test(connect: Callable[..., Awaitable[Client]], places: Places[Any]) -> None:
        for _ in range(3):
            await connect()
        while places.waiting < 1:
            await asyncio.sleep(0.01)
        fourth = await connect()
        assert await say(fourth, b"a\n") == b"busy\n"
        assert await fourth[0].read() == b""
        assert len(places.clients) == 2

    with_places(test)


def test_one_that_takes_no_answer_makes_way() -> None:
    async def much(question: bytes) -> bytes:
        return question * (1 << 20) if question == b"much\n" else question

    async def test(connect: Callable[..., Awaitable[Client]], places: Places[Any]) -> None:
        for _ in range(2):
            _, writer = await connect(1)  # it takes no more than a byte or two
            writer.write(b"much\n" * 100)
        newcomer = await connect()
        assert await say(newcomer, b"a\n") == b"a\n"

    with_places(test, much)


def test_a_line_that_is_too_long_is_cut_and_costs_no_other() -> None:
    async def test(connect: Callable[..., Awaitable[Client]], places: Places[Any]) -> None:
        client = await connect()
        client[1].write(b"x" * 5000 + b"\n")
        client[1].write_eof()
        found = await client[0].read()
        assert found == b"x" * 5000 + b"\n"

    with_places(test)
