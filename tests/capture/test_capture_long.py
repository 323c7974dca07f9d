"""A long capture is replayed, looked at and converted in the memory of a short one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from culm.bymux import StreamData
from culm.capture import Recorder, read
from culm.machines import lookup

SHORT = 2_000
STEPS_OF_A_BLOCK = 1_000
LONG = [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
MORE = 8 << 20
"""Bytes by which memory may grow: of 18,000 steps, were they kept, each would have 440."""
OF_A_STEP = 25
"""Bytes that a page's making has of a step that is not shown."""
SHOWN = 1_000


def write_capture(path: Path, count: int) -> None:
    """Some streams' weeks in little time: the calls of one block come again and again."""
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine="bymux", config={"role": "REACTIVE"})
    machine: Any = recorder.stand_in(lookup("bymux").make({"role": "REACTIVE"}))

    stream: Any = None

    def drain() -> list[Any]:
        events = list(iter(machine.next_event, None))
        machine.data_to_send()
        return events

    def block_of(calls: Callable[[], object]) -> bytes:
        calls()
        recorder.flush()
        block = b"".join(pieces)
        pieces.clear()
        return block

    def begin() -> None:
        machine.grant_streams(1)
        machine.receive_data(b"\x30\x02")
        drain()
        nonlocal stream
        stream = machine.stream(2)
        stream.set_window(80)

    def talk() -> None:
        for _ in range(STEPS_OF_A_BLOCK // 5):
            machine.receive_data(b"\x20\x02\x04abcd")
            for event in drain():
                if isinstance(event, StreamData):
                    stream.consumed(len(event.data))

    front = block_of(begin) + block_of(talk)
    block = block_of(talk)
    assert block == block_of(talk)  # so it may come again
    with path.open("wb") as file:
        file.write(front)
        for _ in range(count // STEPS_OF_A_BLOCK):
            file.write(block)


PROGRAM = r"""
import re, sys
from pathlib import Path
from culm.capture.command import main

status = main(sys.argv[1:])
print(re.search("VmHWM:\s*([0-9]+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
sys.exit(status)
"""


def memory_of(*arguments: str) -> int:
    """Bytes that the command takes at most."""
    made = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(made, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return int(done.stderr) << 10


COMMANDS: dict[str, Callable[[str, str, int], list[str]]] = {
    "replay": lambda path, made, count: ["replay", path],
    "back and forth": lambda path, made, count: ["replay", path, "--until", f"{count - 1}"],
    "show": lambda path, made, count: ["show", path],
    "show --messages": lambda path, made, count: ["show", "--messages", path],
    "diff": lambda path, made, count: ["diff", path, path],
    "qlog": lambda path, made, count: ["qlog", path, "-o", made],
    "pcap": lambda path, made, count: ["pcap", path, "-o", made],
    "view": lambda path, made, count: [
        *("view", path, "-o", made, "--from", f"{count // 4}", "--steps", f"{SHOWN}")
    ],
}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read in /proc")
@pytest.mark.costly
@pytest.mark.parametrize("count", LONG)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_long_capture_takes_the_memory_of_a_short_one(
    command: str, count: int, tmp_path: Path
) -> None:
    found = []
    for size in (SHORT, count):
        path, made = tmp_path / f"{size}.culmcap", tmp_path / f"{size}.made"
        write_capture(path, size)
        found.append(memory_of(*COMMANDS[command](str(path), str(made), size)))
    short, long = found
    print(f"{command}: {short >> 20} MiB for {SHORT} steps, {long >> 20} MiB for {count}")
    assert long - short < MORE + (OF_A_STEP * count if command == "view" else 0)


def test_a_long_capture_is_as_long_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "long.culmcap"
    write_capture(path, SHORT)
    steps = sum(1 for _ in read(path.read_bytes()))
    assert SHORT <= steps < 2 * SHORT
