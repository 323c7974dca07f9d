"""The command line: ``python -m culm.spark JOB --input PATH --output DIRECTORY``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Any

from culm.reconcile import DEFAULT, MONOIDS
from culm.spark.errors import SparkSetupError
from culm.spark.files import list_files, open_system
from culm.spark.jobs import JOBS, Options, Store
from culm.spark.kinds import KINDS
from culm.spark.progress import Progress
from culm.spark.report import html_page, pictures_of, text_of
from culm.spark.session import start_session
from culm.spark.source import SPLIT_SIZE

__all__ = ["EXIT_CLEAN", "EXIT_FAILED", "EXIT_FOUND", "EXIT_USAGE", "main"]

#: Nothing is wrong with what was looked at.
EXIT_CLEAN = 0
#: Something is: rows were set aside, records have reasons against them, replicas differ.
EXIT_FOUND = 1
#: The arguments were wrong; nothing has been done.
EXIT_USAGE = 2
#: The job could not be done, or not to its end.
EXIT_FAILED = 3

_EXITS = """\
exit status: 0 nothing is wrong; 1 rows were set aside, records have reasons against them or
replicas differ; 2 wrong arguments; 3 the job could not be done.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m culm.spark",
        description="Verify, audit, fingerprint and compare archives on Apache Spark.",
        epilog=_EXITS,
    )
    parser.add_argument("job", choices=sorted(JOBS), metavar="JOB", help=", ".join(JOBS))
    parser.add_argument(
        "--input",
        action="append",
        required=True,
        metavar="[NAME=]PATH",
        help="a file or directory to read; for reconcile one for each replica",
    )
    parser.add_argument("--output", required=True, metavar="DIRECTORY")
    parser.add_argument("--kind", choices=sorted(KINDS), default="bamboo/YASMF")
    parser.add_argument("--column", default="entry", help="the records of tables (entry)")
    parser.add_argument("--master", help="where to run, in Spark's words (local[*])")
    parser.add_argument("--remote", help="a Spark Connect server in place of it")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of Spark, if no session runs yet",
    )
    parser.add_argument("--split-size", type=int, default=SPLIT_SIZE, metavar="BYTES")
    parser.add_argument("--monoid", choices=sorted(MONOIDS), default=DEFAULT)
    parser.add_argument("--levels", type=_levels, metavar="N,N", help="of ranges, in bytes")
    parser.add_argument("--copies", type=int, default=2, help="fewer of an item are a risk (2)")
    parser.add_argument("--overwrite", action="store_true", help="let there be an output already")
    parser.add_argument("--quiet", action="store_true", help="say nothing but the summary")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    return parser


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(text)
    return key, value


def _levels(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _inputs(parser: argparse.ArgumentParser, job: str, given: Sequence[str]) -> dict[str, str]:
    """The inputs by their names; the last part of the path if none is given."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = PurePosixPath(text).name, text
        if not name or not path or "/" in name or name in found:
            parser.error(f"--input {text}: each needs a name of its own, and a path")
        found[name] = path
    if (len(found) > 1) != (job == "reconcile"):
        parser.error("reconcile has two inputs or more, all other jobs have one")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    inputs = _inputs(parser, given.job, given.input)
    if given.job == "reconcile" and not 1 <= given.copies <= len(inputs):
        parser.error("--copies is at least 1, and no more than there are replicas")
    if given.master and given.remote:
        parser.error("--master or --remote, not both")
    try:
        _check_places(inputs, given.output, overwrite=given.overwrite)
        options = Options(
            inputs=inputs,
            kind=given.kind,
            column=given.column,
            split_size=given.split_size,
            monoid=given.monoid,
            levels=given.levels,
            copies_min=given.copies,
        )
        summary, clean = _run(given, options)
    except (SparkSetupError, OSError) as error:
        return _fail(error)
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j", "culm")):
            raise
        return _fail(error)
    print(json.dumps(summary) if given.json else text_of(summary), end="\n" * given.json)
    return EXIT_CLEAN if clean else EXIT_FOUND


def _fail(error: Exception) -> int:
    print(f"culm.spark: {error}", file=sys.stderr)
    return EXIT_FAILED


def _check_places(inputs: dict[str, str], output: str, *, overwrite: bool) -> None:
    """Raise `OSError` if an input is not there, or the output is."""
    missing = [name for name in ("pyspark", "pyarrow", "matplotlib") if find_spec(name) is None]
    if missing:
        wanted = " and ".join(missing)
        raise SparkSetupError(f"{wanted} not installed: python -m pip install 'culm[spark]'")
    for path in inputs.values():
        list_files(path)
    try:
        found = list_files(output)
    except FileNotFoundError:
        found = []
    if found and not overwrite:
        raise FileExistsError(f"{output} is not empty: name another one, or pass --overwrite")


def _run(given: argparse.Namespace, options: Options) -> tuple[dict[str, Any], bool]:
    """Do the job; its summary, and whether nothing is wrong."""
    began = time.monotonic()
    where = {"master": given.master, "remote": given.remote}
    spark = start_session(f"culm {given.job}", **where, settings=dict(given.conf))
    store = Store(spark, given.output)
    with Progress(spark, sys.stderr, quiet=given.quiet) as progress:
        outcome = JOBS[given.job](spark, options, store, progress.tell)
        summary = {
            "job": given.job,
            "kind": options.kind,
            "inputs": dict(options.inputs),
            "output": store.path,
            "seconds": round(time.monotonic() - began, 1),
            "clean": outcome.is_clean,
            **outcome.numbers,
        }
        progress.tell("writing the report")
        pictures = pictures_of(given.job, summary, store)
    _write(store, "summary.json", json.dumps(summary, indent=2) + "\n")
    _write(store, "summary.txt", text_of(summary))
    _write(store, "report.html", html_page(f"culm: {given.job}", summary, pictures))
    return summary, outcome.is_clean


def _write(store: Store, name: str, text: str) -> None:
    system, inside = open_system(f"{store.path}/{name}")
    with system.open_output_stream(inside) as file:
        file.write(text.encode())
