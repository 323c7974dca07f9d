"""A tree of many small files: the cost of copying it with the directory program and ``rsync -a``.

Run: ``python benchmarks/bench_directory.py [--files 100000] [--folder DIR]``, with rsync installed
for the comparison.  Both copy the same tree into a new directory, one after the other.  Prints a
table: wall and processor time, peak memory; then the program's time, part by part.

On ext4, creating files is slow for minutes after many others were removed: use a fresh folder, or
one in memory (``/dev/shm``).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_EXAMPLES = Path(__file__).parents[1] / "examples"
_PROGRAM = ("-m", "culm_io", "directory")
_FILES_PER_DIRECTORY = 1000


class Cost(NamedTuple):
    """For a process and those that it has waited for: seconds, and peak bytes."""

    wall: float
    user: float
    system: float
    peak: int

    def row(self, name: str) -> str:
        processor = self.user + self.system
        return f"{name:<24}{self.wall:>8.1f}{processor:>12.1f}{self.peak / (1 << 20):>10.0f}"


def make_files(root: Path, count: int) -> None:
    """Files of up to a few kilobytes of text."""
    rng = random.Random(1)
    for number in range(count):
        folder = root / f"{number // _FILES_PER_DIRECTORY:03}"
        if number % _FILES_PER_DIRECTORY == 0:
            folder.mkdir(parents=True)
        text = b"%d: some text of a file\n" % number
        (folder / f"file{number}.txt").write_bytes(text * rng.randint(1, 60))


def wait(process: subprocess.Popen[str], started: float) -> Cost:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{process.args} has failed")
    wall = time.monotonic() - started
    return Cost(wall, usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024)


def run(*command: object) -> Cost:
    started = time.monotonic()
    return wait(
        subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, text=True), started
    )


def replicate(source: Path, folder: Path) -> dict[str, Cost]:
    """Publish, serve, fetch, and publish again."""
    program = (sys.executable, *_PROGRAM)
    published, fetched, target = (folder / name for name in ("published", "fetched", "target"))
    publish = (*program, "publish", source, "--store", published)
    costs = {"publish": run(*publish)}
    started = time.monotonic()
    server = subprocess.Popen(
        [*program, "serve", "--store", published, "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    port = json.loads(server.stdout.readline())["port"]
    fetch = (
        *program,
        "fetch",
        "--store",
        fetched,
        "--from",
        f"127.0.0.1:{port}",
        "--settle",
        "0.1",
    )
    costs["fetch"] = run(*fetch, "--into", target)
    server.terminate()
    costs["serve"] = wait(server, started)
    costs["publish, nothing new"] = run(*publish)
    return costs


def parts(source: Path, store: Path, folder: Path) -> dict[str, float]:
    """Processor time of the parts of publishing and fetching (seconds)."""
    sys.path.insert(0, str(_EXAMPLES))
    from nacl.signing import SigningKey

    from culm.bamboo import LogKey, MemoryStore, audit_log
    from culm.wire.multihash import YAMF
    from culm_io.programs.directory.materialise import materialise
    from culm_io.programs.directory.publish import publish_directory
    from culm_io.programs.directory.scan import Scanner
    from culm_io.programs.directory.tree import TreeReader
    from culm_io.stores.bamboo import SqliteStore

    key = SigningKey(bytes(32))
    log = LogKey(bytes(key.verify_key), 0)
    kept = MemoryStore(family=YAMF)
    root = os.open(source, os.O_RDONLY)
    opened = SqliteStore(store, family=YAMF)
    (there,) = opened.logs()
    tree = TreeReader(opened, there).read()
    names = list(tree.places)
    rows = [(entry.encoded, None) for entry in opened.entries(there)]
    (folder / "bare").mkdir()
    works: dict[str, Callable[[], object]] = {
        "find the files": lambda: list(Scanner(root, (), ()).scan()),
        "find, read, pack, sign": lambda: publish_directory(source, kept, key),
        "verify the entries": lambda: list(audit_log(there, rows, family=YAMF)),
        "read the log as a tree": lambda: TreeReader(opened, there).read(),
        "write the files": lambda: materialise(opened, there, folder / "made", tree=tree),
        "write as many, bare": lambda: bare(folder / "bare", len(names)),
    }
    assert log != there
    costs = {}
    for name, work in works.items():
        started = time.process_time()
        work()
        costs[name] = time.process_time() - started
    return costs


def bare(folder: Path, count: int) -> None:
    """The bare system calls to create files and move them into place."""
    staging = os.open(folder, os.O_RDONLY)
    place = staging
    for number in range(count):
        if number % _FILES_PER_DIRECTORY == 0:
            name = f"{number // _FILES_PER_DIRECTORY:03}"
            os.mkdir(name, dir_fd=staging)
            place = os.open(name, os.O_RDONLY, dir_fd=staging)
        file = os.open(b"file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=staging)
        os.write(file, bytes(800))
        os.fchmod(file, 0o644)
        os.utime(file, ns=(number, number))
        os.close(file)
        os.rename(b"file", b"%d" % number, src_dir_fd=staging, dst_dir_fd=place)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=100_000, metavar="N")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to work")
    parser.add_argument("--parts", type=Path, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.parts:  # a separate process: the table must not count these imports
        print(json.dumps(parts(*options.parts)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="culm-bench-") as name:
        folder = Path(name)
        source = folder / "source"
        make_files(source, options.files)
        print(f"{options.files} files{'wall s':>20}{'user+sys s':>12}{'peak MiB':>10}")
        rsync = shutil.which("rsync")
        costs = {"rsync -a": run(rsync, "-a", f"{source}/", folder / "copy")} if rsync else {}
        costs |= replicate(source, folder)
        for each, cost in costs.items():
            print(cost.row(each))
        whole = sum(sum(costs[each][1:3]) for each in ("publish", "serve", "fetch"))
        line = f"publish, serve, fetch: {whole:.1f} s of processor time"
        if rsync:
            line += f", {whole / sum(costs['rsync -a'][1:3]):.1f} times that of rsync -a"
        print(line)
        command = [sys.executable, __file__, "--parts", source, folder / "fetched", folder]
        start = sum(run(sys.executable, *_PROGRAM, "--help")[1:3])
        print(f"  {'start Python, each time':<24}{start:>6.2f} s")
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for each, seconds in json.loads(found).items():
            print(f"  {each:<24}{seconds:>6.2f} s")


if __name__ == "__main__":
    main()
