"""The command line: ``python -m culm.spark JOB --input PATH --output DIRECTORY``."""

from __future__ import annotations

import json
import re
import sys
import time
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from culm.exits import ExitStatus, exits
from culm.machine import LocalProtocolError
from culm.machines import UnknownMachineError, lookup
from culm.machines.lines import LineDriver
from culm.machines.plain import from_plain, to_plain
from culm.reconcile import DEFAULT, MONOIDS
from culm.spark.archive import READ_SIZE_MAX
from culm.spark.checks import KNOWN, Checks, Outcome, Status, unknown
from culm.spark.errors import OnError, SparkSetupError, sentence_of
from culm.spark.files import absolute, exists, is_inside, list_files, remove, written_whole
from culm.spark.jobs import (
    TREE,
    Inputs,
    Options,
    Store,
    Tell,
    audit_job,
    fingerprint_job,
    operations_job,
    reconcile_job,
    verify_job,
)
from culm.spark.kinds import KINDS
from culm.spark.paths import expanded
from culm.spark.progress import ProgressLine
from culm.spark.protocol_jobs import (
    Campaign,
    Captures,
    RaftLogs,
    RecordedSessions,
    captures_job,
    raft_job,
    sessions_job,
    simulate_job,
)
from culm.spark.report import html_page, text_of
from culm.spark.session import start_session
from culm.spark.simulate import load_simulator
from culm.spark.splits import SPLIT_SIZE, check_size
from culm.wire.json import read_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JOBS", "Job", "main", "parser"]

PROG = "python -m culm.spark"
_KIND = "bamboo/YASMF"
# Files beside the tables; the last one shows that the output is complete.
_SAID = ("report.html", "summary.txt", "summary.json")
_EXITS = exits(
    {
        ExitStatus.DONE: "nothing is wrong",
        ExitStatus.FAILED: "rows were set aside, records are faulty, replicas differ, or a"
        " promise was broken (of these, the ones that --fail-on names)",
        ExitStatus.IMPOSSIBLE: "wrong arguments, no Java, no such input, an output that is there",
        ExitStatus.INCOMPLETE: "the job broke off",
        ExitStatus.TOO_FEW: "an input has fewer rows than --min-rows",
    }
)
_STATUSES = {
    Status.PASSED: ExitStatus.DONE,
    Status.FAILED: ExitStatus.FAILED,
    Status.TOO_FEW_ROWS: ExitStatus.TOO_FEW,
}
# Arguments that are told elsewhere, or have no effect on the findings.
_SECRET, _HIDDEN = re.compile("secret|password|token|access.?key", re.IGNORECASE), "(hidden)"
_UNSAID = ("job", "input", "output", "json", "quiet", "overwrite")


class Job(NamedTuple):
    """A job of the command line: its arguments, and the function that does it.

    `tables` are named in the order in which they are written.
    """

    about: str
    tables: Sequence[str]
    arguments: Sequence[Callable[[ArgumentParser], None]]
    options: Callable[[ArgumentParser, Namespace], Any]
    run: Callable[[SparkSession, Any, Store, Tell], Outcome]


def _one_input(parser: ArgumentParser) -> None:
    _inputs_argument(parser, "a file or directory to read")


def _several_inputs(parser: ArgumentParser) -> None:
    _inputs_argument(
        parser, "a file or directory to read; repeated, one for each replica or server"
    )


def _inputs_argument(parser: ArgumentParser, about: str) -> None:
    parser.add_argument(
        "--input", action="append", required=True, metavar="[NAME=]PATH", help=about
    )


def _archives(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--kind",
        choices=sorted(KINDS),
        default=_KIND,
        help="the kind of the records (default: %(default)s)",
    )
    _reading(parser)


def _reading(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--column",
        default="entry",
        help="the column of tables that has the records (default: %(default)s)",
    )
    _blocks(parser)


def _blocks(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--split-size",
        type=_size,
        default=SPLIT_SIZE,
        metavar="BYTES",
        help="how much of a file one task reads (default: %(default)s)",
    )
    parser.add_argument(
        "--block-size-max",
        type=_size,
        default=READ_SIZE_MAX,
        metavar="BYTES",
        help="the largest block that is read (default: %(default)s)",
    )
    _io_errors(parser)


