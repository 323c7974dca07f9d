"""A directory travels as a Bamboo log: publish it, serve it, fetch it.

::

    replicate_directory.py publish DIR --store FILE
    replicate_directory.py serve --store FILE --port N
    replicate_directory.py fetch --store FILE --from HOST:PORT --into DIR
    replicate_directory.py check --store FILE

Each writes JSON to stdout, one object a line, and what is for people to stderr.  The exit
status is 0, or 1 if replication failed (``code`` in fetch's summary says how) or a store
holds what does not verify, or 2 if what was asked for cannot be done.

For POSIX systems.  See docs/replicate-directory.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from culm.bamboo import LogKey, LogStore, VerificationError
from culm.wire.multihash import YAMF
from directory.check import check_log
from directory.fetch import Failure, Fetched, fetch_logs
from directory.files import StoreFilesError, belonging_to, load_key, locked
from directory.materialise import Materialised, materialise
from directory.progress import FetchProgress
from directory.publish import publish_directory
from directory.records import RecordError
from directory.serve import serve_logs
from stores.sqlite_store import SqliteStore, StoreFileError

_PROGRAM = "replicate_directory"


def publish(options: argparse.Namespace) -> int:
    """Append what has changed in a directory to its log."""
    started = time.monotonic()
    if not options.directory.is_dir():
        raise NotADirectoryError(f"{options.directory}: not a directory")
    # Durable: an entry that somebody has and that we forget makes the next one a fork.
    with locked(options.store), SqliteStore(options.store, family=YAMF, durable=True) as store:
        key = load_key(options.store, create=not store.logs())
        done = publish_directory(
            options.directory,
            store,
            key,
            excludes=options.exclude,
            private=belonging_to(options.store),
        )
        for reason in done.skipped:
            _tell(f"left out {reason}")
        head = store.head(done.log)
    _write(
        {
            "log": _name(done.log),
            "entries": done.entries,
            "payload_bytes": done.payload_bytes,
            "unchanged": done.unchanged,
            "skipped": len(done.skipped),
            "seconds": round(time.monotonic() - started, 3),
            "head": 0 if head is None else head.seqnum,
            "head_hash": None if head is None else head.hash.hex(),
        }
    )
    return 0


def serve(options: argparse.Namespace) -> int:
    """Serve the logs of a store until told to stop."""
    with SqliteStore(options.store, family=YAMF, must_exist=True) as store:

        def listening(host: str, port: int) -> None:
            logs = [_name(log) for log in store.logs()]
            _write({"host": host, "port": port, "logs": logs})

        asyncio.run(
            serve_logs(
                store,
                options.host,
                options.port,
                clients_max=options.clients_max,
                on_listening=listening,
                on_left=lambda peer, reason: _tell(f"{peer} has left: {reason}"),
            )
        )
    return 0


def fetch(options: argparse.Namespace) -> int:
    """Fetch the logs of a peer, and make a directory what the log says."""
    started = time.monotonic()
    host, port = options.peer
    with (
        locked(options.store),
        # What is lost when the power goes can be fetched again.
        SqliteStore(options.store, family=YAMF, durable=False) as store,
        FetchProgress(quiet=options.quiet) as progress,
    ):
        fetched = asyncio.run(
            fetch_logs(
                store,
                host,
                port,
                wanted=options.log,
                silence_max_s=options.timeout,
                settle_s=options.settle,
                on_progress=progress.fetched,
            )
        )
        log, failure = _choose(store, options.log, fetched)
        made = Materialised()
        if failure is None and log is not None and options.into is not None:
            made, failure = _materialise(store, log, options.into, progress.written)
        summary = _summary(store, log, fetched, made, failure)
    _write(summary | {"seconds": round(time.monotonic() - started, 3)})
    if failure is not None:
        _tell(f"{failure.code}: {failure.text}")
    return 0 if failure is None else 1


def _choose(
    store: LogStore, wanted: LogKey | None, fetched: Fetched
) -> tuple[LogKey | None, Failure | None]:
    """The log that tells of the directory, and what is in the way of using it."""
    logs = store.logs()
    log = wanted or (logs[0] if len(logs) == 1 else None)
    failure = fetched.failure
    if failure is None and log is None:
        names = ", ".join(map(_name, logs))
        failure = Failure("SEVERAL_LOGS", f"choose one with --log: {names}")
    return log, failure


def _materialise(
    store: LogStore, log: LogKey, into: Path, on_place: Callable[[int, int], object]
) -> tuple[Materialised, Failure | None]:
    try:
        return materialise(store, log, into, on_place=on_place), None
    except RecordError as error:
        return Materialised(), Failure("BAD_RECORD", str(error))
    except OSError as error:
        return Materialised(), Failure("CANNOT_WRITE", str(error))


def _summary(
    store: LogStore,
    log: LogKey | None,
    fetched: Fetched,
    made: Materialised,
    failure: Failure | None,
) -> dict[str, Any]:
    head = None if log is None else store.head(log)
    return {
        "log": None if log is None else _name(log),
        "entries": fetched.entries,
        "payload_bytes": fetched.payload_bytes,
        "wire_bytes": fetched.wire_bytes,
        "compression_ratio": (
            round(fetched.payload_bytes / fetched.wire_bytes, 3) if fetched.wire_bytes else None
        ),
        "written": made.written,
        "unchanged": made.unchanged,
        "removed": made.removed,
        "head": 0 if head is None else head.seqnum,
        "head_hash": None if head is None else head.hash.hex(),
        "code": None if failure is None else failure.code,
        "error": None if failure is None else failure.text,
    }


def check(options: argparse.Namespace) -> int:
    """Verify anew all that a store holds."""
    status = 0
    with SqliteStore(options.store, family=YAMF, must_exist=True) as store:
        for log in store.logs():
            report = check_log(store, log)
            fork = store.fork(log)
            _write(
                {
                    "log": _name(log),
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
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (
        OSError,
        OverflowError,
        RecordError,
        StoreFileError,
        StoreFilesError,
        VerificationError,
        sqlite3.Error,
    ) as error:
        _tell(str(error))
        return 2
    except KeyboardInterrupt:
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

    command = commands.add_parser("serve", help=serve.__doc__)
    command.set_defaults(run=serve)
    _add_store(command)
    command.add_argument("--port", type=int, required=True, metavar="N", help="0: any free port")
    command.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    command.add_argument(
        "--clients-max", type=int, default=64, metavar="N", help="(default: %(default)s)"
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
        help="give up a peer that is silent for so long (default: %(default)s)",
    )
    command.add_argument(
        "--settle",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="all is here when nothing has been going on for so long (default: %(default)s)",
    )
    command.add_argument("--quiet", action="store_true", help="no progress bar")

    command = commands.add_parser("check", help=check.__doc__)
    command.set_defaults(run=check)
    _add_store(command)
    return parser


def _add_store(command: argparse.ArgumentParser) -> None:
    command.add_argument("--store", type=Path, required=True, metavar="FILE")


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


def _name(log: LogKey) -> str:
    return f"{log.author.hex()}/{log.log_id}"


def _write(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def _tell(text: str) -> None:
    print(f"{_PROGRAM}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
