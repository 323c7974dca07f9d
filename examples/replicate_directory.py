"""A directory travels as a Bamboo log: publish it, serve it, fetch it.

::

    replicate_directory.py publish DIR --store FILE
    replicate_directory.py serve --store FILE --port N
    replicate_directory.py fetch --store FILE --from HOST:PORT --into DIR [--live]
    replicate_directory.py fetch --store FILE --from HOST:PORT --sparse SEQ
    replicate_directory.py check --store FILE

Each writes JSON to stdout, one object a line, and what is for people to stderr.  The exit
status is 0, or 1 if replication failed (``code`` in fetch's summary says how) or a store
holds what does not verify, or 2 if what was asked for cannot be done, or 3 if some of what
was to be published cannot be read, or 4 if somebody else is fetching into the directory.

For POSIX systems.  See docs/replicate-directory.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from nacl.signing import SigningKey

from culm.bamboo import LogKey, VerificationError
from culm.wire.multihash import YAMF
from directory import report
from directory.check import check_log
from directory.fetch import Failure, Fetched, Terms, fetch_logs
from directory.files import (
    StoreFilesError,
    belonging_to,
    load_key,
    locked,
    note_published,
    settled_before,
)
from directory.folders import FolderBusyError
from directory.live import block_signals, follow_logs
from directory.mirror import Mirror
from directory.progress import FetchProgress
from directory.publish import Published, publish_directory
from directory.records import RecordError
from directory.report import log_id
from directory.serve import Bounds, serve_logs
from directory.sparse import certify, fetch_entry
from directory.tree import read_records
from stores.sqlite_store import SqliteStore, StoreFileError

T = TypeVar("T")

_PROGRAM = "replicate_directory"
# What ends a command with one line that says why.
_FAULTS = (
    OSError,
    OverflowError,
    RecordError,
    StoreFileError,
    StoreFilesError,
    VerificationError,
    sqlite3.Error,
)


def publish(options: argparse.Namespace) -> int:
    """Append what has changed in a directory to its log."""
    started = time.monotonic()
    if not options.directory.is_dir():
        raise NotADirectoryError(f"{options.directory}: not a directory")
    # Durable: an entry that somebody has and that we forget makes the next one a fork.
    with locked(options.store), SqliteStore(options.store, family=YAMF, durable=True) as store:
        key = load_key(options.store, create=not store.logs())
        done = Published(LogKey(bytes(key.verify_key), 0))
        error: Exception | None = None
        try:
            _publish(options, store, key, done)
        except _FAULTS as fault:
            error = fault
        head = store.head(done.log)
    for line in report.of_findings(done.findings):
        _tell(line)
    seconds = round(time.monotonic() - started, 3)
    _write(report.of_publish(done, head, error) | {"seconds": seconds})
    if error is not None:
        _tell(str(error))
        return 2
    return 3 if done.findings.failed else 0


def _publish(
    options: argparse.Namespace, store: SqliteStore, key: SigningKey, done: Published
) -> None:
    began = time.time_ns()
    known = None if options.checksum else settled_before(options.store, options.directory)
    publish_directory(
        options.directory,
        store,
        key,
        excludes=options.exclude,
        private=belonging_to(options.store),
        settled_before=known,
        pack=not options.unpacked,
        done=done,
    )
    note_published(options.store, options.directory, began, done.unsettled)


def serve(options: argparse.Namespace) -> int:
    """Serve the logs of a store until told to stop."""
    with SqliteStore(options.store, family=YAMF, must_exist=True) as store:

        def listening(host: str, port: int) -> None:
            logs = [log_id(log) for log in store.logs()]
            _write({"host": host, "port": port, "logs": logs})

        asyncio.run(
            serve_logs(
                store,
                options.host,
                options.port,
                bounds=Bounds(
                    clients_max=options.clients_max,
                    address_max=options.address_max,
                    memory_max=options.memory << 20,
                    idle_max_s=options.idle,
                ),
                changed=store.changed,
                poll_s=options.poll,
                on_listening=listening,
                on_left=lambda peer, reason: _tell(f"{peer} has left: {reason}"),
            )
        )
    return 0


def fetch(options: argparse.Namespace) -> int:
    """Fetch the logs of a peer, and make a directory what the log says."""
    started = time.monotonic()
    with (
        locked(options.store),
        # What is lost when the power goes can be fetched again.
        SqliteStore(options.store, family=YAMF, durable=False) as store,
        FetchProgress(quiet=options.quiet) as progress,
    ):
        run = _fetch_entry if options.sparse is not None else _fetch_logs
        summary = run(options, store, progress)
    _write(summary | {"seconds": round(time.monotonic() - started, 3)})
    if summary["code"] is not None:
        _tell(f"{summary['code']}: {summary['error']}")
    return {None: 0, "BUSY": 4}.get(summary["code"], 1)


def _terms(options: argparse.Namespace) -> Terms:
    return Terms(
        wanted=options.log,
        silence_max_s=options.timeout,
        settle_s=options.settle,
        payload_size_max=options.max_payload,
        added_size_max=_added_size_max(options),
    )


def _added_size_max(options: argparse.Namespace) -> int:
    """What the store may be given: if nobody says, half of the free space; the rest is for DIR."""
    if options.max_size is not None:
        return int(options.max_size) << 20
    return shutil.disk_usage(options.store.absolute().parent).free // 2


def _fetch_logs(
    options: argparse.Namespace, store: SqliteStore, progress: FetchProgress
) -> dict[str, Any]:
    """Fetch logs, once or for good; what has come of it."""
    with Mirror(
        store,
        into=options.into,
        wanted=options.log,
        payload_size_max=options.max_payload,
        private=belonging_to(options.store),
        on_place=progress.written,
    ) as mirror:
        return _fetch_into(mirror, options, store, progress)


def _fetch_into(
    mirror: Mirror, options: argparse.Namespace, store: SqliteStore, progress: FetchProgress
) -> dict[str, Any]:
    host, port = options.peer

    def update(fetched: Fetched) -> Failure | None:
        made, failure = mirror.update()
        if failure is None and mirror.log is not None:
            _write(report.of_update(store, mirror.log, fetched, made))
        return failure

    async def follow() -> Fetched:
        fetched = await follow_logs(
            store, host, port, _terms(options), update=update, on_progress=progress.fetched
        )
        # The summary is yet to come: further signals must not cut it short.
        block_signals()
        return fetched

    if options.live:
        fetched = asyncio.run(follow())
    else:
        fetched = _run(fetch_logs(store, host, port, _terms(options), on_progress=progress.fetched))
        if fetched.failure is None:
            fetched.failure = mirror.update()[1]
    if (unfinished := mirror.unfinished()) is not None:
        fetched.fail(unfinished)
        for path, reason in mirror.failed.items():
            _tell(f"cannot write {os.fsdecode(path)!r}: {reason}")
    return report.of_fetch(store, mirror.log, fetched, mirror.made)


def _run(fetching: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or until SIGINT, which wakes the loop also when it is about to sleep."""

    async def interruptible() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
        return await fetching

    return asyncio.run(interruptible())


