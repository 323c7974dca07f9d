"""Memory does not grow with what is replicated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from processes import start, start_fetch

MIB = 1 << 20
# What Python with all that is imported takes, and what is in flight.
_LIMIT = 96 * MIB


def peak_of(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Wait for the end of a process: its output, and the most memory that it had (bytes)."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    assert process.returncode == 0, errors
    return output, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


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
    _, peaks["publish"] = peak_of(start("publish", folder / "source", "--store", published))
    server = start("serve", "--store", published, "--port", "0")
    assert server.stdout is not None
    port = json.loads(server.stdout.readline())["port"]
    output, peaks["fetch"] = peak_of(start_fetch(fetched, port, folder / "target"))
    server.send_signal(signal.SIGTERM)
    _, peaks["serve"] = peak_of(server)
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
