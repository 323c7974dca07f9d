"""The folder of a Raft cluster: its servers' addresses, their shared data, and the data of each."""

from __future__ import annotations

import fcntl
import json
import os
import random
import sqlite3
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from culm.arguments import is_dict
from culm.garlic.raft import Configuration, Server, Stored
from culm.wire.json import read_json
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.locks import StoreFilesError, locked
from culm_io.programs.ports import free_ports

__all__ = ["CERTIFICATE", "Farm", "Mark", "check_certificate"]

CLUSTER_FILE = "cluster.json"
CERTIFICATE = "cert.pem"
_DIGITS = 20  # of 64 bits: each note is as long as the one before it
SERVER_ID_MAX = 2**31 - 1
# The required fields, with their types; and their values for files of earlier versions.
PARTS: dict[str, tuple[type, object]] = {
    "password": (str, None),
    "tls": (bool, None),
    "founders": (list, None),
    "nodes": (dict, None),
    "removed": (list, []),
    "started": (list, []),
}


def describes_cluster(found: object) -> bool:
    """Whether that is what a cluster's file may have: edited by hand, or half of a backup."""
    if not is_dict(found) or not all(
        isinstance(found.get(name, since), kind) for name, (kind, since) in PARTS.items()
    ):
        return False
    nodes = found["nodes"]
    lists = (found["founders"], found.get("removed", []), found.get("started", []))
    return (
        all(is_server_id(name) and is_place(place) for name, place in nodes.items())
        and all(type(number) is int for numbers in lists for number in numbers)
        and all(str(number) in nodes for number in found["founders"])
    )


def is_server_id(name: str) -> bool:
    """In the only way to write it."""
    if not (name.isascii() and name.isdecimal()) or len(name) > len(str(SERVER_ID_MAX)):
        return False
    return name[0] != "0" and int(name) <= SERVER_ID_MAX


def is_place(place: object) -> bool:
    if not is_dict(place):
        return False
    ports = (place.get("raft"), place.get("control"))
    return all(type(port) is int and 1 <= port < 1 << 16 for port in ports)


