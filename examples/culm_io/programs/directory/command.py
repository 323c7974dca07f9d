"""A directory travels as a Bamboo log: publish it, serve it, fetch it.

::

    culm directory publish DIR --store FILE
    culm directory serve --store FILE --port N
    culm directory fetch --store FILE --from HOST:PORT --into DIR [--live]
    culm directory fetch --store FILE --from HOST:PORT --sparse SEQ
    culm directory export --store FILE --into DIR [--entry SEQ]
    culm directory check --store FILE
    culm directory verify DIR --store FILE
    culm directory ls --store FILE [--json]
    culm directory log --store FILE [--json]

Results go to stdout: in words on a terminal, and in lines of JSON elsewhere or with ``--json``;
``ls`` and ``log`` write JSON only if they are told to.  Failures are told on stderr.
``serve`` and ``--live`` go on until they are interrupted, and end with 0.

For POSIX systems.  See docs/replicate-directory.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from nacl.signing import SigningKey

from culm.bamboo import Head, LogKey, LogStore, MemoryStore, VerificationError
from culm.exits import ExitStatus
from culm.wire.multihash import YAMF
from culm_io.programs.captures import Captures
from culm_io.programs.directory import report
from culm_io.programs.directory.check import check_log
from culm_io.programs.directory.fetch import Failure, Fetched, Terms, fetch_logs
from culm_io.programs.directory.files import (
    belonging_to,
    load_key,
    note_published,
    settled_before,
)
from culm_io.programs.directory.folders import FolderBusyError
from culm_io.programs.directory.listing import differences, list_entries, list_paths
from culm_io.programs.directory.live import block_signals, follow_logs
from culm_io.programs.directory.look import look_at_servers
from culm_io.programs.directory.materialise import Materialised, materialise
from culm_io.programs.directory.mirror import Mirror, inside
from culm_io.programs.directory.options import PROGRAM, conflict_of, parser_for
from culm_io.programs.directory.parts import all_lacking, chooser, fetch_parts, lacking_of
from culm_io.programs.directory.progress import Progress
from culm_io.programs.directory.publish import Published, publish_directory
from culm_io.programs.directory.records import PACK_SIZE_MAX, RecordError
from culm_io.programs.directory.report import log_id
from culm_io.programs.directory.serve import Bounds, serve_logs
from culm_io.programs.directory.sparse import certify, fetch_entry
from culm_io.programs.directory.tree import TreeReader, read_records
from culm_io.programs.ending import sentence_of
from culm_io.programs.locks import StoreFilesError, locked
from culm_io.programs.numbers import Metrics
from culm_io.programs.tables import Table, Teller, show
from culm_io.stores.bamboo import SqliteStore, StoreFileError

T = TypeVar("T")

_teller = Teller()
result = _teller.result
"""A line for the caller of the program."""

# Errors that end a command with one line that says why.
_FAULTS = (
    OSError,
    OverflowError,
    RecordError,
    StoreFileError,
    StoreFilesError,
    VerificationError,
    sqlite3.Error,
)


def publish(options: argparse.Namespace) -> ExitStatus:
    """Append the changes in a directory to its log."""
    started = time.monotonic()
    if not options.directory.is_dir():
        raise NotADirectoryError(f"{options.directory}: not a directory")
    if options.dry_run and not options.store.exists():
        return _publish_dry(options, started)
    # Durable: an entry that a peer has and we forget makes the next one a fork.
    with (
        locked(options.store),
        SqliteStore(options.store, family=YAMF, durable=True) as store,
        Progress("publishing", quiet=options.quiet) as bars,
    ):
        key = load_key(options.store, create=not store.logs())
        done = Published(LogKey(bytes(key.verify_key), 0))
        status, error = _attempt(partial(_publish, options, store, key, done, bars))
        head = store.head(done.log)
    return _tell_published(options, done, head, status, error, started)


def _publish_dry(options: argparse.Namespace, started: float) -> ExitStatus:
    """Tell the result of publishing where there is no store yet; there is none afterwards."""
    key, store = SigningKey.generate(), MemoryStore(family=YAMF)
    done = Published(LogKey(bytes(key.verify_key), 0))
    with Progress("publishing", quiet=options.quiet) as bars:
        status, error = _attempt(partial(_append, options, store, key, done, bars, settled=None))
    return _tell_published(options, done, None, status, error, started)


def _attempt(publishing: Callable[[], None]) -> tuple[ExitStatus, str | None]:
    """Publish; the status, and why that has ended early, if it has."""
    try:
        publishing()
    except _FAULTS as fault:
        return ExitStatus.IMPOSSIBLE, sentence_of(fault)
    except KeyboardInterrupt:
        # The summary is yet to come: further signals must not cut it short.
        block_signals()
        return ExitStatus.INTERRUPTED, "interrupted"
    return ExitStatus.DONE, None


def _tell_published(
    options: argparse.Namespace,
    done: Published,
    head: Head | None,
    status: ExitStatus,
    error: str | None,
    started: float,
) -> ExitStatus:
    for kind, path in done.paths:
        result({"would_publish": kind, "path": path.decode("utf-8", "surrogateescape")})
    for line in report.of_findings(done.findings):
        _tell(line)
    seconds = round(time.monotonic() - started, 3)
    dry = {"dry_run": True} if options.dry_run else {}
    result(report.of_publish(done, head, error) | dry | {"seconds": seconds})
    if error is not None:
        _tell(error)
        return status
    return ExitStatus.INCOMPLETE if done.findings.failed else status


def _publish(
    options: argparse.Namespace,
    store: SqliteStore,
    key: SigningKey,
    done: Published,
    bars: Progress,
) -> None:
    began = time.time_ns()

    def hash_of(seqnum: int) -> bytes | None:
        return store.hashes(done.log, [seqnum]).get(seqnum)

    known = None if options.checksum else settled_before(options.store, options.directory, hash_of)
    _append(options, store, key, done, bars, settled=known)
    if not options.dry_run:
        head = store.head(done.log)
        note_published(options.store, options.directory, began, done.unsettled, head)


def _append(
    options: argparse.Namespace,
    store: LogStore,
    key: SigningKey,
    done: Published,
    bars: Progress,
    *,
    settled: int | None,
) -> None:
    publish_directory(
        options.directory,
        store,
        key,
        excludes=options.exclude,
        private=belonging_to(options.store),
        settled_before=settled,
        pack=not options.unpacked,
        dry=options.dry_run,
        done=done,
        on_progress=bars.published,
    )


def serve(options: argparse.Namespace) -> ExitStatus:
    """Serve the logs of a store until interrupted."""
    with (
        SqliteStore(options.store, family=YAMF, must_exist=True) as store,
        Captures.of(options) as captures,
    ):

        def listening(host: str, port: int) -> None:
            logs = [log_id(log) for log in store.logs()]
            result({"host": host, "port": port, "logs": logs})

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
                captures=captures,
                metrics=Metrics.of(options),
                on_listening=listening,
                on_left=lambda peer, reason: _tell(f"{peer} has left: {reason}"),
            )
        )
    return ExitStatus.DONE


def fetch(options: argparse.Namespace) -> ExitStatus:
    """Fetch a peer's logs, and bring a directory into the state that its log describes."""
    with Captures.of(options) as captures:
        return _fetch_dry(options, captures) if options.dry_run else _fetch(options, captures)


