"""``python -m culm.capture``: look at a capture, replay it, compare two.

Reads files that are named, and writes to standard output; the library itself does neither.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from culm.capture.dissect import PROTOCOLS, Field, Flows, dissect
from culm.capture.errors import CaptureError
from culm.capture.files import open_capture, pieces_of, write_pieces
from culm.capture.lines import lines
from culm.capture.listing import Listed, Listing, Mark, StepKind, time_of
from culm.capture.pcap import pcap
from culm.capture.qlog import qlog
from culm.capture.records import Capture, Header, Step
from culm.capture.replaying import Difference, Replay
from culm.capture.shown import label_of
from culm.capture.text import line_of, plain, plain_step, title_of, visible, words_of
from culm.capture.values import to_value
from culm.capture.view import STEPS_MAX, page
from culm.capture.wireshark import dissectors
from culm.exits import ExitStatus, exits
from culm.wire.multihash import FAMILIES

__all__ = ["main", "parser"]

PROG = "python -m culm.capture"
_BEFORE = 5  # steps that are shown before a difference


def main(arguments: Sequence[str] | None = None, *, prog: str = PROG) -> ExitStatus:
    """Run the command; the exit status."""
    options = parser(prog).parse_args(arguments)
    try:
        status: ExitStatus = options.run(options)
    except CaptureError as error:
        print(visible(str(error)), file=sys.stderr)
        return ExitStatus.IMPOSSIBLE
    except BrokenPipeError:  # the output is no longer read
        raise
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return ExitStatus.IMPOSSIBLE
    return status


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line."""
    epilog = exits(
        {
            ExitStatus.DONE: "as it should be",
            ExitStatus.FAILED: "a difference",
            ExitStatus.IMPOSSIBLE: "no capture, or not readable",
        }
    )
    made = argparse.ArgumentParser(
        prog=prog,
        description="Captures: all calls of a machine in production, and their outcomes.",
        epilog=epilog,
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")

    def bare(name: str, run: Callable[[argparse.Namespace], ExitStatus], help: str) -> Any:
        found = commands.add_parser(
            name, help=help, description=f"{help[0].upper()}{help[1:]}.", epilog=epilog
        )
        found.set_defaults(run=run)
        return found

    def command(name: str, run: Callable[[argparse.Namespace], ExitStatus], help: str) -> Any:
        found = bare(name, run, help)
        found.add_argument("file", help="a capture")
        return found

    show = command("show", _show, "a line for each step")
    show.add_argument("--json", action="store_true", help="steps as lines of JSON, in full")
    show.add_argument("--all", action="store_true", help="calls that took nothing, too")
    show.add_argument(
        "--messages", action="store_true", help="name the messages in bytes, which are all split"
    )
    _add_choice(show)
    again = command("replay", _replay, "do it again, and name the first difference")
    _add_json(again)
    _add_until(again, "stop there, and tell the state")
    diff = command("diff", _diff, "the first step in which two captures differ")
    diff.add_argument("other", help="the capture to compare with")
    _add_json(diff)
    for name, help in (
        ("qlog", "the same as qlog, for tools that read it (JSON text sequences)"),
        ("pcap", "its bytes as packets, for Wireshark"),
        ("lines", "the inputs of the machine, for the line driver"),
        ("test", "a test for pytest that replays it"),
    ):
        written = command(name, _converted, help)
        written.add_argument("-o", metavar="FILE", help="where to write it; standard output")
        written.set_defaults(convert=_CONVERTED[name])
        if name == "test":
            told = "it shows a fault: the test fails for as long as the outcome is the same"
            broken = {"action": "store_const", "dest": "convert", "const": _broken_test_of}
            written.add_argument("--broken", **broken, help=told)
    _add_view(bare("view", _view, "a page that shows one conversation, whole or a part of it"))
    lua = bare("wireshark", _wireshark, "dissectors for Wireshark, in Lua")
    lua.add_argument("-o", metavar="FILE", help="where to write them; standard output")
    told = "bytes from standard input, in hexadecimal or as they are, by fields"
    _add_dissection(bare("dissect", _dissect, told))
    return made


def _add_choice(show: argparse.ArgumentParser) -> None:
    _add_until(show, "the last to be shown")
    first = "the first to be shown: a step, or a time as 12.5s"
    show.add_argument("--from", dest="first", type=Mark.read, metavar="N", help=first)
    only = f"these alone: {', '.join(StepKind)}"
    show.add_argument("--only", type=StepKind.read, metavar="KIND[,KIND]", help=only)
    show.add_argument("--grep", metavar="TEXT", help="lines with that in them")
    show.add_argument("--utc", action="store_true", help="times by the wall clock, in UTC")


def _add_until(command: argparse.ArgumentParser, what: str) -> None:
    told = f"{what}: a step, or a time as 12.5s"
    command.add_argument("--until", type=Mark.read, metavar="N", help=told)


def _add_view(view: argparse.ArgumentParser) -> None:
    view.add_argument("file", nargs="+", help="captures of the conversation, one for each side")
    view.add_argument("-o", required=True, metavar="PAGE", help="where to write it")
    shown = "of the steps that did something, the first to be shown (default: %(default)s)"
    view.add_argument("--from", dest="first", type=int, default=1, metavar="N", help=shown)
    most = "how many are shown at most (default: %(default)s)"
    view.add_argument("--steps", type=int, default=STEPS_MAX, metavar="N", help=most)


def _add_dissection(split: argparse.ArgumentParser) -> None:
    split.add_argument(
        "--protocol", required=True, choices=sorted(PROTOCOLS), help="whose bytes they are"
    )
    split.add_argument("--family", choices=sorted(FAMILIES), help="of hashes: bamboo, point2point")
    split.add_argument("--dialect", help="of p2panda (seed, aquadoggo) or oxen (keyed, flat)")
    split.add_argument("--role", choices=("client", "server"), help="of who sent an ssb-handshake")
    _add_json(split)


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="the findings, as lines of JSON")