def _fetch_entry(
    options: argparse.Namespace, store: SqliteStore, progress: FetchProgress
) -> dict[str, Any]:
    """Fetch one entry and verify what proves that it is of its log; what has come of it."""
    host, port = options.peer
    fetched, log = _run(fetch_entry(store, host, port, _terms(options), options.sparse))
    certified, records = None, None
    if fetched.failure is None and log is not None:
        certified = certify(store, log, options.sparse)
        try:
            records = [piece.record for piece in read_records(store, log, certified.stored)]
        except RecordError as error:
            fetched.fail(Failure("BAD_RECORD", f"entry {options.sparse}: {error}"))
    return report.of_entry(log, fetched, certified, records)


def check(options: argparse.Namespace) -> int:
    """Verify anew all that a store holds."""
    status = 0
    with SqliteStore(options.store, family=YAMF, must_exist=True) as store:
        for log in store.logs():
            report = check_log(store, log)
            fork = store.fork(log)
            _write(
                {
                    "log": log_id(log),
                    "entries": report.entries,
                    "payloads": report.payloads,
                    "forked_at": None if fork is None else fork.seqnum,
                    "faults": report.faults,
                }
            )
            status = 1 if report.faults else status
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.run is fetch and options.sparse is not None:
        for name in ("into", "max_payload"):
            if getattr(options, name) is not None:
                parser.error(f"--sparse and --{name.replace('_', '-')} do not go together")
    try:
        status: int = options.run(options)
    except FolderBusyError as error:
        _tell(str(error))
        return 4
    except _FAULTS as error:
        _tell(str(error))
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        _tell("interrupted")
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="A directory travels as a Bamboo log."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("publish", help=publish.__doc__)
    command.set_defaults(run=publish)
    command.add_argument("directory", type=Path, metavar="DIR")
    _add_store(command)
    command.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out names or relative paths that match (may be repeated)",
    )
    command.add_argument(
        "--checksum",
        action="store_true",
        help="compare the content of all files, not only of those that may have changed",
    )
    command.add_argument(
        "--unpacked",
        action="store_true",
        help="an entry for every file, however small, so that each can be fetched alone",
    )

    command = commands.add_parser("serve", help=serve.__doc__)
    command.set_defaults(run=serve)
    _add_store(command)
    command.add_argument("--port", type=int, required=True, metavar="N", help="0: any free port")
    command.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    command.add_argument(
        "--clients-max", type=_count, default=64, metavar="N", help="(default: %(default)s)"
    )
    command.add_argument(
        "--address-max",
        type=_count,
        default=16,
        metavar="N",
        help="clients from one address (default: %(default)s)",
    )
    command.add_argument(
        "--memory",
        type=_count,
        default=256,
        metavar="MIB",
        help="what is held for all clients together (default: %(default)s MiB)",
    )
    command.add_argument(
        "--idle",
        type=_interval,
        default=600.0,
        metavar="SECONDS",
        help="a client that answers and asks nothing, or takes nothing of what it has asked for,"
        " has to go after so long (default: %(default)s)",
    )
    command.add_argument(
        "--poll",
        type=_interval,
        default=0.2,
        metavar="SECONDS",
        help="look for what others have stored so often (default: %(default)s)",
    )

    command = commands.add_parser("fetch", help=fetch.__doc__)
    command.set_defaults(run=fetch)
    _add_store(command)
    command.add_argument("--from", dest="peer", type=_address, required=True, metavar="HOST:PORT")
    command.add_argument("--into", type=Path, metavar="DIR", help="without it: fetch only")
    command.add_argument(
        "--log", type=_log, metavar="AUTHOR/ID", help="the only log to fetch, as publish names it"
    )
    command.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="give up a peer that is silent, or does not go on, for so long (default: %(default)s)",
    )
    command.add_argument(
        "--settle",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="all is here when nothing has been going on for so long (default: %(default)s)",
    )
    command.add_argument("--quiet", action="store_true", help="no progress bar")
    command.add_argument(
        "--max-payload",
        type=_number,
        metavar="N",
        help="leave out payloads of more than N bytes; without it, what was left out comes, too",
    )
    command.add_argument(
        "--max-size",
        type=_count,
        metavar="MIB",
        help="what the store may be given at most (default: half of the free space)",
    )
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--live",
        action="store_true",
        help="stay, and take over what the peer stores, until interrupted",
    )
    what.add_argument(
        "--sparse",
        type=_seqnum,
        metavar="SEQ",
        help="only entry SEQ, with what proves that it belongs to the log",
    )

    command = commands.add_parser("check", help=check.__doc__)
    command.set_defaults(run=check)
    _add_store(command)
    return parser


def _add_store(command: argparse.ArgumentParser) -> None:
    command.add_argument("--store", type=Path, required=True, metavar="FILE")


def _interval(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time between two looks")
    return seconds


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 64 bits")
    return int(text)


def _count(text: str) -> int:
    number = _number(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is none at all")
    return number


def _seqnum(text: str) -> int:
    number = _number(text)
    if not number:
        raise argparse.ArgumentTypeError("entries are numbered from 1 on")
    return number


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _log(text: str) -> LogKey:
    author, _, log_id = text.partition("/")
    try:
        key = LogKey(bytes.fromhex(author), int(log_id))
    except ValueError:
        key = LogKey(b"", 0)
    if len(key.author) != 32 or not 0 <= key.log_id < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not AUTHOR/ID")
    return key


def _write(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def _tell(text: str) -> None:
    print(f"{_PROGRAM}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