def _fetch(options: argparse.Namespace, captures: Captures) -> ExitStatus:
    started = time.monotonic()
    with (
        locked(options.store),
        # Entries lost when the power goes can be fetched again.
        SqliteStore(options.store, family=YAMF, durable=False) as store,
        Progress("fetching", quiet=options.quiet) as bars,
    ):
        run = _fetch_entry if options.sparse is not None else _fetch_logs
        summary = run(options, _terms(options, captures), store, bars)
    result(summary | {"seconds": round(time.monotonic() - started, 3)})
    if summary["code"] is not None:
        _tell(f"{summary['code']}: {summary['error']}")
    ends = {None: ExitStatus.DONE, "BUSY": ExitStatus.BUSY}
    return ends.get(summary["code"], ExitStatus.FAILED)


def _fetch_dry(options: argparse.Namespace, captures: Captures) -> ExitStatus:
    """Tell the offers of the servers; nothing is stored."""
    with ExitStack() as stack:
        store: LogStore = MemoryStore(family=YAMF)
        if options.store.exists():
            kept = SqliteStore(options.store, family=YAMF, must_exist=True)
            store = stack.enter_context(kept)
        results = _run(look_at_servers(store, options.peers, _terms(options, captures)))
        lines = [
            line
            for peer, found in zip(options.peers, results, strict=True)
            for line in report.of_offers(store, peer, found, options.log)
        ]
    for line in lines:
        result(line)
        if line["code"] is not None:
            _tell(f"{line['code']}: {line['error']}")
    return _failed_if(all(line["code"] is not None for line in lines))


