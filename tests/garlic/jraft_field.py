"""JRaft's own sample servers as processes, and questions to them.

``CULM_JRAFT`` is a Java class path with JRaft's core, exts and dmprinter, log4j 1.2 and
gson; docs/garlic.md says how to get one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from culm.garlic.connection import Connection
from culm.garlic.events import ResponseReceived
from culm.garlic.messages import MessageType, RequestFrame, ResponseFrame
from culm.garlic.raft import Server, Stored
from culm.garlic.states import ConnectionRole
from culm.garlic.values import LogEntry, ValueType, encode_entries

CLASS_PATH = os.environ.get("CULM_JRAFT", "")
JAVA = shutil.which("java")
ANSWER_TIMEOUT_S = 5.0

needs_jraft = pytest.mark.skipif(
    not CLASS_PATH or JAVA is None, reason="no JRaft: set CULM_JRAFT to its class path (and java)"
)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Field:
    """JRaft processes in a folder, and the endpoints of all servers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[int, Server] = {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def name(self, *numbers: int) -> None:
        for number, port in zip(numbers, free_ports(len(numbers)), strict=True):
            self.servers[number] = Server(number, f"tcp://127.0.0.1:{port}")

    def port(self, number: int) -> int:
        return int(self.servers[number].endpoint.rpartition(":")[2])

    def founding(self, *numbers: int) -> Stored:
        servers = tuple(self.servers[number] for number in numbers)
        return Stored.founding(servers)

    def home(self, number: int) -> Path:
        return self.folder / f"jraft-{number}"

    def found_jraft(self, number: int, members: tuple[int, ...]) -> None:
        """The files from which a new JRaft server starts."""
        home = self.home(number)
        home.mkdir()
        (home / "config.properties").write_text(f"server.id={number}\n")
        listed = [{"id": one, "endpoint": self.servers[one].endpoint} for one in members]
        cluster = {"logIndex": 0, "lastLogIndex": 0, "servers": listed}
        (home / "cluster.json").write_text(json.dumps(cluster))

    def run_jraft(self, number: int, *options: str) -> None:
        """Start a JRaft server, for the first time or again; all its output goes to `out`."""
        home = self.home(number)
        command = [str(JAVA), "-Xmx128m", *options, "-cp", CLASS_PATH]
        command += ["net.data.technology.jraft.App", "server", str(home), str(free_ports(1)[0])]
        with (home / "out").open("ab") as out:
            self.processes[number] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, cwd=home
            )

    def start_jraft(self, number: int, members: tuple[int, ...]) -> None:
        self.found_jraft(number, members)
        self.run_jraft(number)

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        process.communicate()

    async def ask(self, number: int, request: RequestFrame) -> ResponseFrame | None:
        """Ask one server as a client does; ``None`` if it cannot be reached."""
        machine = Connection(role=ConnectionRole.DIALLER)
        machine.send_request(request)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port(number))
                try:
                    writer.write(machine.data_to_send())
                    while data := await reader.read(1000):
                        machine.receive_data(data)
                        event = machine.next_event()
                        if isinstance(event, ResponseReceived):
                            return event.response
                finally:
                    writer.close()
        return None


def client_request(*values: bytes) -> RequestFrame:
    log = encode_entries([LogEntry(0, ValueType.APPLICATION, value) for value in values])
    return RequestFrame(type=MessageType.CLIENT_REQUEST, log=log)
