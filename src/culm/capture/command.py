"""``python -m culm.capture``: look at a capture, replay it, compare two.

Reads files that are named, and writes to standard output; the library itself does neither.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from culm.capture.errors import CaptureError
from culm.capture.records import Capture, Step
from culm.capture.replay import Replay, replay

__all__ = ["main"]

_PIECE_SIZE = 1 << 16
_WIDTH = 100  # characters of what is shown of a value

SAME, DIFFERENT, UNREADABLE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except CaptureError as error:
        print(error, file=sys.stderr)
        return UNREADABLE
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return UNREADABLE
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m culm.capture",
        description="Captures: what a machine was told in production, and all that came of it.",
        epilog="Exit status: 0 as it should be; 1 a difference; 2 no capture, or not readable.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> Any:
        made = commands.add_parser(name, help=help, description=f"{help.capitalize()}.")
        made.add_argument("file", help="a capture")
        made.set_defaults(run=run)
        return made

    show = command("show", _show, "a line for each step")
    show.add_argument("--json", action="store_true", help="steps as lines of JSON, in full")
    show.add_argument("--all", action="store_true", help="calls that took nothing, too")
    again = command("replay", _replay, "do it again, and name the first difference")
    again.add_argument("--until", type=int, metavar="N", help="stop after step N; tell the state")
    diff = command("diff", _diff, "the first step in which two captures differ")
    diff.add_argument("other", help="the capture to compare with")
    return parser


def _open(path: str) -> Capture:
    return Capture(_pieces(path))


def _pieces(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_SIZE):
            yield piece


def _show(options: argparse.Namespace) -> int:
    capture = _open(options.file)
    header = capture.header
    if not options.json:
        config = json.dumps(dict(header.config)) if header.config else ""
        print(f"{header.machine or 'a machine without a name'} {config}".rstrip())
        print(f"session {header.session or '-'}, culm {header.culm}, Python {header.python}")
    at = 0.0
    for number, step in enumerate(capture, 1):
        at += step.after
        if options.json:
            print(json.dumps({"number": number, "at": at, **_plain_step(step)}))
        elif options.all or not _is_idle(step):
            print(f"{number:>7} {at:>12.6f}  {_line(step)}")
    if capture.torn:
        print(f"{capture.torn} bytes at the end are no complete block", file=sys.stderr)
    return SAME


def _replay(options: argparse.Namespace) -> int:
    if options.until is not None:
        return _replay_until(options)
    difference = replay(_open(options.file))
    if difference is None:
        print("the same, bit for bit")
        return SAME
    print(f"step {difference.number} differs")
    print(f"  recorded: {_line(difference.recorded)}")
    found = "no change" if difference.found is None else _line(difference.found)
    print(f"  replayed: {found}")
    return DIFFERENT


def _replay_until(options: argparse.Namespace) -> int:
    capture = _open(options.file)
    player = Replay(capture.header)
    for step in capture:
        if player.number == options.until:
            break
        player.do(step)
    print(f"after step {player.number}: {player.machine.state.name}")
    return SAME


def _diff(options: argparse.Namespace) -> int:
    one, other = _open(options.file), _open(options.other)
    for number, steps in enumerate(zip_longest(one, other), 1):
        first, second = (None if each is None else _untimed(each) for each in steps)
        if first != second:
            print(f"step {number} differs")
            for path, step in zip((options.file, options.other), steps, strict=True):
                print(f"  {path}: {'the end' if step is None else _line(step)}")
            return DIFFERENT
    print("the same steps")
    return SAME


def _untimed(step: Step) -> tuple[object, ...]:
    return tuple(getattr(step, name) for name in Step.__slots__ if name != "after")


def _is_idle(step: Step) -> bool:
    """Whether a step took something, and there was nothing."""
    takes = step.name.startswith("next_") or step.name.endswith("_to_send")
    return takes and step.error is None and step.result in (None, b"", [])


def _line(step: Step) -> str:
    given = [_words(each) for each in step.arguments]
    given += [f"{name}={_words(each)}" for name, each in step.keywords.items()]
    on = f"#{step.on}." if step.on else ""
    words = f"{on}{step.name}({', '.join(given)})"
    if step.error is not None:
        return f"{words} raised {_words(step.error)}"
    if step.result is not None:
        words += f" -> {_words(step.result)}"
    return words if step.state is None else f"{words}  [{step.state}]"


def _words(value: Any) -> str:
    words = _whole(value)
    return words if len(words) <= _WIDTH else f"{words[: _WIDTH - 3]}..."


def _whole(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes {value[:_WIDTH].hex()}"
    if isinstance(value, list):
        return f"[{', '.join(map(_words, value))}]"
    if not isinstance(value, dict):
        return repr(value)
    mark = value.get("")
    if not isinstance(mark, str):
        return f"{{{', '.join(f'{key}: {_words(each)}' for key, each in value.items())}}}"
    if mark == "object":
        return f"#{value.get('number')}"
    if "member" in value:
        return str(value["member"])
    parts = value.get("fields", {name: each for name, each in value.items() if name})
    shown = parts.items() if isinstance(parts, dict) else ()
    return f"{mark.rpartition(':')[2]}({', '.join(f'{k}={_words(v)}' for k, v in shown)})"


def _plain_step(step: Step) -> dict[str, Any]:
    return {
        "on": step.on,
        "name": step.name,
        "arguments": _plain(step.arguments),
        "keywords": _plain(step.keywords),
        "result": _plain(step.result),
        "error": _plain(step.error),
        "state": step.state,
    }


def _plain(value: Any) -> Any:
    """The same for JSON: bytes as ``{"hex": "..."}``, like everywhere in culm."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value