def _io_errors(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--on-io-error",
        choices=list(OnError),
        default=OnError.FAIL,
        help="fail if a file system fails to read, or set the part aside (default: %(default)s)",
    )


def _ranges(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--monoid",
        choices=sorted(MONOIDS),
        default=DEFAULT,
        help="how fingerprints are made (default: %(default)s)",
    )
    parser.add_argument(
        "--levels",
        type=_levels,
        metavar="N,N",
        help="make ranges of items that begin with the same N bytes, for each N",
    )


def _copies(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--copies",
        type=int,
        default=2,
        metavar="N",
        help="an item with fewer copies is at risk (default: %(default)s)",
    )


def _machine(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        required=True,
        metavar="NAME",
        help="the machine, as python -m culm.testing.drive --list names it",
    )
    parser.add_argument(
        "--config",
        type=config_of,
        default={},
        metavar="JSON",
        help="how the machine is built (default: {})",
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="lines have recorded bytes and times, not input of the line driver",
    )


def _seeds(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--simulator",
        required=True,
        metavar="MODULE:FUNCTION",
        help="the function that is called with each seed",
    )
    parser.add_argument(
        "--modules",
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="where to look for the module first (may be repeated)",
    )
    parser.add_argument(
        "--seeds", type=int, default=1000, metavar="N", help="how many (default: %(default)s)"
    )
    parser.add_argument(
        "--first-seed", type=int, default=0, metavar="N", help="the first (default: %(default)s)"
    )


def _common(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        type=absolute,
        required=True,
        metavar="DIRECTORY",
        help="where tables and the report go",
    )
    parser.add_argument("--master", help="where to run, in Spark's words (default: local[*,4])")
    parser.add_argument("--remote", metavar="URL", help="run on this Spark Connect server instead")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of Spark, for a session that is started (may be repeated)",
    )
    parser.add_argument(
        "--fail-on",
        type=_names,
        metavar="NAME,NAME",
        help="exit with 1 for these findings only, as FORK,BAD_SIGNATURE (default: for all)",
    )
    parser.add_argument(
        "--min-rows",
        type=int,
        default=1,
        metavar="N",
        help="exit with 4 if an input has fewer rows (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the output of an earlier job there"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but the summary")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def _archive_options(parser: ArgumentParser, given: Namespace) -> Options:
    """The options in the arguments, with the defaults of `Options` for those that the job lacks."""
    inputs = _inputs(parser, given, several=given.job == "reconcile")
    said = vars(given)
    copies = said.get("copies", 2)
    if given.job == "reconcile" and not 1 <= copies <= len(inputs):
        parser.error("--copies is at least 1, and no more than there are replicas")
    item_size = KINDS[said.get("kind", _KIND)].item_size
    if not all(0 <= level <= item_size for level in said.get("levels") or ()):
        parser.error(f"--levels are 0 to {item_size} bytes of an item")
    return Options(inputs=inputs, copies_min=copies, **{"kind": _KIND, **_given(Options, given)})


def _given(options: type[Inputs], given: Namespace) -> dict[str, Any]:
    """The arguments that are options of that class, but for the inputs."""
    names = (each.name for each in fields(options) if each.name != "inputs")
    return {name: getattr(given, name) for name in names if name in given}


def _raft_options(parser: ArgumentParser, given: Namespace) -> RaftLogs:
    inputs = _inputs(parser, given, several=len(given.input) > 1)
    return RaftLogs(inputs=inputs, **_given(RaftLogs, given))


def _capture_options(parser: ArgumentParser, given: Namespace) -> Captures:
    inputs = _inputs(parser, given, several=False)
    return Captures(inputs=inputs, **_given(Captures, given))


def _session_options(parser: ArgumentParser, given: Namespace) -> RecordedSessions:
    inputs = _inputs(parser, given, several=False)
    try:
        LineDriver(lookup(given.machine), given.config)
    except (UnknownMachineError, TypeError, ValueError, LocalProtocolError) as error:
        parser.error(f"--machine {given.machine}: {error}")
    return RecordedSessions(inputs=inputs, **_given(RecordedSessions, given))


def _campaign(parser: ArgumentParser, given: Namespace) -> Campaign:
    if given.seeds < 1 or given.first_seed < 0:
        parser.error("--seeds is at least 1, --first-seed at least 0")
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    try:
        load_simulator(given.simulator, given.modules)
    except (ValueError, ImportError, AttributeError) as error:
        parser.error(f"--simulator {given.simulator}: {error}")
    return Campaign(simulator=given.simulator, seeds=seeds, modules=given.modules)


_VERIFIED = ("verified", "quarantine")
_ARCHIVE = (_one_input, _archives)
#: The jobs by their names.
JOBS: Mapping[str, Job] = {
    "verify": Job(
        "verify each record by itself", _VERIFIED, _ARCHIVE, _archive_options, verify_job
    ),
    "audit": Job(
        "audit all logs: links, gaps and forks",
        (*_VERIFIED, "logs", "forks", "verdicts"),
        _ARCHIVE,
        _archive_options,
        audit_job,
    ),
    "fingerprint": Job(
        "fingerprint the set of all signed records",
        (*_VERIFIED, "ranges", TREE),
        (*_ARCHIVE, _ranges),
        _archive_options,
        fingerprint_job,
    ),
    "reconcile": Job(
        "compare the sets of several replicas, and plan copies",
        (*_VERIFIED, "ranges", "holders", "plan", "at_risk"),
        (_several_inputs, _archives, _ranges, _copies),
        _archive_options,
        reconcile_job,
    ),
    "operations": Job(
        "read p2panda's entries, and decode each operation",
        ("operations", "quarantine"),
        (_one_input, _reading),
        _archive_options,
        operations_job,
    ),
    "raft": Job(
        "compare the logs of a Garlic Farm cluster's servers",
        ("entries", "quarantine", "violations"),
        (_several_inputs, _io_errors),
        _raft_options,
        raft_job,
    ),
    "captures": Job(
        "decode captures of any protocol: steps, messages, broken rules",
        ("decoded", "quarantine"),
        (_one_input, _blocks),
        _capture_options,
        captures_job,
    ),
    "sessions": Job(
        "replay recorded sessions of any protocol",
        ("quarantine", "said"),
        (_one_input, _machine, _io_errors),
        _session_options,
        sessions_job,
    ),
    "simulate": Job(
        "run a simulator for many seeds", ("runs",), (_seeds,), _campaign, simulate_job
    ),
}


def parser(prog: str = PROG) -> ArgumentParser:
    """The command line."""
    made = ArgumentParser(
        prog=prog,
        description="Verify, audit, fingerprint and compare archives on Apache Spark.",
        epilog=_EXITS,
    )
    jobs = made.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, job in JOBS.items():
        its = jobs.add_parser(name, help=job.about, description=job.about, epilog=_EXITS)
        for add in (*job.arguments, _common):
            add(its)
    return made


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(text)
    return key, value


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip().upper() for name in text.split(","))