def _show(options: argparse.Namespace) -> ExitStatus:
    capture = open_capture(options.file)
    header = capture.header
    if options.utc and header.began is None:
        print("it does not say when it began: no --utc", file=sys.stderr)
        return ExitStatus.IMPOSSIBLE
    _tell_header(options, header)
    faults: list[CaptureError] = []
    told = _until_fault(capture, faults)
    split = options.messages and not options.json
    found = Flows(header).told(told) if split else ((step, iter(())) for step in told)
    listing = Listing(began=header.began if options.utc else None)
    for step, moved in found:
        each = listing.add(step)
        if options.until is not None and options.until.is_before(each):
            break
        if _is_wanted(options, each):
            label = label_of(field for part in moved for field in part.fields)
            named = f"  {visible(label)}" if label else ""
            line = json.dumps(each.plain()) if options.json else f"{each.line()}{named}"
            if (options.grep or "") in line:
                print(line)
    if faults:
        raise faults[0]
    if capture.torn:
        print(f"{capture.torn} bytes at the end are no complete block", file=sys.stderr)
    return ExitStatus.DONE


def _is_wanted(options: argparse.Namespace, each: Listed) -> bool:
    if options.first is not None and options.first.is_after(each):
        return False
    if options.only is not None and each.kind not in options.only:
        return False
    return options.all or options.json or not each.is_idle


def _tell_header(options: argparse.Namespace, header: Header) -> None:
    began = None if header.began is None else time_of(header.began)
    config = plain(dict(header.config))
    versions = {"culm": header.culm, "python": header.python}
    value = {"machine": header.machine, "config": config, "session": header.session, **versions}
    settings = f" {json.dumps(config)}" if config else ""
    _told(
        options,
        {**value, "began": header.began, "utc": began},
        f"{title_of(header)}{settings}",
        f"session {header.session or '-'}, culm {header.culm}, Python {header.python}",
        *([] if began is None else [f"began {began}"]),
    )


def _until_fault(capture: Capture, faults: list[CaptureError]) -> Iterator[Step]:
    """The steps before a fault, whatever they wait for; the fault is noted."""
    try:
        yield from capture
    except CaptureError as error:
        faults.append(error)


def _replay(options: argparse.Namespace) -> ExitStatus:
    capture = open_capture(options.file)
    player, listing = Replay(capture.header), Listing()
    before = deque[Listed](maxlen=_BEFORE)
    for step in capture:
        each = listing.add(step)
        if options.until is not None and options.until.is_before(each):
            break
        difference = player.do(step)
        if difference is not None and options.until is None:
            return _differs(options, difference, before)
        if not each.is_idle:
            before.append(each)
    machine = player.machine  # which there is without any step, too
    if options.until is not None:
        state = machine.state.name
        value = {"step": player.number, "state": state}
        _told(options, value, f"after step {player.number}: {state}")
    else:
        _told(options, {"differs_at": None}, "the same, bit for bit")
    return ExitStatus.DONE


def _differs(
    options: argparse.Namespace, difference: Difference, before: Iterable[Listed]
) -> ExitStatus:
    steps = {"recorded": difference.recorded, "replayed": difference.found}
    _tell_difference(options, difference.number, steps, absent="no change", before=before)
    return ExitStatus.FAILED


def _told(options: argparse.Namespace, value: dict[str, Any], *lines: str) -> None:
    """Print the findings in the form asked for."""
    print(json.dumps(value) if options.json else "\n".join(map(visible, lines)))


def _tell_difference(
    options: argparse.Namespace,
    number: int,
    steps: Mapping[str, Step | None],
    *,
    absent: str,
    before: Iterable[Listed] = (),
) -> None:
    value: dict[str, Any] = {"differs_at": number}
    value |= {name: None if step is None else plain_step(step) for name, step in steps.items()}
    if shown := list(before):
        value["before"] = [each.plain() for each in shown]
    words = {name: absent if step is None else line_of(step) for name, step in steps.items()}
    rows = (f"  {name}: {text}" for name, text in words.items())
    _told(options, value, *(each.line() for each in shown), f"step {number} differs", *rows)


