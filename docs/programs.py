"""Takes the pictures of programs in these pages: ``python docs/programs.py docs/pictures``.

Each program runs as it does for people: in a terminal (a pseudo-terminal, whose screen pyte keeps).
What is on the screen at the right moment becomes an SVG by rich, without the fonts that rich
would have a browser fetch.  Ports, keys and times differ from run to run, so the pictures do.

It needs the extra ``plots``, and takes a minute.  Names on the command line choose pictures.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

PATIENCE_S = 120.0
# Of rich's own form, all but the web fonts and the drawn buttons of a window.
FORM = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def style_of(cell: pyte.screens.Char) -> Style:
    """Rich's words for how a character looks; colours are the terminal's, or in hexadecimal."""
    colour = cell.fg.replace("brown", "yellow").replace("bright", "bright_")
    if re.fullmatch("[0-9a-f]{6}", colour):
        colour = f"#{colour}"
    return Style(color=None if colour == "default" else colour, bold=cell.bold)


class Terminal:
    """A program in a terminal of so many columns and lines, and what is on its screen."""

    def __init__(
        self, command: Sequence[str], *, columns: int, lines: int = 30, folder: Path | None = None
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._end, its_end = pty.openpty()
        fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._process = subprocess.Popen(
            command,
            stdin=its_end,
            stdout=its_end,
            stderr=its_end,
            cwd=folder,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(its_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGINT)
        self.wait()
        self._process.wait()
        os.close(self._end)

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._end, line.encode() + b"\n")

    def wait(self, until: Callable[[str], object] = lambda screen: False) -> None:
        """Until the screen is as it should be, or the program has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while not until("\n".join(self._screen.display)):
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join(self._screen.display))
            if not select.select([self._end], [], [], 1.0)[0]:
                continue
            try:
                data = os.read(self._end, 1 << 16)
            except OSError:  # there is nobody at the other end
                return
            self._stream.feed(data)

    def text(self) -> Text:
        """What is on the screen, with its colours, without the empty lines below."""
        lines = []
        for number in range(self._screen.lines):
            row = self._screen.buffer[number]
            cells = (row[column] for column in range(self._screen.columns))
            line = Text()
            for style, alike in groupby(cells, key=style_of):
                line.append("".join(cell.data for cell in alike), style)
            line.rstrip()
            lines.append(line)
        while lines and not lines[-1]:
            lines.pop()
        return Text("\n").join(lines)

    def picture(self, title: str) -> str:
        """The screen as SVG."""
        console = Console(record=True, width=self._screen.columns, file=io.StringIO())
        console.print(self.text(), soft_wrap=True)
        return console.export_svg(title=title, code_format=FORM, unique_id="t")


def program(name: str, *arguments: object) -> list[str]:
    """The command that runs one of the programs."""
    return [sys.executable, "-m", "culm_io", name, *map(str, arguments)]