def _size(text: str) -> int:
    check_size("a size", int(text))
    return int(text)


def _levels(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def config_of(text: str) -> dict[str, Any]:
    """A machine's config as the line driver reads it: bytes are ``{"hex": "..."}``."""
    value = from_plain(read_json(text))
    if not isinstance(value, dict):
        raise ValueError("a config is an object")
    return value


def _inputs(parser: ArgumentParser, given: Namespace, *, several: bool) -> dict[str, str]:
    """The inputs by name, which is the last part of the path unless it is given."""
    found: dict[str, str] = {}
    for text in given.input:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = PurePosixPath(text).name, text
        if not name or not path or "/" in name or name in found:
            parser.error(f"--input {text}: each needs a name of its own, and a path")
        found[name] = absolute(path)
    if (len(found) > 1) != several:
        parser.error("reconcile has two inputs or more, raft has one or more, other jobs have one")
    return found


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> ExitStatus:
    """The program; returns its exit status."""
    made = parser(prog)
    given = made.parse_args(arguments)
    if given.master and given.remote:
        made.error("--master or --remote, not both")
    options = JOBS[given.job].options(made, given)
    checks = _checks(made, given)
    try:
        try:
            _check_places(getattr(options, "inputs", {}), given.output, overwrite=given.overwrite)
        except OSError as error:
            raise SparkSetupError(str(error)) from error
        summary, status = _run(given, options, checks)
    except SparkSetupError as error:  # nothing has been done
        return _fail(error, ExitStatus.IMPOSSIBLE)
    except OSError as error:
        return _fail(error)
    except KeyboardInterrupt:
        print("culm.spark: interrupted", file=sys.stderr)
        return ExitStatus.INTERRUPTED
    except Exception as error:
        # An unforeseen error is shown in full, and its exit status must not mean a finding.
        if not type(error).__module__.startswith(("pyspark", "py4j", "culm")):
            traceback.print_exc()
        return _fail(error)
    print(json.dumps(summary) if given.json else text_of(summary), end="\n" * given.json)
    return _STATUSES[status]


def _checks(parser: ArgumentParser, given: Namespace) -> Checks:
    # Machines have names of their own for errors.
    own_names = given.job in ("captures", "sessions")
    wrong = [] if own_names else unknown(given.fail_on or ())
    if wrong:
        near = {each: get_close_matches(each, KNOWN, 1) for each in wrong}
        said = (f"{each} (is it {match[0]}?)" if match else each for each, match in near.items())
        parser.error(f"--fail-on: nothing is found under the name {', '.join(said)}")
    if given.min_rows < 0:
        parser.error("--min-rows is a number of rows")
    return Checks(fail_on=given.fail_on, rows_min=given.min_rows)


def _fail(error: Exception, status: ExitStatus = ExitStatus.INCOMPLETE) -> ExitStatus:
    print(f"culm.spark: {sentence_of(error)}", file=sys.stderr)
    return status


def _check_places(inputs: Mapping[str, str], output: str, *, overwrite: bool) -> None:
    """Raise `OSError` if an input does not exist, or if the output does."""
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        wanted = " and ".join(missing)
        raise SparkSetupError(f"{wanted} not installed: python -m pip install 'culm[spark]'")
    for path in (each for given in inputs.values() for each in expanded(given)):
        if not exists(path):
            raise FileNotFoundError(f"there is nothing at {path}")
        if is_inside(path, output) or is_inside(output, path):
            raise FileExistsError(f"{path} and {output}: one is in the other; name another output")
    try:
        found = list_files(output)
    except FileNotFoundError:
        found = []
    if found and not overwrite:
        raise FileExistsError(f"{output} is not empty: name another one, or pass --overwrite")


def _run(given: Namespace, options: Any, checks: Checks) -> tuple[dict[str, Any], Status]:
    """Do the job; returns its summary and status."""
    began, clock = datetime.now(UTC), time.monotonic()
    where = {"master": given.master, "remote": given.remote}
    spark = start_session(f"culm {given.job}", **where, settings=dict(given.conf))
    store = Store(spark, given.output)
    # Summaries and tables of earlier jobs no longer hold.
    for name in dict.fromkeys(
        (*_SAID[::-1], *(table for job in JOBS.values() for table in job.tables))
    ):
        remove(f"{store.path}/{name}")
    with ProgressLine(spark, sys.stderr, quiet=given.quiet) as progress:
        outcome = JOBS[given.job].run(spark, options, store, progress.tell)
        status = checks.status(outcome)
        summary = {
            "job": given.job,
            **options.said(),
            "output": store.path,
            "seconds": round(time.monotonic() - clock, 1),
            "status": status,
            "clean": outcome.is_clean and status is Status.PASSED,
            "failed": checks.failed(outcome.findings),
            "too_few_rows": checks.short(outcome.rows),
            **outcome.numbers,
            "run": _provenance(given, began),
        }
        progress.tell("writing the report")
        page = html_page(summary, store)
    texts = (page, text_of(summary), json.dumps(summary, indent=2) + "\n")
    for name, text in zip(_SAID, texts, strict=True):
        with written_whole(f"{store.path}/{name}") as file:
            file.write(text.encode())
    return summary, status


def _provenance(given: Namespace, began: datetime) -> dict[str, Any]:
    """The job, its time, versions and arguments."""
    settings = {name: value for name, value in vars(given).items() if name not in _UNSAID}
    settings["fail_on"] = sorted(given.fail_on) if given.fail_on else None
    settings["conf"] = {key: _HIDDEN if _SECRET.search(key) else each for key, each in given.conf}
    return {
        "began": began.isoformat(timespec="seconds"),
        # No installer has noted the versions of packages that a cluster or --py-files brings.
        **{name: import_module(name).__version__ for name in ("culm", "pyspark")},
        "settings": to_plain({name: each for name, each in settings.items() if each is not None}),
    }
