"""Memory does not grow with what is replicated."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from processes import start, start_fetch

MIB = 1 << 20
# What Python with all that is imported takes, and what is in flight.
_LIMIT = 96 * MIB


class Peak:
    """The most memory that a process has had at once (bytes), as the system counts it.

    Asked for while it runs: what the system tells of an ended process (``ru_maxrss``)
    counts the parent's memory, too, from before the program was loaded.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._status = Path("/proc", str(process.pid), "status")
        if not self._status.exists():
            pytest.skip("this system has no /proc")
        self._size = 0
        self._watcher = Thread(target=self._watch)
        self._watcher.start()

    def _watch(self) -> None:
        while self._process.returncode is None:
            found = re.search(r"VmHWM:\s+(\d+) kB", self._status.read_text())
            if found is None:
                return  # it has ended
            self._size = 1024 * int(found[1])
            time.sleep(0.01)

    def end(self) -> tuple[str, int]:
        """Wait for the end of the process: its output, and the peak."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with self._process.stdout, self._process.stderr:
            output, errors = self._process.stdout.read(), self._process.stderr.read()
        self._watcher.join()
        assert self._process.wait() == 0, errors
        return output, self._size


def write_files(root: Path, size: int) -> None:
    """Files of `size` bytes together, half of them dull."""
    root.mkdir()
    noise = Random(1).randbytes(2 * MIB)
    for number in range(size // (16 * MIB)):
        with open(root / str(number), "wb") as file:
            for _ in range(8):
                file.write(noise if number % 2 else bytes(2 * MIB))


def replicate(folder: Path, size: int) -> dict[str, int]:
    """Publish, serve and fetch so many bytes; the peak of each process (bytes)."""
    write_files(folder / "source", size)
    published, fetched = folder / "published.store", folder / "fetched.store"
    peaks = {}
    publish = start("publish", folder / "source", "--store", published)
    _, peaks["publish"] = Peak(publish).end()
    server = start("serve", "--store", published, "--port", "0")
    serving = Peak(server)
    assert server.stdout is not None
    port = json.loads(server.stdout.readline())["port"]
    output, peaks["fetch"] = Peak(start_fetch(fetched, port, folder / "target")).end()
    server.send_signal(signal.SIGTERM)
    _, peaks["serve"] = serving.end()
    assert json.loads(output)["payload_bytes"] > size
    for path in (folder / "source").iterdir():
        comparison = subprocess.run(["cmp", path, folder / "target" / path.name])
        assert comparison.returncode == 0
    return peaks


def test_a_log_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    peaks = replicate(tmp_path, 128 * MIB)
    assert max(peaks.values()) < _LIMIT, peaks


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_gibibytes_of_payloads(tmp_path: Path) -> None:
    peaks = replicate(tmp_path, 2048 * MIB)
    print({name: f"{peak / MIB:.0f} MiB" for name, peak in peaks.items()})
    assert max(peaks.values()) < _LIMIT, peaks
