"""The line driver: any registered machine, driven by lines of JSON.

``python -m culm.testing.drive NAME [--config JSON] [--respond]`` (or ``--from CAPTURE``, which
says the machine, its config and the operations) reads an operation a
line (see `culm.machines.operations`) and writes its results, one JSON object a line:
first for the new machine, then for every line read.  ``--list`` names the machines;
``--help NAME`` lists the keys of that machine's config, and its verbs.
Every answer ends with the line that has the key ``deadline``, so that another process
knows when it may go on; each line is flushed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

from culm.arguments import is_dict
from culm.capture import CaptureError, Recorder
from culm.capture.files import open_capture
from culm.capture.lines import operations
from culm.exits import ExitStatus, end_with, exits
from culm.machines import Config, lookup, names
from culm.machines.lines import LineDriver, describe
from culm.machines.plain import JSON, from_plain, plain_error
from culm.wire.json import read_json

PROG = "python -m culm.testing.drive"


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> ExitStatus:
    """Run the line driver on stdin and stdout; returns the exit status."""
    made = parser(prog)
    options = made.parse_args(arguments)
    if options.list:
        for name in names():
            print(name)
        return ExitStatus.DONE
    if options.help == "":
        made.print_help()
        return ExitStatus.DONE
    with ExitStack() as files:
        return _drive(options, files)


def _drive(options: argparse.Namespace, files: ExitStack) -> ExitStatus:
    try:
        if options.help is not None:
            print("\n".join(describe(lookup(options.help))))
            return ExitStatus.DONE
        capture = None if options.start is None else open_capture(options.start)
        if capture is not None:
            name, config = capture.header.machine, dict(capture.header.config)
        else:
            name, config = options.name, from_plain(read_json(options.config))
        if not is_dict(config):
            raise ValueError("the config must be a JSON object")
        driver = LineDriver(lookup(name), config, respond=options.respond)
        recorder = None
        if options.capture is not None:
            recorder = _recorder(name, options.capture, config, driver, files)
    except Exception as error:  # no such machine, no such config
        _write([{"error": plain_error(error)}])
        return ExitStatus.IMPOSSIBLE
    _write(driver.start())
    try:
        if capture is not None:
            for operation in operations(capture):
                _write(driver.do_operation(operation))
            return ExitStatus.DONE
        for line in sys.stdin.buffer:  # bytes: a line that is not UTF-8 is not JSON either
            if line.strip():
                _write(_answer(driver, line))
            if recorder is not None:
                recorder.flush()
    except CaptureError as error:
        print(error, file=sys.stderr)
        return ExitStatus.IMPOSSIBLE
    finally:
        if recorder is not None:
            recorder.flush()
    return ExitStatus.DONE


def _recorder(
    name: str, path: str, config: Config, driver: LineDriver, files: ExitStack
) -> Recorder:
    """Records the machine; the file has all of a line before the next is read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    opened = open(os.open(path, flags, 0o600), "wb", buffering=0)  # noqa: SIM115
    file = files.enter_context(opened)
    recorder = Recorder(
        file.write, machine=name, config=config, clock=time.monotonic, began=time.time()
    )
    driver.record_by(recorder.stand_in, recorder.verb)
    return recorder


def _answer(driver: LineDriver, line: bytes) -> Iterator[JSON]:
    try:
        value = read_json(line)
    except ValueError as error:
        return driver.refuse(error)
    return driver.do(value)


def _write(answer: Iterable[JSON]) -> None:
    for value in answer:
        print(json.dumps(value), flush=True)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog=prog,
        description="Drive a machine by lines of JSON.",
        epilog=exits({ExitStatus.DONE: "done", ExitStatus.IMPOSSIBLE: "no such machine or config"}),
        add_help=False,
    )
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("name", nargs="?", help="the machine, as --list names it")
    which.add_argument(
        "--from",
        dest="start",
        metavar="CAPTURE",
        help="drive the machine of a capture by its recorded calls, not by lines",
    )
    which.add_argument("--list", action="store_true", help="name the machines and stop")
    which.add_argument(
        "-h",
        "--help",
        nargs="?",
        const="",
        metavar="NAME",
        help="print this, or the config keys and the verbs of a machine, and stop",
    )
    made.add_argument(
        "--config", default="{}", metavar="JSON", help="how the machine is built (default: {})"
    )
    made.add_argument(
        "--respond",
        action="store_true",
        help="let the machine's own in-memory store answer the effects",
    )
    made.add_argument(
        "--capture", metavar="FILE", help="record all of it in a new file, for `culm capture`"
    )
    return made


if __name__ == "__main__":
    end_with(main)
