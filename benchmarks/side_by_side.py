"""The speed of this checkout, compared with another one on the same machine.

``python benchmarks/side_by_side.py ../other`` runs the same work in two processes, one for each
checkout, in turns: this one, the other, the other, this one.  Time is the processor's, and the
printed result is the median of the ratios of all pairs: above 1, this checkout is the faster one.
In this way other load on the machine hits both alike.  Beside it are the ratio of the best rounds
of both, and the time of our best one.  Both must have the same kind of kernels (``python setup.py
build_ext --inplace``).

``--instructions`` counts those of the processor under valgrind instead of measuring time: the same
on a busy machine, and slow.  ``--lines`` counts the lines of culm that Python executes: exact, and
the same on every machine, but blind to the work of kernels, and to the price of a line.  ``--only``
picks benchmarks by a part of their names, ``--pairs`` sets the number of pairs of each.  ``--least
0.95`` makes the exit status 1 if a ratio is below that.

``python benchmarks/side_by_side.py . --without lzfoo`` compares this checkout with itself, with the
pure twin in place of that kernel: the saving of the compiled one.  ``--kernels`` does so for each
kernel in turn, and prints its saving, in percent of every whole path; with ``--instructions``, of
short ones.  ``--recording`` prints the cost of two paths by themselves and with all their ends
recorded, and the ratio.

Names used by the benchmarks may differ between checkouts; each checkout's own `two_replicators`,
`bench_raft_core` and `test_oxen` take care of that: each process imports those of its checkout.
Whole paths, through drivers and stores, are in `driven`.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from types import FrameType
from typing import Any

import callgrind
import driven

HERE = Path(__file__).resolve()

Work = Callable[[], object]

BENCHMARKS: dict[str, Callable[[], Work]] = {}
"""By name, the function that prepares one round of a benchmark, outside the measured part."""


def benchmark(name: str) -> Callable[[Callable[[], Work]], Callable[[], Work]]:
    def register(prepare: Callable[[], Work]) -> Callable[[], Work]:
        BENCHMARKS[name] = prepare
        return prepare

    return register


def point2point(kind: str, count: int, size: int, limits_name: str) -> None:
    """Bring a log of `count` payloads of `size` bytes into an empty store."""
    kept: list[Any] = []

    @benchmark(f"point2point {count} {kind} of {size}, {limits_name.lower()} limits")
    def prepare() -> Work:
        import test_point2point as ours
        from samples import SAMPLES, records

        if not kept:
            make = SAMPLES.get(kind, records)
            kept.extend(ours.written(ours.cut(make(count * size), size)))
        return ours.replicate(kept, getattr(ours, limits_name))[0]


for kind in ("log", "random"):
    point2point(kind, 2000, 100, "DEFAULTS")
for kind in ("random", "records"):
    for limits_name in ("BULK", "DEFAULTS"):
        point2point(kind, 16, 1 << 20, limits_name)
point2point("log", 2, 1 << 20, "BULK")


@benchmark("point2point 1000 random of 100, 1400 bytes at a time")
def small_reads() -> Work:
    from wire_cost import log_of, replicate

    source = log_of(1000, 100)
    return lambda: replicate(source, take_size=1400)


@benchmark("bymux 16 streams, pieces of 64 bytes")
def bymux() -> Work:
    from culm.bymux import Connection, InitialState, InitialStream, Role
    from culm.bymux.events import StreamData

    initial = InitialState(streams={number: InitialStream() for number in range(16)})
    one = Connection(role=Role(0), initial=initial)
    other = Connection(role=Role(1), initial=initial.mirrored())
    for stream_id in range(16):
        other.stream(stream_id).set_window(1 << 16)
    data = bytes(64)

    def work() -> None:
        for _ in range(250):
            for stream_id in range(16):
                one.stream(stream_id).send_data(data)
            other.receive_data(one.data_to_send())
            while (event := other.next_event()) is not None:
                if type(event) is StreamData:
                    other.stream(event.stream_id).consumed(len(event.data))
            one.receive_data(other.data_to_send())
            while one.next_event() is not None:
                pass

    return work


@benchmark("raft core, three servers, 100 entries at a time")
def raft_core() -> Work:
    from bench_raft_core import Memory

    cluster = Memory(3)
    leader = cluster.elect()
    value = bytes(64)

    def work() -> None:
        for _ in range(200):
            leader.propose([value] * 100)
            cluster.run()

    return work


@benchmark("raft core, three servers, an entry at a time")
def raft_core_single() -> Work:
    from bench_raft_core import Memory

    cluster = Memory(3)
    leader = cluster.elect()
    value = bytes(64)

    def work() -> None:
        for _ in range(1000):
            leader.propose([value])
            cluster.run()

    return work


@benchmark("garlic handshake")
def handshake() -> Work:
    from culm.garlic.digest import CredentialCache, Nonces
    from culm.garlic.handshake import ClientHandshake, ServerHandshake

    nonces, cache, rng = Nonces(rng=Random(1)), CredentialCache(), Random(2)

    def connect() -> None:
        client = ClientHandshake(host="a", user="u", password="p", cache=cache, rng=rng)
        server = ServerHandshake(lookup=lambda user: "p", nonces=nonces)
        server.receive_data(client.data_to_send())
        while server.next_event() is not None:
            pass
        client.receive_data(server.data_to_send())
        while client.next_event() is not None:
            pass

    def work() -> None:
        for _ in range(300):
            connect()

    return work


def oxen(delivery_name: str) -> None:
    """In-order messages between three nodes."""

    @benchmark(f"oxen {delivery_name.lower()}")
    def prepare() -> Work:
        from test_oxen import Memory

        memory = Memory()
        sender = memory.nodes[b"AAA"]
        payload = bytes(32)
        memory.tick(0.01)

        def work() -> None:
            for _ in range(60):
                for _ in range(50):
                    if delivery_name == "IN_ORDER":
                        sender.send_in_order(b"BBB", payload)
                    else:
                        sender.broadcast_in_order(payload)
                memory.settle(sender)

        return work


oxen("IN_ORDER")
oxen("IN_ORDER_BROADCAST")


@benchmark("oxen codec")
def oxen_codec() -> Work:
    from culm.oxen.messages import (
        MessageData,
        OneToOne,
        Parcel,
        decode_parcel,
        encode_parcel,
        write_message,
    )

    def work() -> None:
        for number in range(5000):
            data = MessageData(b"BBB", b"AAA", number, write_message(OneToOne(2**60, bytes(32))))
            decode_parcel(encode_parcel(Parcel(1, 2, data)))

    return work


@benchmark("reconcile plain, 20000 items a side, 400 only there")
def reconcile_plain() -> Work:
    from culm.reconcile import PlainSession, Role, Tree

    chance, sides = Random(1), []
    both = chance.randbytes(32 * 19_600)
    for role in Role:
        tree = Tree(item_size=32)
        tree.fill(both + chance.randbytes(32 * 400))
        sides.append(PlainSession(view=tree, role=role))

    def work() -> None:
        while any([pass_on(*sides), pass_on(*reversed(sides))]):
            pass

    def pass_on(sender: Any, receiver: Any) -> bool:
        data = sender.data_to_send()
        receiver.receive_data(data)
        while receiver.next_event() is not None:
            pass
        return bool(data)

    return work


@benchmark("lzfoo")
def compress() -> Work:
    from culm.wire import lzfoo
    from samples import SAMPLES

    data = SAMPLES["log"](1 << 21)
    pieces = lzfoo.compress(data, 1 << 16)

    def work() -> None:
        lzfoo.compress(data, 1 << 16)
        decompressor = lzfoo.Decompressor(1 << 16)
        decompressor.begin(len(data))
        decompressor.decode(pieces, 0, len(data))

    return work


@benchmark("varu64")
def varu64_many() -> Work:
    from culm.wire import varu64
    from samples import numbers

    values = numbers(100_000)

    def work() -> None:
        for _ in range(10):
            varu64.decode_many(varu64.encode_many(values))

    return work


BENCHMARKS.update((f"driven {name}", prepare) for name, prepare in driven.WORKS.items())
# Here, as `driven` belongs to the other checkout, and an earlier one has no such paths.
RECORDED: dict[str, Callable[..., Work]] = {
    "point2point, 400 of 100 bytes": partial(driven.point2point, 400, 100),
    "point2point, 8 of 1 MiB": partial(driven.point2point, 8, 1 << 20),
    "oxen, 2 x 400 messages": partial(driven.oxen, 400),
}
"""Functions that prepare a round of paths that are measured with a tap, and without."""
for name, prepare in RECORDED.items():
    BENCHMARKS[f"bare {name}"] = prepare
    BENCHMARKS[f"recorded {name}"] = partial(prepare, tap=driven.recorded)


SHORT: dict[str, Callable[[], Work]] = {
    "short point2point, 200 of 100 bytes": partial(driven.point2point, 200, 100),
    "short p2panda, 200 operations": partial(driven.p2panda, 200),
    "short ssb, 200 messages": partial(driven.ssb, 200),
}
"""Paths that are short enough for counting instructions."""
BENCHMARKS.update(SHORT)
SAVING = (tuple(f"driven {name}" for name in driven.WORKS), tuple(SHORT))
"""Paths on which savings of kernels are measured, and those on which they are counted."""


def seconds_of(work: Work) -> float:
    start = process_time()
    work()
    return process_time() - start


def lines_of(work: Work) -> float:
    """Lines that Python executes in culm's files."""
    import culm  # of the served checkout

    ours = str(Path(str(culm.__file__)).parent) + os.sep
    counted = 0

    def line(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal counted
        counted += event == "line"
        return line

    def call(frame: FrameType, _event: str, _argument: object) -> Any:
        return line if frame.f_code.co_filename.startswith(ours) else None

    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(None)
    return float(counted)


def uses_a_twin(work: Work) -> float:
    """1 if a kernel's pure twin is called on the way, else 0."""
    found = False

    def call(frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal found
        if "/culm/kernels/pure_" in frame.f_code.co_filename:
            found = True
            sys.settrace(None)

    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(None)
    return float(found)


def marked(work: Work) -> float:
    """Nothing but marks: instructions are counted from outside."""
    callgrind.mark()
    work()
    callgrind.mark()
    return 0.0


MEASURES: dict[str, Callable[[Work], float]] = {
    "seconds": seconds_of,
    "marked": marked,
    "lines": lines_of,
    "twin": uses_a_twin,
}


def serve(without: str) -> None:
    """Run the benchmarks whose names are read, each once; print the cost of each.

    without: the kernel to replace with its pure twin.
    """
    if without:
        sys.modules[f"culm.kernels._{without}"] = None  # type: ignore[assignment]
        # a mixture of kernels is reported elsewhere
        warnings.simplefilter("ignore", RuntimeWarning)
    from culm import kernels

    print(kernels.__file__, kernels.IMPLEMENTATION, flush=True)
    for request in sys.stdin:
        measure, name = request.rstrip("\n").split(" ", 1)
        try:
            work = BENCHMARKS[name]()
        except ImportError as error:
            print("-", error, flush=True)
            continue
        gc.collect()
        print(MEASURES[measure](work), flush=True)


class Worker:
    """A process that runs the benchmarks in one checkout."""

    def __init__(self, checkout: Path, *, without: str = "") -> None:
        source = checkout / "src"
        paths = [source, *(checkout / name for name in ("benchmarks", "examples")), HERE.parent]
        path = os.pathsep.join(map(str, paths))
        self._environment = {**os.environ, **callgrind.ENVIRONMENT, "PYTHONPATH": path}
        self._serve = [sys.executable, "-P", str(HERE), "--serve", ".", "--without", without]
        self._process = subprocess.Popen(
            self._serve,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        where, self.kernels = self._answer().split()
        assert where.startswith(str(source)), f"culm comes from {where}"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def measure(self, what: str, name: str) -> float | None:
        """The cost of one round; ``None`` if this checkout lacks something it needs."""
        if what == "instructions":
            return self.instructions([name])[name]
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what} {name}\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert answer, f"{name} failed"
        return None if answer.startswith("-") else float(answer)

    def instructions(self, names: Sequence[str]) -> dict[str, float]:
        """Those of a round of each, after another round that fills caches."""
        said = "".join(f"seconds {name}\nmarked {name}\n" for name in names)
        parts = callgrind.parts(self._serve, said=said, environment=self._environment)
        return dict(zip(names, (float(part.total()) for part in parts[1::2]), strict=False))

    def end(self) -> None:
        self._process.communicate()


def measured(
    here: Worker, there: Worker, what: str, name: str, pairs: int
) -> list[tuple[float, float]]:
    """The cost of each pair, ours and theirs; the order alternates."""
    found: list[tuple[float, float]] = []
    for number in range(pairs):
        order = (here, there) if number % 2 else (there, here)
        if what == "instructions":
            with ThreadPoolExecutor() as threads:
                ours, theirs = threads.map(lambda each: each.measure(what, name), (here, there))
        else:
            taken = {worker: worker.measure(what, name) for worker in order}
            ours, theirs = taken[here], taken[there]
        if ours is None or theirs is None:
            return []
        found.append((ours, theirs))
    return found


def compare(here: Worker, there: Worker, arguments: argparse.Namespace) -> float:
    """Print the ratio of each benchmark; returns the smallest one."""
    what, pairs = arguments.what, arguments.pairs
    least = float("inf")
    print(f"{'':<58}{'median':>8}{'best':>8}{what:>15}")
    for name in BENCHMARKS:
        if arguments.only not in name:
            continue
        warm_up(here, there, what, name)
        found = measured(here, there, what, name, pairs)
        if not found:
            print(f"{name:<58}{'not in both':>24}", flush=True)
            continue
        ratio = median(theirs / ours for ours, theirs in found)
        best_ours, best_theirs = (min(taken) for taken in zip(*found, strict=True))
        least = min(least, ratio)
        print(f"{name:<58}{ratio:>8.3f}{best_theirs / best_ours:>8.3f}", end="")
        print(f"{best_ours:>15,.4g}", flush=True)
    return least


def warm_up(here: Worker, there: Worker, what: str, name: str) -> None:
    """Caches, and everything made only once."""
    if what != "instructions":
        for worker in (here, there):
            worker.measure(what, name)


def tell_savings(arguments: argparse.Namespace) -> None:
    """The saving of each kernel on each whole path, in percent of the cost without the kernel.

    A dash stands for a kernel that is not on the path.
    """
    from culm.kernels import NAMES

    counts = arguments.what == "instructions"
    paths = [path for path in SAVING[counts] if arguments.only in path]
    for number, path in enumerate(paths, 1):
        print(f"{number}: {path}")
    print(f"{'':<14}", *(f"{number:>6}" for number in range(1, len(paths) + 1)))
    here = Worker(HERE.parents[1])
    counted = here.instructions(paths) if counts else {}
    for kernel in NAMES:
        there = Worker(HERE.parents[1], without=kernel)
        used = [path for path in paths if there.measure("twin", path)]
        if counted and used:
            slower = there.instructions(used)
            savings = {path: 1 - counted[path] / slower[path] for path in used}
        else:
            savings = {path: saving(here, there, path, arguments) for path in used}
        told = (f"{100 * savings[path]:.1f}" if path in used else "-" for path in paths)
        print(f"{kernel:<14}" + "".join(f"{each:>7}" for each in told), flush=True)
        there.end()
    here.end()


def tell_recording(arguments: argparse.Namespace) -> None:
    """The factor by which recording all ends makes a path more costly: the median of all pairs."""
    what = arguments.what
    # Each in a process of its own: the interpreter adapts its code to the objects that it meets.
    workers = {of: Worker(HERE.parents[1]) for of in ("bare", "recorded")}
    for path in RECORDED:
        if arguments.only not in path:
            continue
        if what != "instructions":
            for of, worker in workers.items():
                worker.measure(what, f"{of} {path}")
        found: list[dict[str, float]] = []
        for number in range(arguments.pairs):
            order = reversed(workers) if number % 2 else workers
            taken = {of: workers[of].measure(what, f"{of} {path}") for of in order}
            found.append({of: cost for of, cost in taken.items() if cost is not None})
        ratio = median(taken["recorded"] / taken["bare"] for taken in found)
        bare, recorded = (min(taken[of] for taken in found) for of in workers)
        print(f"{path:<40}{bare:>15,.4g}{recorded:>15,.4g}{ratio:>8.3f}", flush=True)
    for worker in workers.values():
        worker.end()


def saving(here: Worker, there: Worker, name: str, arguments: argparse.Namespace) -> float:
    warm_up(here, there, arguments.what, name)
    found = measured(here, there, arguments.what, name, arguments.pairs)
    return median(1 - ours / theirs for ours, theirs in found)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--only", default="", help="a part of the names of benchmarks")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--lines", action="store_true", help="count lines of Python")
    parser.add_argument("--instructions", action="store_true", help="count them, with valgrind")
    parser.add_argument("--least", type=float, default=0.0, help="the least ratio that will do")
    parser.add_argument("--without", default="", help="the kernel that the other one is to lack")
    parser.add_argument("--kernels", action="store_true", help="what each kernel saves")
    parser.add_argument("--recording", action="store_true", help="what captures cost")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    counts = [each for each in ("lines", "instructions") if getattr(arguments, each)]
    arguments.what = counts[0] if counts else "seconds"
    arguments.pairs = 1 if counts else arguments.pairs
    return arguments


def main() -> int:
    arguments = read_arguments()
    if arguments.serve:
        serve(arguments.without)
        return 0
    if arguments.kernels:
        tell_savings(arguments)
        return 0
    if arguments.recording:
        tell_recording(arguments)
        return 0
    here = Worker(HERE.parents[1])
    there = Worker(arguments.other.resolve(), without=arguments.without)
    same = here.kernels == there.kernels or arguments.without
    assert same, "one checkout's kernels are not compiled"
    least = compare(here, there, arguments)
    here.end()
    there.end()
    return int(least < arguments.least)


if __name__ == "__main__":
    sys.exit(main())
