"""The main job, end to end: Python's own standard library travels as a Bamboo log.

Publishes the sources of the running interpreter's standard library, serves them from one
process, fetches them in another, kills that one halfway, starts it again, and compares
both trees byte for byte.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from culm.bamboo import LogKey
from culm.exits import ExitStatus, exits
from culm.kernels import IMPLEMENTATION
from culm.wire.multihash import YAMF
from culm_io.command import command_of
from culm_io.programs.arguments import source
from culm_io.stores.bamboo import SqliteStore, StoreFileError

# Files that are not source of the standard library itself.
_EXCLUDES = (
    "site-packages",
    "dist-packages",
    "__pycache__",
    "lib-dynload",
    "config-*",
    "*.whl",
    "*.so",
    "*.a",
)
_MIB = 1 << 20


class DemoError(Exception):
    """Something did not go as it has to."""


def demo(source: Path, folder: Path, done: dict[str, Any]) -> None:
    """Do it all in `folder`; raises `DemoError`.  `done` gets the figures as they become known."""
    published_store, fetched_store = folder / "published.store", folder / "fetched.store"
    target = folder / "fetched"
    _say(f"Publishing {source} ({IMPLEMENTATION} kernels)")
    excludes = [f"--exclude={pattern}" for pattern in _EXCLUDES]
    published = run_program("publish", source, *excludes, "--store", published_store)
    _say(
        f"  {published['head']} entries, {published['payload_bytes'] / _MIB:.1f} MiB of payloads,"
        f" in {published['seconds']:.1f} s; {published['skipped']} left out"
    )
    done |= {
        "kernels": IMPLEMENTATION,
        "entries": published["head"],
        "payload_bytes": published["payload_bytes"],
        "left_out": published["skipped"],
    }
    if not published["head"]:
        _say("  there is nothing in it to fetch")
        return
    author, _, log_id = published["log"].partition("/")
    log = LogKey(bytes.fromhex(author), int(log_id))
    with serving(published_store) as port:
        fetch = ("fetch", "--store", fetched_store, "--from", f"127.0.0.1:{port}")
        _say(f"Fetching from a server on port {port}, until the fetch is killed halfway")
        half = (int(published["head"]) + 1) // 2
        # Who is killed leaves a bar half drawn.
        kill_when_stored((*fetch, "--into", target, "--quiet"), fetched_store, log, half)
        checked = run_program("check", "--store", fetched_store)
        stored = checked["payloads"]
        done["entries_when_killed"] = stored
        _say(f"  killed when it had {stored} entries; all of them verify")
        _say("Fetching again")
        fetched = run_program(*fetch, "--into", target)
    _say(
        f"  {fetched['entries']} entries, {fetched['payload_bytes'] / _MIB:.1f} MiB of payloads"
        f" in {fetched['wire_bytes'] / _MIB:.1f} MiB on the wire"
        f" (ratio {fetched['compression_ratio']}), in {fetched['seconds']:.1f} s"
    )
    done |= {"entries_fetched_again": fetched["entries"], "wire_bytes": fetched["wire_bytes"]}
    _say("Comparing")
    if stored + fetched["entries"] != published["head"]:
        raise DemoError(
            f"{stored} and {fetched['entries']} entries do not make {published['head']}"
        )
    if fetched["head_hash"] != published["head_hash"]:
        raise DemoError("the last entries differ")
    if run_program("check", "--store", fetched_store)["payloads"] != published["head"]:
        raise DemoError("the fetched log is not whole")
    files, size = _compare(source, target, left_out=published["skipped"])
    done |= {"files": files, "file_bytes": size}
    _say(f"  {files} files, {size / _MIB:.1f} MiB: equal in content, mode and time")


# Processes.


def run_program(*arguments: object) -> dict[str, Any]:
    """Run a command to its end; its summary."""
    done = subprocess.run(command_of("directory", *arguments), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        said = done.stdout.strip() or "nothing said"
        raise DemoError(f"{arguments[0]} has failed with status {done.returncode}: {said}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


@contextmanager
def serving(store: Path) -> Iterator[int]:
    """A server in a process of its own; its port.  Its output is told if it fails."""
    with subprocess.Popen(
        command_of("directory", "serve", "--store", store, "--port", 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise DemoError(f"the server does not start: {process.stderr.read().strip()}")
            yield int(json.loads(line)["port"])
        finally:
            process.send_signal(signal.SIGTERM)
            said = process.stderr.read().strip()  # to its end: its folder may be gone after that
    if process.returncode:
        raise DemoError(f"the server has ended with status {process.returncode}: {said}")


def kill_when_stored(command: tuple[object, ...], store: Path, log: LogKey, count: int) -> None:
    """Run a command, and kill it as soon as it has stored `count` entries."""
    with subprocess.Popen(
        command_of("directory", *command), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            while _stored(store, log) < count and process.poll() is None:
                time.sleep(0.002)
        finally:  # an interrupt does not leave it running either
            process.send_signal(signal.SIGKILL)
    if process.returncode != -signal.SIGKILL:
        raise DemoError("the fetch had ended before it could be killed")


# Stores and trees.


def _stored(path: Path, log: LogKey) -> int:
    """How many entries are in a store, which need not be there yet."""
    try:
        with SqliteStore(path, family=YAMF, must_exist=True) as store:
            head = store.head(log)
    except StoreFileError:
        return 0
    return 0 if head is None else head.seqnum


def _compare(source: Path, target: Path, *, left_out: int) -> tuple[int, int]:
    """Compare both trees; numbers of files and of bytes.

    As many links may be missing as publishing has `left_out` because they lead elsewhere.
    """
    wanted, found = dict(_walk(source, _EXCLUDES)), dict(_walk(target, ()))
    missing = wanted.keys() - found.keys()
    links = {path for path in missing if stat.S_ISLNK(wanted[path].st_mode)}
    if missing != links or len(links) != left_out or not found.keys() <= wanted.keys():
        raise DemoError(f"not in both trees: {sorted(wanted.keys() ^ found.keys())[:10]}")
    size = 0
    for path, other in found.items():
        status = wanted[path]
        if status.st_mode != other.st_mode:
            raise DemoError(f"{path}: mode {other.st_mode:o} instead of {status.st_mode:o}")
        if stat.S_ISREG(status.st_mode):
            content = (source / path).read_bytes()
            size += len(content)
            if content != (target / path).read_bytes():
                raise DemoError(f"{path}: contents differ")
            if status.st_mtime_ns != other.st_mtime_ns:
                raise DemoError(f"{path}: times differ")
        elif stat.S_ISLNK(status.st_mode) and (
            os.readlink(source / path) != os.readlink(target / path)
        ):
            raise DemoError(f"{path}: links differ")
    return sum(stat.S_ISREG(status.st_mode) for status in found.values()), size


def _walk(root: Path, excludes: tuple[str, ...]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in root.iterdir():
        if not any(fnmatchcase(path.name, pattern) for pattern in excludes):
            status = path.lstat()
            yield Path(path.name), status
            if stat.S_ISDIR(status.st_mode):
                for inner, inner_status in _walk(path, excludes):
                    yield Path(path.name, inner), inner_status


def _say(text: str) -> None:
    print(text, flush=True)


def told(run: Callable[[dict[str, Any]], object], *, as_json: bool) -> ExitStatus:
    """Run a demo to its verdict, and tell that; the exit status.

    `run` may raise `DemoError`, and puts its figures into its argument.  As JSON there is
    nothing but these on stdout, with the verdict; each step is told on stderr.
    """
    started = time.monotonic()
    done: dict[str, Any] = {}
    error: DemoError | None = None
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        try:
            run(done)
        except DemoError as failure:
            error = failure
        seconds = round(time.monotonic() - started, 1)
        _say(f"Done in {seconds} s" if error is None else f"FAILED: {error}")
    if as_json:
        verdict = {"passed": error is None, "error": None if error is None else str(error)}
        print(json.dumps({**done, **verdict, "seconds": seconds}))
    return ExitStatus.DONE if error is None else ExitStatus.FAILED


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that `told` is asked for with."""
    purpose = "write a summary as JSON to stdout, and the steps to stderr"
    parser.add_argument("--json", action="store_true", help=purpose)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="culm demo",
        description=(__doc__ or "").partition("\n")[0],
        epilog=exits(
            {
                ExitStatus.DONE: "both trees are equal",
                ExitStatus.FAILED: "they differ, or a step has failed",
                ExitStatus.IMPOSSIBLE: "wrong arguments",
            }
        ),
    )
    made.add_argument(
        "--source",
        type=source,
        default=Path(sysconfig.get_path("stdlib")),
        metavar="DIR",
        help="the directory to replicate (default: %(default)s)",
    )
    add_json(made)
    return made


def main(words: Sequence[str] | None = None) -> ExitStatus:
    """Run the demo; the exit status."""
    options = parser().parse_args(words)

    def run(done: dict[str, Any]) -> None:
        done["source"] = str(options.source)
        with tempfile.TemporaryDirectory(prefix="culm-demo-") as folder:
            demo(options.source, Path(folder), done)

    return told(run, as_json=options.json)
