"""The command ``culm``: finds the program that is meant, loads that one alone, and runs it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

    from culm.exits import ExitStatus

__all__ = [
    "PROGRAMS",
    "Program",
    "command_line",
    "command_of",
    "main",
    "parser_of",
    "with_commands",
]


class Program(NamedTuple):
    """A program: the module that has its ``main``, and its purpose."""

    module: str
    purpose: str


PROGRAMS = {
    "directory": Program(
        "culm_io.programs.directory.command", "a directory as a log that others fetch"
    ),
    "p2panda": Program(
        "culm_io.programs.p2panda.command", "documents that several nodes write and exchange"
    ),
    "raft": Program("culm_io.programs.raft.command", "a key-value store on several servers"),
    "oxen": Program("culm_io.programs.oxen.command", "a cluster of processes that chat over UDP"),
    "ssb": Program("culm_io.programs.ssb", "a small pub of Secure Scuttlebutt"),
    "spark": Program("culm.spark.command", "audits of archives of logs on Spark"),
    "drive": Program("culm.testing.drive", "any machine, driven by lines of JSON"),
    "capture": Program("culm.capture.command", "captures: shown, replayed and compared"),
    "completion": Program("culm_io.programs.completion", "completion for bash, fish and zsh"),
    "demo": Program("culm_io.programs.demo", "a directory that travels between two processes"),
    "demo-spark": Program(
        "culm_io.programs.demo_spark", "an audit of replicated data, with planted faults"
    ),
}


def command_of(*words: object) -> list[str]:
    """The command line of a process that runs this command with `words`."""
    return [sys.executable, "-m", "culm_io", *map(str, words)]


def main() -> NoReturn:
    """Run the program that the command line names, and exit with its status."""
    heeded = signal.getsignal(signal.SIGINT)
    if heeded is signal.default_int_handler:
        # An interrupt while a program loads ends it without a word: it would be a traceback from
        # the depths of an import, or be lost there, and nothing has begun that needs tidying up.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    run = _loaded(sys.argv[1:])
    from culm_io.programs.ending import end_with

    def begin() -> ExitStatus:
        signal.signal(signal.SIGINT, heeded)
        return run()

    end_with(begin)


def _loaded(words: Sequence[str]) -> Callable[[], ExitStatus]:
    """The call of the chosen program, which is loaded."""
    if words and words[0] in PROGRAMS:
        run: Callable[..., ExitStatus] = import_module(PROGRAMS[words[0]].module).main
        return partial(run, words[1:], **_named(words[0]))
    return partial(_help, words)


def _named(name: str) -> dict[str, str]:
    """The argument of a program of culm's own: the name under which it runs here."""
    return {} if PROGRAMS[name].module.startswith("culm_io.") else {"prog": f"culm {name}"}


def parser_of(name: str) -> ArgumentParser:
    """The command line of a program."""
    made: ArgumentParser = import_module(PROGRAMS[name].module).parser(**_named(name))
    return made


def command_line() -> tuple[ArgumentParser, _SubParsersAction[ArgumentParser]]:
    """The command line of the command itself, and its programs, of which it knows the names."""
    from argparse import ArgumentParser

    from culm_io import __version__

    parser = ArgumentParser(prog="culm", description="Peer-to-peer replication, by culm.")
    parser.add_argument("--version", action="version", version=f"culm-io {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, program in PROGRAMS.items():
        commands.add_parser(name, help=program.purpose)
    return parser, commands


def with_commands(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """A command line, and those of its commands."""
    from argparse import _SubParsersAction

    yield parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for inner in action.choices.values():
                yield from with_commands(inner)


def _help(words: Sequence[str]) -> ExitStatus:
    """Say which programs there are, or that there is none of that name."""
    from culm.exits import ExitStatus

    parser = command_line()[0]
    if not words:
        parser.print_help(sys.stderr)
        return ExitStatus.IMPOSSIBLE
    parser.parse_args(words)
    return ExitStatus.DONE