def _terms(options: argparse.Namespace, captures: Captures) -> Terms:
    return Terms(
        wanted=options.log,
        idle_timeout_s=options.timeout,
        settle_s=options.settle,
        payload_size_max=options.max_payload,
        added_size_max=_added_size_max(options),
        captures=captures,
    )


def _added_size_max(options: argparse.Namespace) -> int:
    """How far the store may grow: by default half of the free space; the rest is for DIR."""
    if options.max_size is not None:
        return int(options.max_size) << 20
    return shutil.disk_usage(options.store.absolute().parent).free // 2


def _fetch_logs(
    options: argparse.Namespace, terms: Terms, store: SqliteStore, bars: Progress
) -> dict[str, Any]:
    """Fetch logs, once or for good; the result."""
    with Mirror(
        store,
        into=options.into,
        wanted=options.log,
        payload_size_max=options.max_payload if options.only is None else PACK_SIZE_MAX,
        private=belonging_to(options.store),
        chosen=chooser(options.only),
        on_place=bars.counter("writing"),
    ) as mirror:
        return _fetch_into(mirror, options, terms, store, bars)


def _fetch_into(
    mirror: Mirror,
    options: argparse.Namespace,
    terms: Terms,
    store: SqliteStore,
    bars: Progress,
) -> dict[str, Any]:
    host, port = options.peers[0]

    def once() -> Coroutine[Any, Any, Fetched]:
        if options.only is None and len(options.peers) == 1:
            return fetch_logs(store, host, port, terms, on_progress=bars.fetched)
        whole = all_lacking(terms.want.size_max)
        lacking = whole if options.only is None else lacking_of(chooser(options.only))
        return fetch_parts(store, options.peers, terms, lacking, on_progress=bars.fetched)

    def update(fetched: Fetched) -> Failure | None:
        made, failure = mirror.update()
        if failure is None and (mirror.log is not None or store.logs()):
            result(report.of_update(store, mirror.log, fetched, made))
        return failure

    async def follow() -> Fetched:
        fetched = await follow_logs(
            store,
            host,
            port,
            terms,
            metrics=Metrics.of(options),
            update=update,
            on_progress=bars.fetched,
        )
        # The summary is yet to come: further signals must not cut it short.
        block_signals()
        return fetched

    if options.live:
        fetched = asyncio.run(follow())
    else:
        fetched = _run(once())
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
    options: argparse.Namespace, terms: Terms, store: SqliteStore, bars: Progress
) -> dict[str, Any]:
    """Fetch one entry and verify the proof that it is of its log; the result."""
    host, port = options.peers[0]
    fetched, log = _run(fetch_entry(store, host, port, terms, options.sparse))
    certified, records = None, None
    if fetched.failure is None and log is not None:
        certified = certify(store, log, options.sparse)
        try:
            records = [piece.record for piece in read_records(store, log, certified.stored)]
        except RecordError as error:
            fetched.fail(Failure("BAD_RECORD", f"entry {options.sparse}: {error}"))
    return report.of_entry(log, fetched, certified, records)


def export(options: argparse.Namespace) -> ExitStatus:
    """Write the directory that a stored log describes, now or at an earlier entry."""
    started, made = time.monotonic(), Materialised()
    chosen = chooser(options.only)
    with (
        SqliteStore(options.store, family=YAMF, must_exist=True) as store,
        Progress("writing", quiet=options.quiet) as bars,
    ):
        log = _chosen_log(options, store)
        head = store.head(log)
        newest = 0 if head is None else head.seqnum
        last = newest if options.entry is None else options.entry
        if last > newest:
            raise StoreFileError(f"{options.store}: entry {newest} is the last of the log")
        reader = TreeReader(store, log, payload_size_max=PACK_SIZE_MAX, last=last)
        materialise(
            store,
            log,
            options.into,
            tree=reader.read().of(chosen),
            private=inside(options.into, belonging_to(options.store)),
            done=made,
            on_place=bars.counter("writing"),
        )
    lacking = [place.record.path for place in reader.lacking() if chosen(place.record.path)]
    told = report.of_export(log, made, entry=reader.position, head=newest, missing=len(lacking))
    result(told | {"seconds": round(time.monotonic() - started, 3)})
    for path in lacking:
        _tell(f"not in the store: {os.fsdecode(path)!r}")
    if reader.position < last:
        _tell(f"entry {reader.position + 1}: the payload is missing")
    for path, reason in made.failed.items():
        _tell(f"cannot write {os.fsdecode(path)!r}: {reason}")
    partly = ExitStatus.INCOMPLETE if lacking or reader.position < last else ExitStatus.DONE
    return ExitStatus.FAILED if made.failed else partly