def _diff(options: argparse.Namespace) -> ExitStatus:
    one, other = open_capture(options.file), open_capture(options.other)
    for number, steps in enumerate(zip_longest(one, other), 1):
        first, second = (None if each is None else _untimed(each) for each in steps)
        if first != second:
            paths = dict(zip((options.file, options.other), steps, strict=True))
            _tell_difference(options, number, paths, absent="the end")
            return ExitStatus.FAILED
    _told(options, {"differs_at": None}, "the same steps")
    return ExitStatus.DONE


def _test_of(pieces: Iterator[bytes], words: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """A module for pytest that has the capture in it."""
    data = b"".join(pieces)
    header = Capture([data]).header
    of = f"{header.machine or 'a machine'}, session {header.session or '-'}"
    rows = (f'    b"{line.decode()}"' for line in _lines(b64encode(data)))
    # The names are foreign: they must not end the text in which they stand.
    shown = ascii(of)[1:-1].replace('"', "'")
    yield _TEST.format(of=shown, capture="\n".join(rows), **(words or _SAME)).encode()


def _broken_test_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return _test_of(pieces, _BROKEN)


def _lines(data: bytes) -> Iterator[bytes]:
    return (data[at : at + _LINE] for at in range(0, len(data), _LINE))


_LINE = 88
_TEST = '''"""{title}: {of}."""

from base64 import b64decode

from culm.capture import read, replay

CAPTURE = b64decode(
{capture}
)


def test_{name}() -> None:
    assert replay(read(CAPTURE)) is {wanted}
'''
_SAME = {
    "title": "The calls of production have the same outcome",
    "name": "it_comes_out_the_same",
    "wanted": "None",
}
_BROKEN = {
    "title": "The fault that was found is mended",
    "name": "it_no_longer_comes_out_so",
    "wanted": 'not None, "the machine does what it did when it was broken"',
}


def _lines_of(capture: Capture) -> Iterator[bytes]:
    return (json.dumps(line).encode() + b"\n" for line in lines(capture))


_CONVERTED: dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    "qlog": lambda pieces: qlog(Capture(pieces)),
    "pcap": lambda pieces: pcap(Capture(pieces)),
    "lines": lambda pieces: _lines_of(Capture(pieces)),
    "test": _test_of,
}


def _converted(options: argparse.Namespace) -> ExitStatus:
    _write(options.o, options.convert(pieces_of(options.file)))
    return ExitStatus.DONE


def _write(path: str | None, pieces: Iterable[bytes]) -> None:
    if path is None:
        sys.stdout.buffer.writelines(pieces)
    else:
        write_pieces(path, pieces)


def _wireshark(options: argparse.Namespace) -> ExitStatus:
    _write(options.o, [dissectors().encode()])
    return ExitStatus.DONE


def _view(options: argparse.Namespace) -> ExitStatus:
    captures = {_name_of(path): partial(open_capture, path) for path in options.file}
    made = page(captures, first=options.first, count=options.steps)
    _write(options.o, [made.encode()])
    return ExitStatus.DONE


def _name_of(path: str) -> str:
    """The name of a file, without folders and extension."""
    return re.split(r"[/\\]", path)[-1].partition(".")[0] or path


def _dissect(options: argparse.Namespace) -> ExitStatus:
    chosen = {name: getattr(options, name) for name in ("family", "dialect", "role")}
    given = {name: value for name, value in chosen.items() if value is not None}
    try:
        found = dissect(options.protocol, _unhexed(sys.stdin.buffer.read()), **given)
    except (TypeError, ValueError):
        print(f"{options.protocol} has no such option: {given}", file=sys.stderr)
        return ExitStatus.IMPOSSIBLE
    _tell_fields(options, found.fields)
    if (fault := found.fault) is None:
        return ExitStatus.DONE
    value = {"offset": fault.offset, "fault": str(fault.code), "message": fault.message}
    _told(options, value, f"{fault.offset:>8}        {fault.code}: {fault.message}")
    return ExitStatus.FAILED


def _unhexed(data: bytes) -> bytes:
    """Bytes that are all hexadecimal digits and spaces are meant to be that."""
    digits = b"".join(data.split())
    is_hex = re.fullmatch(b"(?:[0-9a-fA-F]{2})*", digits) is not None
    return bytes.fromhex(digits.decode()) if is_hex else data


def _tell_fields(options: argparse.Namespace, fields: Sequence[Field], depth: int = 0) -> None:
    for each in fields:
        if each.name:
            shown = _shown(each.value)
            words = "" if each.value is None else f" = {words_of(shown)}"
            more = " ..." if each.continues else ""
            line = f"{each.offset:>8} {each.size:>6}  {'  ' * depth}{each.name}{words}{more}"
            value = {"offset": each.offset, "size": each.size, "depth": depth, "name": each.name}
            _told(options, {**value, "value": plain(shown), "continues": each.continues}, line)
        _tell_fields(options, each.inside, depth + 1)


def _shown(value: object) -> object:
    return value if type(value) in (bytes, int, str) else to_value(value)


def _untimed(step: Step) -> tuple[object, ...]:
    return tuple(getattr(step, name) for name in Step.__slots__ if name != "after")