def background(stack: ExitStack, *command: str) -> subprocess.Popen[str]:
    """A program that runs until the picture is taken."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    stack.callback(process.send_signal, signal.SIGINT)
    return process


def session(*commands: str) -> list[str]:
    """A shell that shows commands and runs them, one after the other."""
    python = f"{sys.executable} -m culm_io "
    shown = (f"echo '$ {line}'; {line.replace('culm ', python)}" for line in commands)
    return ["sh", "-c", "; echo; ".join(shown)]


# The pictures.


def oxen(folder: Path, stack: ExitStack) -> str:
    """In the demo, while the link between two servers is cut."""
    terminal = stack.enter_context(Terminal(program("oxen", "demo"), columns=92))
    terminal.wait(lambda screen: len(re.findall(r"through [A-Z]", screen)) == 2)
    return terminal.picture("culm oxen demo")


def raft(folder: Path, stack: ExitStack) -> str:
    """A leader has been killed, another one leads, and a fourth server joins."""
    where = ("--dir", folder)
    cluster = background(stack, *program("raft", "start", "--nodes", 3, *where))

    def ask(*arguments: object) -> str:
        verb, *rest = arguments
        command = program("raft", verb, *where, *rest)
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def leader() -> str | None:
        found = re.search(r"server (\d+) leads", ask("status"))
        return found and found[1]

    while (first := leader()) is None:
        assert cluster.poll() is None
        time.sleep(0.5)
    for number in range(20):
        ask("put", f"key{number}", number)
    watching = program("raft", "watch", *where)
    terminal = stack.enter_context(Terminal(watching, columns=104))
    terminal.wait(lambda screen: "leads" in screen)
    subprocess.run(program("raft", "kill", *where, first), check=True, capture_output=True)
    terminal.wait(lambda screen: f"server {first} is down" in screen and "nobody" in screen)
    terminal.wait(lambda screen: screen.count(" leads term ") >= 2)
    background(stack, *program("raft", "add", *where, 4))
    terminal.wait(lambda screen: "  4   down" in screen)
    background(stack, *program("raft", "run", *where, 4))
    terminal.wait(lambda screen: "server 4 has become a member" in screen)
    terminal.wait(lambda screen: re.search("  4   follower .* 20   replicate +0 ", screen))
    return terminal.picture("culm raft watch --dir farm")


def p2panda(folder: Path, stack: ExitStack) -> str:
    """One node writes, fetches what another has, and shows both."""
    for fields in (("name=Ada", "age=36"), ("name=Grace", "age=85")):
        made = program("p2panda", "create", "--store", folder / "a.store", *fields)
        subprocess.run(made, check=True, capture_output=True)
    serve = program("p2panda", "serve", "--store", folder / "a.store", "--port", 0)
    said = background(stack, *serve).stdout
    assert said is not None
    port = json.loads(said.readline())["port"]
    node, store = "culm p2panda", "--store b.store"
    commands = session(
        f"{node} create {store} name=Lu age=7",
        f"{node} sync {store} --from 127.0.0.1:{port}",
        f"{node} show {store}",
    )
    terminal = stack.enter_context(Terminal(commands, columns=104, folder=folder))
    terminal.wait()
    return terminal.picture("A p2panda node")


def ssb(folder: Path, stack: ExitStack) -> str:
    """A peer follows a pub, gets its feed and writes to its own."""
    pub = background(stack, *program("ssb", "run", "--dir", folder / "pub", "--port", 0))
    assert pub.stdin is not None
    assert pub.stdout is not None
    there = json.loads(pub.stdout.readline())
    for text in ("hello", "is anybody there?", "the tide is out"):
        print(f"publish {text}", file=pub.stdin, flush=True)
    run = ("run", "--dir", folder / "me", "--port", 0, "--connect", there["address"])
    terminal = stack.enter_context(Terminal(program("ssb", *run), columns=104))
    terminal.wait(lambda screen: "connected" in screen)
    terminal.type(f"follow {there['feed']}")
    terminal.wait(lambda screen: "sequence 3" in screen)
    terminal.type("publish good evening")
    terminal.wait(lambda screen: "sequence 2" in screen and "3/3" in screen)
    terminal.type("status")
    terminal.wait(lambda screen: "messages have moved" in screen and screen.count("3/3") == 2)
    return terminal.picture("culm ssb run --dir me --connect net:...")


def directory(folder: Path, stack: ExitStack) -> str:
    """A directory is published, served, fetched and looked at."""
    for name, size in (("2024/sea.jpg", 300_000), ("2024/hill.jpg", 90_000), ("list.txt", 700)):
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    publish = program("directory", "publish", folder / "photos", "--store", folder / "mine.store")
    subprocess.run(publish, check=True, capture_output=True)
    serve = program("directory", "serve", "--store", folder / "mine.store", "--port", 0)
    said = background(stack, *serve).stdout
    assert said is not None
    port = json.loads(said.readline())["port"]
    fetcher, store = "culm directory", "--store theirs.store"
    commands = session(
        f"{fetcher} fetch {store} --from 127.0.0.1:{port} --into copy",
        f"{fetcher} ls {store}",
        f"{fetcher} verify copy {store}",
    )
    terminal = stack.enter_context(Terminal(commands, columns=104, folder=folder))
    terminal.wait()
    return terminal.picture("A directory is fetched and verified")


def demo(folder: Path, stack: ExitStack) -> str:
    """The demo, from its beginning to its verdict."""
    (folder / "python").symlink_to(sysconfig.get_path("stdlib"))
    command = program("demo", "--source", "python")
    terminal = stack.enter_context(Terminal(command, columns=84, folder=folder))
    terminal.wait(lambda screen: "Done in" in screen)
    return terminal.picture("culm demo --source python")


PICTURES = {
    "demo": demo,
    "oxen": oxen,
    "raft": raft,
    "p2panda": p2panda,
    "ssb": ssb,
    "directory": directory,
}


def main() -> None:
    """Take the pictures that are asked for, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", type=Path, help="the folder for the pictures")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PICTURES)} (default: all)")
    given = parser.parse_args()
    target = given.target.resolve()
    for name in given.names or PICTURES:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            drawn = PICTURES[name](Path(folder), stack)
        (target / f"program-{name}.svg").write_text(drawn, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
