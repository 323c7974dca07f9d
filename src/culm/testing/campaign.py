"""A long search for conversations that break a law of one machine.

::

    python -m culm.testing.campaign NAME [--specs PLACE] [--conversations N] [--seed S]
                                         [--law LAW ...] [--captures DIRECTORY]

The specs of culm's own machines are in ``tests/specs`` of its repository; those of other packages
are found by their entry points, or in a module that ``--specs`` names.

At least N conversations with the machine are tried in all, distributed over the laws as in the
suite.  The same seed tries the same ones, so that a campaign can be run in slices with
seeds of their own.  A line is written for each law, and one at the end; the exit status is 1
if a law was broken.
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from pathlib import Path

from culm.exits import ExitStatus, end_with, exits
from culm.machines import UnknownMachineError
from culm.testing.captures import FOLDER, keep_stories
from culm.testing.registry import load, spec_of
from culm.testing.spec import MachineSpec
from culm.testing.suite import PROPERTIES, Property

_CONVERSATIONS = 100_000
_SLICE = 1_000
_SEEDS = 1 << 32  # seeds of a campaign, distinct from those of others


def campaign(
    spec: MachineSpec,
    *,
    conversations: int,
    seed: int,
    laws: Iterable[Property] = PROPERTIES,
    say: Callable[[str], None] = print,
    captures: Path | None = None,
) -> bool:
    """Try `conversations` with the machine of `spec`; returns whether all laws were kept.

    captures: the directory for captures of failures (`culm.testing.captures`).
    """
    drawn = [law for law in laws if law.check_example is not None and law.applies(spec)]
    shares = sum(law.share for law in drawn)
    tried = broken = 0
    for law in drawn:
        wanted, found = ceil(conversations * law.share / shares), 0
        try:
            while found < wanted:  # in slices, because a search keeps all its examples in memory
                chance = seed * _SEEDS + tried + found
                found += law.search(spec, min(wanted - found, _SLICE), chance=chance)
        except Exception as error:
            broken += 1
            keep_stories(error, f"{spec.name}-{law.name}-{seed}", captures)
            say(f"{spec}, {law}: BROKEN (seed {seed})\n{traceback.format_exc()}")
        tried += found
        say(f"{spec}, {law}: {found} conversations")
    say(f"{spec}: {tried} conversations, seed {seed}, {broken} of {len(drawn)} laws broken")
    return not broken


def main(arguments: Sequence[str] | None = None) -> ExitStatus:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m culm.testing.campaign",
        description="Try many conversations with one machine, to find one that breaks a law.",
        epilog=exits(
            {
                ExitStatus.DONE: "all laws were kept",
                ExitStatus.FAILED: "a law was broken",
                ExitStatus.IMPOSSIBLE: "wrong arguments",
            }
        ),
    )
    parser.add_argument("name", metavar="NAME", help="the machine, as its spec names it")
    parser.add_argument(
        "--specs",
        metavar="PLACE",
        help="a module, or the path of one or of a package, that registers specs",
    )
    parser.add_argument(
        "--conversations",
        type=int,
        default=_CONVERSATIONS,
        metavar="N",
        help="how many, shared out among the laws (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="the same one tries the same (default: %(default)s)"
    )
    parser.add_argument(
        "--law",
        action="append",
        choices=[law.name for law in PROPERTIES],
        metavar="LAW",
        help="only this law (may be repeated; default: all): %(choices)s",
    )
    parser.add_argument(
        "--captures",
        type=Path,
        metavar="DIRECTORY",
        help=f"where captures of failures are written (default: ${FOLDER}, if that is set)",
    )
    asked = parser.parse_args(arguments)
    try:
        if asked.specs is not None:
            load(asked.specs)
        spec = spec_of(asked.name)
    except (ImportError, UnknownMachineError) as error:
        parser.error(str(error))
    laws = [law for law in PROPERTIES if asked.law is None or law.name in asked.law]
    kept = campaign(
        spec,
        conversations=asked.conversations,
        seed=asked.seed,
        laws=laws,
        say=lambda line: print(line, flush=True),
        captures=asked.captures,
    )
    return ExitStatus.DONE if kept else ExitStatus.FAILED


if __name__ == "__main__":
    end_with(main)
