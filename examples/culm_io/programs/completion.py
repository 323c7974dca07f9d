"""Completion for shells: ``culm completion bash``, made of the programs' own command lines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from culm.exits import ExitStatus, exits
from culm_io.command import PROGRAMS, command_line, parser_of, with_commands
from culm_io.programs.arguments import folder, source
from culm_io.programs.ending import end_without

try:
    import shtab
except ModuleNotFoundError as error:
    end_without(error)

__all__ = ["main", "parser", "whole"]

_SHELLS = ("bash", "fish", "zsh")
_FILES = ("CAPTURE", "FILE", "PAGE", "PATH", "[NAME=]PATH", "file", "other")
_FOLDERS = ("DIR", "DIRECTORY")


def whole() -> argparse.ArgumentParser:
    """The command lines of all programs as one, with completion of paths."""
    made, commands = command_line()
    for name in PROGRAMS:
        commands.choices[name] = parser_of(name)
    for each in with_commands(made):
        for action in each._actions:
            if action.type in (folder, source) or action.metavar in _FOLDERS:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif (action.metavar or action.dest) in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return made


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="culm completion",
        description="Print a script that lets a shell complete commands and options of culm.",
        epilog=exits({ExitStatus.DONE: "done", ExitStatus.IMPOSSIBLE: "there is no such shell"}),
    )
    made.add_argument("shell", choices=_SHELLS, help="whose script to print")
    return made


def main(words: Sequence[str] | None = None) -> ExitStatus:
    """Print a script; the exit status."""
    print(shtab.complete(whole(), parser().parse_args(words).shell))
    return ExitStatus.DONE