def check(options: argparse.Namespace) -> ExitStatus:
    """Verify everything in a store once more."""
    status = ExitStatus.DONE
    with SqliteStore(options.store, family=YAMF, must_exist=True) as store:
        store.check_file()
        for log in store.logs():
            with Progress("checking", quiet=options.quiet) as bars:
                report = check_log(store, log, bars.counter("checking"))
            fork = store.fork(log)
            result(
                {
                    "log": log_id(log),
                    "entries": report.entries,
                    "payloads": report.payloads,
                    "forked_at": None if fork is None else fork.seqnum,
                    "faults": report.faults,
                }
            )
            status = ExitStatus.FAILED if report.faults else status
    return status


def verify(options: argparse.Namespace) -> ExitStatus:
    """Verify a log, and compare a directory with it."""
    count = 0
    with (
        SqliteStore(options.store, family=YAMF, must_exist=True) as store,
        Progress("checking", quiet=options.quiet) as bars,
    ):
        store.check_file()
        log = _chosen_log(options, store)
        found = check_log(store, log, bars.counter("checking"))
        comparing = bars.counter("comparing")
        for line in differences(store, log, options.directory, comparing):
            result(line)
            count += 1
    result({"log": log_id(log), "faults": found.faults, "differences": count})
    return _failed_if(count or found.faults)


def list_store(options: argparse.Namespace) -> ExitStatus:
    """List the paths that a log describes."""
    with SqliteStore(options.store, family=YAMF, must_exist=True) as store:
        log = _chosen_log(options, store)
        lines = list(list_paths(store, log, chooser(options.only)))
    _show(options, lines, partial(report.table_of_paths, log))
    return ExitStatus.DONE


def list_log(options: argparse.Namespace) -> ExitStatus:
    """List the entries of a log, and the changes of each."""
    with SqliteStore(options.store, family=YAMF, must_exist=True) as store:
        log = _chosen_log(options, store)
        lines = list(list_entries(store, log))
    _show(options, lines, partial(report.table_of_entries, log))
    return ExitStatus.DONE


def _show(
    options: argparse.Namespace,
    lines: list[dict[str, Any]],
    table: Callable[[list[dict[str, Any]]], Table],
) -> None:
    if not options.json:
        show(table(lines))
        return
    for line in lines:
        result(line)


def _chosen_log(options: argparse.Namespace, store: SqliteStore) -> LogKey:
    logs = [log for log in store.logs() if options.log in (None, log)]
    if len(logs) == 1:
        return logs[0]
    names = ", ".join(map(log_id, store.logs()))
    raise StoreFileError(f"which log? choose one with --log: {names or 'there is none'}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return parser_for(
        {
            "publish": publish,
            "serve": serve,
            "fetch": fetch,
            "export": export,
            "check": check,
            "verify": verify,
            "ls": list_store,
            "log": list_log,
        }
    )


def main(words: Sequence[str] | None = None) -> ExitStatus:
    """Run one of the commands; the exit status."""
    made = parser()
    options = made.parse_args(words)
    if options.run is fetch and (wrong := conflict_of(options)) is not None:
        made.error(wrong)
    if options.json:
        _teller.write_json()
    try:
        status: ExitStatus = options.run(options)
    except FolderBusyError as error:
        _tell(str(error))
        return ExitStatus.BUSY
    except BrokenPipeError:  # the output is no longer read
        raise
    except _FAULTS as error:
        _tell(sentence_of(error))
        return ExitStatus.IMPOSSIBLE
    except (KeyboardInterrupt, asyncio.CancelledError):
        _tell("interrupted")
        return ExitStatus.INTERRUPTED
    return status


def _failed_if(wrong: object) -> ExitStatus:
    return ExitStatus.FAILED if wrong else ExitStatus.DONE


def _tell(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)
