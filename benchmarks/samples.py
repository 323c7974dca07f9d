"""Data for the benchmarks, and the plain Python against which the kernels are measured."""

from __future__ import annotations

import json
import random
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path


def text(size: int) -> bytes:
    """Source files of the running interpreter's standard library, top-level ones first."""
    library, data = Path(sysconfig.get_path("stdlib")), bytearray()
    below = (path for path in library.glob("*/**/*.py") if "site-packages" not in path.parts)
    for path in [*sorted(library.glob("*.py")), *sorted(below)]:
        data += path.read_bytes()
        if len(data) >= size:
            break
    return bytes(data[:size])


def log(size: int) -> bytes:
    """Lines like those of a web server: much the same, except for numbers."""
    chance = random.Random(1)
    hosts = [f"host-{number:03}.example.org" for number in range(40)]
    paths = [f"/api/v2/{name}/" for name in ("users", "entries", "peers", "blobs", "search")]
    data, time = bytearray(), 1_700_000_000.0
    while len(data) < size:
        time += chance.random()
        request = f"{chance.choice(['GET', 'GET', 'POST'])} {chance.choice(paths)}"
        answer = f"{chance.choice([200, 200, 200, 304, 404])} {chance.randint(100, 90_000)}"
        line = f"{time:.3f} {chance.choice(hosts)} {request}{chance.randint(1, 99_999)} {answer}\n"
        data += line.encode()
    return bytes(data[:size])


def records(size: int) -> bytes:
    """A sensor's readings as JSON lines: only the time differs from line to line."""
    line = b'{"time": %d, "sensor": "roof-west", "unit": "celsius", "value": 21.5}\n'
    count = size // len(line) + 1
    return b"".join(line % (1_700_000_000 + number) for number in range(count))[:size]


def readings(size: int) -> bytes:
    """Readings of many sensors as JSON lines: each differs in most parts from the one before."""
    chance, data = random.Random(1), bytearray()
    while len(data) < size:
        reading = {
            "time": 1_700_000_000 + len(data),
            "sensor": f"roof-{chance.randrange(64)}",
            "value": round(chance.uniform(-20, 40), 2),
            "state": chance.choice(["ok", "ok", "ok", "stale", "failed"]),
            "id": chance.randbytes(8).hex(),
        }
        data += json.dumps(reading).encode() + b"\n"
    return bytes(data[:size])


def noise(size: int) -> bytes:
    """Incompressible bytes."""
    return random.Random(2).randbytes(size)


SAMPLES: dict[str, Callable[[int], bytes]] = {"text": text, "log": log, "random": noise}


def numbers(count: int) -> list[int]:
    """Numbers of all sizes, small ones most often, as in protocols."""
    chance = random.Random(3)
    bits = chance.choices([7, 7, 7, 8, 12, 16, 24, 32, 48, 64], k=count)
    return [chance.getrandbits(width) for width in bits]


def loop_encode(values: Iterable[int]) -> bytes:
    """VarU64s written by a loop, as tight as plain Python allows."""
    data = bytearray()
    append = data.append
    for value in values:
        if value < 248:
            append(value)
        else:
            octets = (value.bit_length() + 7) // 8
            append(247 + octets)
            data += value.to_bytes(octets, "big")
    return bytes(data)


def loop_decode(data: bytes) -> list[int]:
    """VarU64s read by a loop, as tight as plain Python allows."""
    values: list[int] = []
    append = values.append
    at, end = 0, len(data)
    while at < end:
        value = data[at]
        at += 1
        if value >= 248:
            start = at
            at += value - 247
            value = int.from_bytes(data[start:at], "big")
        append(value)
    return values