class Mark:
    """How often a store was written, in a file beside it.

    The file stays open: a server that may open no more of them, as strangers have them all, goes
    on.  It needs no sync: a mark that is older than the store, or empty, refuses less.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def note(self, written: int) -> None:
        """To be called after a write and before anybody hears of it."""
        os.pwrite(self._descriptor, b"%0*d\n" % (_DIGITS, written), 0)

    def close(self) -> None:
        os.close(self._descriptor)


class Farm:
    """Endpoints, control ports, password; and the store of each server.

    A backup may be older than the servers' memory, or incomplete: one that would break a
    promise of theirs is refused (`ImpossibleError`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / CLUSTER_FILE
        self.data: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {}
        try:
            found = read_json(self._path.read_bytes())
        except ValueError as error:
            raise ImpossibleError(f"{self._path}: {error}") from error
        if not describes_cluster(found):
            raise ImpossibleError(f"{self._path} does not describe a cluster")
        return dict(found)

    @classmethod
    def found(cls, folder: Path, nodes: int, *, tls: bool) -> Farm:
        """The cluster in that folder; a new one if there is none."""
        folder.mkdir(parents=True, exist_ok=True)
        farm = cls(folder)
        if farm.data:
            if farm.data["tls"] and not (folder / CERTIFICATE).exists():
                make_certificate(folder)
            return farm
        if any(folder.glob("node-*.sqlite")):
            raise ImpossibleError(f"{folder} has stores of servers, but no {CLUSTER_FILE}")
        if tls:
            make_certificate(folder)
        numbers = list(range(1, nodes + 1))
        farm.data = {
            "password": f"{random.SystemRandom().getrandbits(128):032x}",
            "tls": tls,
            "founders": numbers,
            "nodes": {},
        }
        for number in numbers:
            farm._place(number)
        farm._write()
        return farm

    def add(self, number: int) -> None:
        """Give a server a place, if it has none."""
        if str(number) not in self.data["nodes"]:
            with self._changing():
                if str(number) not in self.data["nodes"]:
                    self._place(number)

    def _place(self, number: int) -> None:
        """At ports that no other server has, even if that does not run at the moment."""
        nodes = self.data["nodes"]
        taken = {port for node in nodes.values() for port in node.values()}
        raft, control = free_ports(2, taken=taken)
        nodes[str(number)] = {"raft": raft, "control": control}

    def is_alone(self, number: int) -> None:
        """That server is a cluster of its own from now on: the others would be another one."""
        with self._changing():
            self.data["founders"] = [number]
            self.data["removed"] = sorted(self.control_ports().keys() - {number})

    def is_member(self, number: int, *, member: bool) -> None:
        """A server was added, or removed: its place stays its own, as its store stays."""
        with self._changing():
            removed = {*self.removed, number} - ({number} if member else set())
            self.data["removed"] = sorted(removed)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the file as it is by now, alone."""
        with open(self.folder / "cluster.lock", "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.data = self._read()
            yield
            self._write()

    def _write(self) -> None:
        written = self._path.with_suffix(".new")
        written.unlink(missing_ok=True)
        written.touch(mode=0o600)  # it has the password
        written.write_text(json.dumps(self.data, indent=2))
        written.replace(self._path)

    def server(self, number: int) -> Server:
        return Server(number, f"tcp://127.0.0.1:{self.data['nodes'][str(number)]['raft']}")

    def control_ports(self) -> dict[int, int]:
        return {int(number): node["control"] for number, node in self.data["nodes"].items()}

    @property
    def removed(self) -> list[int]:
        """Servers that are not started with the others."""
        return list(self.data.get("removed", ()))

    def members(self) -> dict[int, int]:
        """The control ports of those that were not removed."""
        return {n: port for n, port in self.control_ports().items() if n not in self.removed}

    def founding(self, number: int) -> Stored:
        """The initial state of a server that has stored nothing."""
        founders = self.data["founders"]
        return Stored.founding(map(self.server, founders)) if number in founders else Stored()

    @contextmanager
    def claimed(self, number: int) -> Iterator[Path]:
        """Have a server for ourselves; its store.

        A server without the store that it once had is another one: it would vote twice in a
        term, and count again for entries that it has lost.
        """
        store = self.folder / f"node-{number}.sqlite"
        had_one = number in self.data.get("started", ()) or self._mark_of(store).exists()
        if had_one and not (store.exists() and store.stat().st_size):
            raise ImpossibleError(
                f"the store of server {number} is lost: put it back, or remove that server and"
                " add one with a new number"
            )
        try:
            with locked(store):
                yield store
        except StoreFilesError:
            raise ImpossibleError(f"server {number} runs already") from None
        except sqlite3.Error as error:
            raise ImpossibleError(f"the store of server {number}: {error}") from error

    def note_store(self, number: int, store: Path) -> Mark:
        """That server has that store from now on; how often it was written is told to the mark.

        The cluster's file says so, too: a disk that is lost has had the mark as well.
        """
        if number not in self.data.get("started", ()):
            with self._changing():
                self.data["started"] = sorted({*self.data.get("started", ()), number})
        return Mark(self._mark_of(store))

    def check_store(self, number: int, store: Path, written: int) -> None:
        """Check that a store is as new as the others' knowledge of it."""
        mark = self._mark_of(store)
        noted = mark.read_bytes().rstrip(b"\n") if mark.exists() else b""
        if noted.isdigit() and len(noted) <= _DIGITS and int(noted) > written:
            raise ImpossibleError(
                f"the store of server {number} is older than it was: put the newest one back, or"
                " remove that server and add one with a new number"
            )

    @staticmethod
    def _mark_of(store: Path) -> Path:
        return store.with_suffix(".started")

    def check_place(self, number: int, configuration: Configuration) -> None:
        """Is a server where the others look for it?  Not if the folder is older than its store."""
        known = configuration.find(number)
        here = self.server(number).endpoint
        if known is not None and known.endpoint != here:
            raise ImpossibleError(
                f"the cluster looks for server {number} at {known.endpoint}, {CLUSTER_FILE} has"
                f" {here}: it is from an older backup"
            )


def check_certificate(folder: Path, context: ssl.SSLContext) -> None:
    """Check that the certificate in `context` is still valid; else no server can be reached."""
    ends = [str(each["notAfter"]) for each in context.get_ca_certs()]
    if any(ssl.cert_time_to_seconds(end) < time.time() for end in ends):
        raise ImpossibleError(
            f"{folder / CERTIFICATE} has ended ({', '.join(ends)}): take it away, and `start` makes"
            " another, which all servers need"
        )


def make_certificate(folder: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / CERTIFICATE)]
    subprocess.run(command, check=True, capture_output=True)
