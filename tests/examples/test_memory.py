"""Memory does not grow with the replicated data, except for the list of paths."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from processes import start, start_fetch

MIB = 1 << 20
# Python with all imports, and data in flight. Python 3.14 alone takes 7 MiB more than 3.11.
_LIMIT = (64 if sys.version_info < (3, 14) else 72) * MIB
# The memory for a path, besides its bytes.
_PATH_SIZE = 512


def peak_of(process: subprocess.Popen[str]) -> int:
    """The peak memory of a process up to now (bytes)."""
    status = Path("/proc", str(process.pid), "status")
    if not status.exists():
        pytest.skip("this system has no /proc")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    return 0 if found is None else 1024 * int(found[1])


class Peak:
    """The peak memory of a process (bytes), as the system counts it.

    Read while it runs: the figure for an ended process (``ru_maxrss``) includes the parent's memory
    from before the program was loaded.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._size = peak_of(process)
        self._watcher = Thread(target=self._watch)
        self._watcher.start()

    def _watch(self) -> None:
        while self._process.returncode is None and (size := peak_of(self._process)):
            self._size = size
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
    """Files of `size` bytes together, half of them compressible."""
    root.mkdir()
    noise = Random(1).randbytes(2 * MIB)
    for number in range(size // (16 * MIB)):
        with open(root / str(number), "wb") as file:
            for _ in range(8):
                file.write(noise if number % 2 else bytes(2 * MIB))


def write_small_files(root: Path, count: int) -> int:
    """`count` files of one line each; the total size of their paths (bytes)."""
    size = 0
    for number in range(count):
        path = Path(f"{number // 1000}", f"file{number}")
        if number % 1000 == 0:
            (root / path.parent).mkdir(parents=True)
        (root / path).write_bytes(b"file %d\n" % number)
        size += len(str(path))
    return size


def replicate(folder: Path) -> dict[str, int]:
    """Publish, serve and fetch `source`; the peak of each process (bytes)."""
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
    assert json.loads(output)["code"] is None
    comparison = subprocess.run(["diff", "--recursive", folder / "source", folder / "target"])
    assert comparison.returncode == 0
    _, peaks["publish again"] = Peak(
        start("publish", folder / "source", "--store", published)
    ).end()
    return peaks


def test_a_log_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    write_files(tmp_path / "source", 128 * MIB)
    peaks = replicate(tmp_path)
    assert max(peaks.values()) < _LIMIT, peaks


@pytest.mark.slow
def test_many_paths_take_little_more(tmp_path: Path) -> None:
    count = 40_000
    paths_size = write_small_files(tmp_path / "source", count)
    peaks = replicate(tmp_path)
    assert peaks["serve"] < _LIMIT, peaks
    assert max(peaks.values()) < _LIMIT + paths_size + count * _PATH_SIZE, peaks


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_gibibytes_of_payloads(tmp_path: Path) -> None:
    write_files(tmp_path / "source", 2048 * MIB)
    peaks = replicate(tmp_path)
    print({name: f"{peak / MIB:.0f} MiB" for name, peak in peaks.items()})
    assert max(peaks.values()) < _LIMIT, peaks


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_files(tmp_path: Path) -> None:
    paths_size = write_small_files(tmp_path / "source", 100_000)
    peaks = replicate(tmp_path)
    print({name: f"{peak / MIB:.0f} MiB" for name, peak in peaks.items()})
    assert max(peaks.values()) < _LIMIT + paths_size + 100_000 * _PATH_SIZE, peaks
