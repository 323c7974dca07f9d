"""The command line of the program: its options, and the use of each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from culm.bamboo import LogKey
from culm.exits import ExitStatus, exits
from culm_io.programs.arguments import address, any_port, count, file, host, number, positive
from culm_io.programs.captures import add_capture
from culm_io.programs.numbers import add_metrics

__all__ = ["PROGRAM", "conflict_of", "parser_for"]

PROGRAM = "culm directory"

Command = Callable[[argparse.Namespace], ExitStatus]

_EPILOG = exits(
    {
        ExitStatus.DONE: "done",
        ExitStatus.FAILED: "not everything arrived, or something does not verify",
        ExitStatus.IMPOSSIBLE: "the command cannot be carried out",
        ExitStatus.INCOMPLETE: "some paths could not be read",
        ExitStatus.BUSY: "another process is writing into the directory",
    },
    endless="serve and --live",
)


def parser_for(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The command line; each command is described by the first line of its function."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="A directory travels as a Bamboo log.", epilog=_EPILOG
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command_of(name: str) -> argparse.ArgumentParser:
        run = commands[name]
        text = (run.__doc__ or "").partition("\n")[0]
        made = subparsers.add_parser(name, help=text, description=text, epilog=_EPILOG)
        made.set_defaults(run=run)
        lists = name in ("ls", "log")
        purpose = "write lines of JSON, for machines" if lists else "write JSON even on a terminal"
        made.add_argument("--json", action="store_true", help=purpose)
        return made

    _add_publish(command_of("publish"))
    _add_serve(command_of("serve"))
    _add_fetch(command_of("fetch"))
    for name in ("export", "check", "verify", "ls", "log"):
        _add_reading(command_of(name), name)
    return parser


def conflict_of(options: argparse.Namespace) -> str | None:
    """Which options of fetch do not go together, if there are such; or which needs another."""
    if options.metrics is not None and not options.live:
        return "--metrics goes with --live"
    given = {name for name in ("into", "max_payload", "only") if getattr(options, name) is not None}
    given |= {name for name in ("live", "dry_run") if getattr(options, name)}
    if len(options.peers) > 1:
        given.add("from")
    if options.sparse is not None:
        given.add("sparse")
    for one, others in (
        ("sparse", ("into", "max_payload", "only", "dry_run", "from")),
        ("live", ("only", "dry_run", "from")),
        ("only", ("max_payload",)),
    ):
        for other in others if one in given else ():
            if other in given:
                several = "several --" if other == "from" else "--"
                return f"--{one} and {several}{other.replace('_', '-')} do not go together"
    return None


def _add_reading(command: argparse.ArgumentParser, name: str) -> None:
    if name == "verify":
        _add_directory(command, "the directory to compare")
    _add_store(command)
    if name == "export":
        command.add_argument(
            "--into", type=file, required=True, metavar="DIR", help="the directory to write"
        )
        command.add_argument(
            "--entry",
            type=number(1, 2**64 - 1),
            metavar="SEQ",
            help="as the directory was at that entry, which `log` shows (default: the newest)",
        )
    if name in ("export", "ls"):
        command.add_argument(
            "--only", action="append", metavar="GLOB", help="only paths that match (see fetch)"
        )
    if name != "check":
        _add_log(command, "which log, if the store has several")
    if name not in ("ls", "log"):
        _add_quiet(command)


def _add_publish(command: argparse.ArgumentParser) -> None:
    _add_directory(command, "the directory to publish")
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
        help="give each file an entry of its own, however small, so that it can be fetched alone",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="tell the changes to publish, and publish nothing"
    )
    _add_quiet(command)


def _add_serve(command: argparse.ArgumentParser) -> None:
    _add_store(command)
    command.add_argument(
        "--port", type=any_port, required=True, metavar="N", help="the port; 0: any free one"
    )
    command.add_argument(
        "--host",
        type=host,
        default="127.0.0.1",
        help="the address to listen on (default: %(default)s)",
    )
    command.add_argument(
        "--clients-max",
        type=count,
        default=64,
        metavar="N",
        help="how many clients may be connected at once (default: %(default)s)",
    )
    command.add_argument(
        "--address-max",
        type=count,
        default=16,
        metavar="N",
        help="how many of them from one address (default: %(default)s)",
    )
    command.add_argument(
        "--memory",
        type=count,
        default=256,
        metavar="MIB",
        help="the memory for all clients together (default: %(default)s MiB)",
    )
    command.add_argument(
        "--idle",
        type=positive,
        default=600.0,
        metavar="SECONDS",
        help="how long a client may leave all offers unanswered, or take nothing of what it has"
        " asked for, before it has to go (default: %(default)s)",
    )
    command.add_argument(
        "--poll",
        type=positive,
        default=0.2,
        metavar="SECONDS",
        help="how often to look for new entries of others in the store (default: %(default)s)",
    )
    add_capture(command)
    add_metrics(command)


def _add_fetch(command: argparse.ArgumentParser) -> None:
    _add_store(command)
    command.add_argument(
        "--from",
        dest="peers",
        type=address,
        action="append",
        required=True,
        metavar="HOST:PORT",
        help="a server; may be repeated: large payloads come from all of them at once",
    )
    command.add_argument(
        "--into", type=file, metavar="DIR", help="the directory to write; without it, only fetch"
    )
    _add_log(command, "the only log to fetch, as publish names it")
    command.add_argument(
        "--only",
        action="append",
        metavar="GLOB",
        help="only paths or names that match, and all in matching directories (may be repeated)",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="tell the offers of the servers, and fetch nothing"
    )
    command.add_argument(
        "--timeout",
        type=positive,
        default=30.0,
        metavar="SECONDS",
        help="give up a peer that is silent, or gets nowhere, for so long (default: %(default)s)",
    )
    command.add_argument(
        "--settle",
        type=positive,
        default=1.0,
        metavar="SECONDS",
        help="be done when nothing has happened for so long (default: %(default)s)",
    )
    _add_quiet(command)
    command.add_argument(
        "--max-payload",
        type=number(0, 2**64 - 1),
        metavar="N",
        help="leave out payloads of more than N bytes; without it, those left out before come too",
    )
    command.add_argument(
        "--max-size",
        type=count,
        metavar="MIB",
        help="add no more than this to the store (default: half of the free space)",
    )
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--live",
        action="store_true",
        help="stay, and fetch whatever the peer stores from now on, until interrupted",
    )
    what.add_argument(
        "--sparse",
        type=number(1, 2**64 - 1),
        metavar="SEQ",
        help="only entry SEQ, with the proof that it belongs to the log",
    )
    add_capture(command)
    add_metrics(command)


def _add_directory(command: argparse.ArgumentParser, purpose: str) -> None:
    command.add_argument("directory", type=file, metavar="DIR", help=purpose)


def _add_store(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--store", type=file, required=True, metavar="FILE", help="where the logs are kept"
    )


def _add_quiet(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="draw no bars")


def _add_log(command: argparse.ArgumentParser, purpose: str) -> None:
    command.add_argument("--log", type=_log, metavar="AUTHOR/ID", help=purpose)


def _log(text: str) -> LogKey:
    author, _, log_id = text.partition("/")
    try:
        key = LogKey(bytes.fromhex(author), int(log_id))
    except ValueError:
        key = LogKey(b"", 0)
    if len(key.author) != 32 or not 0 <= key.log_id < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not AUTHOR/ID")
    return key
