"""``python -m culm``: the parts of this installation."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from textwrap import wrap

import culm
from culm.exits import ExitStatus, end_with
from culm.kernels import IMPLEMENTATION
from culm.machines import names

_PROGRAMS = {
    "python -m culm.testing.drive": "a machine, driven by lines of JSON",
    "python -m culm.testing.campaign": "a long search for conversations that break a machine's law",
    "python -m culm.capture": "captures: shown, replayed and compared",
    "python -m culm.spark": "audits of archives of logs; needs the extra spark",
    "culm": "drivers, stores and programs for users: the distribution culm-io",
}
_COLUMNS = 60


def _lines() -> Iterator[str]:
    """The version, the packages, the machines and the programs."""
    yield f"culm {culm.__version__}, {IMPLEMENTATION} kernels"
    yield "\nPackages"
    for module in iter_modules(culm.__path__, "culm."):
        if module.ispkg:
            summary = (import_module(module.name).__doc__ or "").partition("\n")[0]
            yield from _row(f"  {module.name:<19}", summary)
    yield "\nMachines, each with a line driver"
    for name in names():
        yield f"  {name}"
    yield "\nPrograms"
    for command, purpose in _PROGRAMS.items():
        yield from _row(f"  {command:<33}", purpose)


def _row(name: str, text: str) -> list[str]:
    """A name and a text beside it, as narrow as any terminal."""
    return wrap(
        text,
        _COLUMNS,
        initial_indent=name,
        subsequent_indent=" " * len(name),
        break_on_hyphens=False,
    )


def _main() -> ExitStatus:
    ArgumentParser(prog="python -m culm", description="The parts of this culm.").parse_args()
    print(*_lines(), sep="\n")
    return ExitStatus.DONE


if __name__ == "__main__":
    end_with(_main)
