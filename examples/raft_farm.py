"""The folder of a Raft cluster: where its servers are, and what they share."""

from __future__ import annotations

import json
import random
import socket
import subprocess
from pathlib import Path
from typing import Any

from culm.garlic.raft import Server, Stored
from ending import ImpossibleError

__all__ = ["Farm"]

CLUSTER_FILE = "cluster.json"


class Farm:
    """What the folder says of the cluster: endpoints, control ports, password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / CLUSTER_FILE
        self.data: dict[str, Any] = {}
        if self._path.exists():
            try:
                self.data = json.loads(self._path.read_text())
            except ValueError as error:
                raise ImpossibleError(f"{self._path}: {error}") from error

    @classmethod
    def found(cls, folder: Path, nodes: int, *, tls: bool) -> Farm:
        folder.mkdir(parents=True, exist_ok=True)
        farm = cls(folder)
        if not farm.data:
            farm.data = {
                "password": f"{random.SystemRandom().getrandbits(128):032x}",
                "tls": tls,
                "founders": list(range(1, nodes + 1)),
                "nodes": {},
            }
            for number in range(1, nodes + 1):
                farm.add(number)
            if tls:
                make_certificate(folder)
        return farm

    def add(self, number: int) -> None:
        if str(number) not in self.data["nodes"]:
            raft, control = free_ports(2)
            self.data["nodes"][str(number)] = {"raft": raft, "control": control}
            written = self._path.with_suffix(".new")
            written.write_text(json.dumps(self.data, indent=2))
            written.replace(self._path)

    def server(self, number: int) -> Server:
        return Server(number, f"tcp://127.0.0.1:{self.data['nodes'][str(number)]['raft']}")

    def control_ports(self) -> dict[int, int]:
        return {int(number): node["control"] for number, node in self.data["nodes"].items()}

    @property
    def founding(self) -> Stored:
        servers = tuple(self.server(number) for number in self.data["founders"])
        return Stored.founding(servers)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def make_certificate(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
