"""A cluster of processes that chat over UDP: Oxen with real sockets, real deaths and returns.

    culm oxen demo                      # a story with four processes
    culm oxen node 9001                 # three terminals:
    culm oxen node 9002 --join 9001     # type to chat,
    culm oxen node 9003 --join 9001 9002   # /leave to say goodbye

With ``--key cluster.key``, everywhere, strangers are kept out and cannot read along; the file is
made by ``culm oxen key >cluster.key``.

A server's ID is its UDP port on this machine, so an address book is not needed: a server that
is heard of can be written to.  Kill a node with ctrl-C and start it again, and watch who
reaches whom.  ``/cut 9002`` pulls the plug between two nodes (typed at both), ``/mend 9002``
puts it back: their messages go through others meanwhile.  ``/tag role=store`` describes a node,
``/tag hall`` puts it into a group, ``/untag hall`` takes that back, and
``/to hall hello`` is heard by those in the group alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import secrets
import signal
import stat
import sys
import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from culm.arguments import is_encodable
from culm.exits import ExitStatus, exits
from culm.machine import LocalProtocolError
from culm.measures import Measure, measures, of_records
from culm.oxen import (
    LeaveReason,
    Limits,
    MessageReceived,
    Node,
    NodeEvent,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerUnreachable,
    TagsChanged,
    Timing,
)
from culm_io.asyncio.udp import UdpDriver
from culm_io.programs.arguments import number, port, positive
from culm_io.programs.captures import Captures, add_capture
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.numbers import Metrics, add_metrics
from culm_io.programs.oxen.story import HOST, Story
from culm_io.programs.tables import Table, clean, render

Driver: TypeAlias = UdpDriver[NodeEvent, bytes]

CLEAR = "\x1b[2J\x1b[H"
# Typed text stands in the first line, and stays there while the rest is drawn anew.
PROMPT = "\x1b[H\x1b[2K> "
BELOW_PROMPT = "\x1b7\x1b[3H"
BACK = "\x1b[J\x1b8"
TAGS_SIZE_MAX = 512
LINE_SIZE_MAX = 2**24  # a line too long for a message is refused, not cut off
END_OF_LINE = "\x1b[K\n"


def paced(pace: float) -> Timing:
    """The default times, each multiplied by `pace`; redelivery stays above loopback's delay."""
    timing = Timing()
    scaled = {name: getattr(timing, name) * pace for name in Timing.__dataclass_fields__}
    return replace(timing, **scaled)


class Wires:
    """The addresses of nodes, and the pairs between which the plug has been pulled."""

    def __init__(self) -> None:
        self.cut: set[bytes] = set()

    def address_of(self, sid: Hashable) -> tuple[str, int] | None:
        """IDs come from the network: one that is no port has no address."""
        is_there = isinstance(sid, bytes) and sid not in self.cut and _is_port(sid)
        return (HOST, int(sid)) if is_there and isinstance(sid, bytes) else None

    def name_of(self, address: tuple[Any, ...]) -> bytes | None:
        name = b"%d" % address[1]
        return name if address[0] == HOST and name not in self.cut else None


def name_of(sid: bytes) -> str:
    """The server in print: its ID may be any bytes, whatever others say."""
    return clean(sid.decode(errors="backslashreplace"))


def ways(node: Node) -> dict[str, str]:
    """How each peer is reached: directly, through another, or not at all."""
    contacts, peers, found = node.contacts(), node.peers(), {}
    for sid, view in peers.items():
        helpers = {
            other: contacts.get(other, {}).get(sid, 0.0)
            for other, each in peers.items()
            if each.usable and other != sid
        }
        if view.usable:
            found[name_of(sid)] = "direct"
        elif view.reachable and any(helpers.values()):
            found[name_of(sid)] = f"through {name_of(max(helpers, key=helpers.__getitem__))}"
        else:
            found[name_of(sid)] = "unreachable"
    return found


def _is_port(sid: bytes) -> bool:
    return sid.isdigit() and len(sid) <= 5 and 0 < int(sid) < 65536


def key_in(path: str) -> bytes:
    """The cluster's key: 64 hexadecimal digits in a file."""
    try:
        key = bytes.fromhex(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error
    if len(key) != 32:
        raise argparse.ArgumentTypeError(f"{path}: a key is 64 hexadecimal digits")
    return key


def tags_in(words: list[str]) -> dict[str, str]:
    """``["role=store", "hall"]`` as tags."""
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def words_of(tags: Mapping[str, str]) -> str:
    """The inverse of `tags_in`, in one line."""
    return " ".join(f"{name}={value}" if value else name for name, value in sorted(tags.items()))


class Chat:
    """A node and its user's view: lines of JSON, or a screen with the live table."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._drawn = sys.stdout.isatty() and not as_json
        self._lines: deque[str] = deque(maxlen=12)
        self._shown: dict[str, object] = {}

    def note(self, event: NodeEvent) -> None:
        match event:
            case MessageReceived(peer=peer, data=data):
                self._tell("message", peer, text=data.decode(errors="replace"))
            case PeerJoined(peer=peer):
                self._tell("joined", peer)
            case PeerLeft(peer=peer, reason=reason):
                restarted = reason is LeaveReason.RESTARTED
                self._tell("restarted" if restarted else "left", peer)
            case PeerUnreachable(peer=peer):
                self._tell("unreachable", peer)
            case PeerReachable(peer=peer):
                self._tell("reachable", peer)
            case TagsChanged(peer=peer, tags=tags):
                self._tell("tags", peer, text=words_of(tags))

    def show(self, node: Node, *, last: bool = False) -> None:
        """The table as it is now; if it is the `last` time, it stays on the screen."""
        if self.as_json:
            peers = {name_of(sid): view.state.value for sid, view in node.peers().items()}
            queued = {name_of(sid): view.queued for sid, view in node.peers().items()}
            tags = {name_of(sid): dict(view.tags) for sid, view in node.peers().items()}
            table = {"peers": peers, "ways": ways(node), "queued": queued, "tags": tags}
            if table != self._shown:
                self._shown = table
                self._print({"what": "table", **table})
        elif self._drawn or last:
            screen = render(self._table(node), sys.stdout) + "\n"
            if self._drawn:
                screen += "\n" + "\n".join(self._lines) + "\n"
                screen = screen.replace("\n", END_OF_LINE)
                screen = CLEAR + screen if last else BELOW_PROMPT + screen + BACK
            sys.stdout.write(screen)
            sys.stdout.flush()

    def _table(self, node: Node) -> Table:
        reached = ways(node)
        rows = []
        for sid, view in sorted(node.peers().items()):
            age = "-" if view.age_s is None else f"{view.age_s:.0f} s ago"
            name = name_of(sid)
            tags = clean(words_of(view.tags))
            rows.append((name, view.state.value, reached[name], age, view.queued, tags))
        mine = clean(words_of(node.tags))
        title = f"{node.me.decode()} ({node.state.name.lower()}{', ' + mine if mine else ''})"
        columns = ("peer", "state", "reached", "last contact", "unacknowledged", "tags")
        return Table(title, columns, rows)

    def prompt(self, *, clear: bool = False) -> None:
        """Make room for the next line to be typed."""
        if self._drawn:
            sys.stdout.write((CLEAR if clear else "") + PROMPT)
            sys.stdout.flush()

    def refuse(self, error: LocalProtocolError) -> None:
        """Tell the user that the typed line was not sent."""
        if self.as_json:
            self._print({"what": "not sent", "text": str(error)})
        else:
            self.tell(f"not sent: {error}")

    def _tell(self, what: str, peer: bytes, text: str = "") -> None:
        if self.as_json:
            self._print({"what": what, "peer": name_of(peer), "text": text})
        else:
            said = {"message": f": {clean(text)}", "tags": f" is {clean(text) or 'nothing'}"}
            self.tell(name_of(peer) + said.get(what, f" {what}"))

    def tell(self, line: str) -> None:
        """One of the lines for people: below the table, or in a pipe as it comes."""
        self._lines.append(line)
        if not self._drawn and not self.as_json:
            print(line, flush=True)

    def _print(self, line: dict[str, object]) -> None:
        print(json.dumps(line), flush=True)


def _numbers(node: Node) -> list[Measure]:
    return [*measures(node), *of_records("peers", node.peers().values())]


async def run_node(options: argparse.Namespace, captures: Captures) -> None:
    metrics = Metrics.of(options)
    chat, seeds = Chat(as_json=options.json), options.join
    loop = asyncio.get_running_loop()
    tape = captures.tape("oxen", session=f"port {options.port}")
    node = tape.make(
        Node,
        me=b"%d" % options.port,
        rng=tape.chance(random.SystemRandom()),
        epoch=time.time() - loop.time(),
        timing=paced(options.pace),
        limits=Limits(tags_size_max=TAGS_SIZE_MAX),
        keys=[options.key] if options.key else [],
    )
    node.set_tags(tags_in(options.tags))
    wires = Wires()
    driver = UdpDriver(
        node,
        address_of=wires.address_of,
        name_of=wires.name_of,
        on_event=metrics.counted(chat.note),
    )
    await loop.create_datagram_endpoint(lambda: driver, local_addr=(HOST, options.port))
    if not seeds:
        driver.call(node.start)
    for seed in seeds:  # one that is not there yet is asked again
        driver.call(partial(node.join, b"%d" % seed, seed=True))
    loop.add_signal_handler(signal.SIGTERM, _leave, driver, node)
    chat.prompt(clear=True)
    typing = asyncio.create_task(_obey(driver, node, await _typed(), chat, wires))
    showing = asyncio.create_task(_show(node, chat))
    async with metrics.served(f"port {options.port}", partial(_numbers, node)):
        await driver.wait_closed()
    for task in (typing, showing):
        task.cancel()
    chat.show(node, last=True)


def _leave(driver: Driver, node: Node) -> None:
    """Say goodbye, as ``/leave`` does; the next signal does not wait for that."""
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    with contextlib.suppress(LocalProtocolError):  # it has left already
        driver.call(node.leave)


async def _typed() -> asyncio.StreamReader:
    """Our input: typed, piped, or a file or /dev/null, for which no loop can wait."""
    reader = asyncio.StreamReader(limit=LINE_SIZE_MAX)
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if sys.stdin.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        connect = asyncio.get_running_loop().connect_read_pipe
        await connect(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    else:
        reader.feed_data(sys.stdin.buffer.read())
        reader.feed_eof()
    return reader


async def _obey(
    driver: Driver,
    node: Node,
    reader: asyncio.StreamReader,
    chat: Chat,
    wires: Wires,
) -> None:
    """Send typed lines, until ``/leave`` or the end of input."""
    while octets := await reader.readline():
        chat.prompt()
        line = octets.decode(errors="replace").strip()
        if line == "/leave":
            break
        if not line:
            continue
        try:
            _do(line, driver, node, chat, wires)
        except LocalProtocolError as error:
            chat.refuse(error)
    driver.call(node.leave)


def _do(line: str, driver: Driver, node: Node, chat: Chat, wires: Wires) -> None:
    """Carry out one line; raises `LocalProtocolError` if the node refuses."""
    verb, _, rest = line.partition(" ")
    match verb:
        case "/cut":
            wires.cut.add(rest.encode())
        case "/mend":
            wires.cut.discard(rest.encode())
        case "/tag":
            driver.call(partial(node.set_tags, {**node.tags, **tags_in(rest.split())}))
        case "/untag":
            driver.call(partial(node.leave_group, rest))
        case "/to":
            group, _, text = rest.partition(" ")
            driver.call(partial(node.send_to_group, group, text.encode()))
            chat.tell(f"you to {group}: {text}")
        case _:
            driver.call(node.broadcast_in_order, line.encode())
            chat.tell(f"you: {line}")


async def _show(node: Node, chat: Chat) -> None:
    while True:
        chat.show(node)
        await asyncio.sleep(0.25)


def main(words: Sequence[str] | None = None) -> ExitStatus:
    """Run a command; the exit status."""
    made = parser()
    options = made.parse_args(words)
    if options.command == "node" and options.port in options.join:
        made.error("a node cannot help itself to join")
    if options.command == "node" and not all(map(is_encodable, options.tags)):
        made.error("tags are text")
    if options.command == "key":
        key = secrets.token_hex(32)
        print(json.dumps({"key": key}) if options.json else key)
        return ExitStatus.DONE
    if options.command == "node":
        try:
            with Captures.of(options) as captures:
                asyncio.run(run_node(options, captures))
        except KeyboardInterrupt:
            pass  # a death without a goodbye, as the others will see
        except LocalProtocolError as error:
            raise ImpossibleError(f"{' '.join(options.tags)}: {error}") from error
        except BrokenPipeError:  # the output is no longer read
            raise
        except OSError as error:
            raise ImpossibleError(f"port {options.port}: {error.strerror}") from error
        return ExitStatus.DONE
    story = Story(options.nodes, options.pace, as_json=options.json)
    try:
        summary = asyncio.run(story.tell())
    except TimeoutError:
        print(f"it did not come to it that {story.step}", file=sys.stderr)
        return ExitStatus.FAILED
    good = summary["in_order"] and not any(summary["exit_codes"])
    if options.json:
        print(json.dumps(summary))
    else:
        said, heard = summary["lines_said"], summary["lines_heard"]
        order = "each in its order" if summary["in_order"] else "NOT in order"
        print(f"{said} lines were said and {heard} heard, {order}.")
    return ExitStatus.DONE if good else ExitStatus.FAILED


def parser() -> argparse.ArgumentParser:
    """The command line."""
    epilog = exits(
        {
            ExitStatus.DONE: "done, and in the demo everything was heard in order",
            ExitStatus.FAILED: "the demo went wrong",
            ExitStatus.IMPOSSIBLE: "wrong arguments, or the port cannot be used",
        },
        endless="node",
    )
    made = argparse.ArgumentParser(
        prog="culm oxen",
        description="Processes that chat over UDP, as a cluster of Oxen.",
        epilog=epilog,
    )
    commands = made.add_subparsers(dest="command", required=True)

    def command_of(name: str, purpose: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=purpose, description=purpose, epilog=epilog)

    node = command_of("node", "run one node, and chat in this terminal")
    node.add_argument("port", type=port, help="the node's UDP port on this machine, and its name")
    node.add_argument(
        "--join",
        type=port,
        nargs="+",
        default=[],
        metavar="PORT",
        help="ports of nodes that can let this one in; they are asked again until one answers",
    )
    node.add_argument(
        "--key",
        type=key_in,
        metavar="FILE",
        help="a file with the cluster's key; either all nodes have the same one, or none has any",
    )
    node.add_argument(
        "--tags",
        nargs="+",
        default=[],
        metavar="NAME[=VALUE]",
        help="a tag of this node, told to all others; a name alone is a group that it is in",
    )
    add_capture(node)
    add_metrics(node)
    key = command_of("key", "make a key for a cluster, and print it")
    demo = command_of(
        "demo",
        "start several nodes and watch as a link is cut, a node is killed and"
        " comes back, and another one leaves",
    )
    demo.add_argument(
        "--nodes",
        type=number(3, 64),  # a story needs three
        default=4,
        metavar="N",
        help="how many, at least 3 (default: 4)",
    )
    for command in (node, key, demo):
        command.add_argument(
            "--json", action="store_true", help="write lines of JSON, for machines"
        )
    for command, pace in ((node, 0.25), (demo, 0.05)):
        command.add_argument(
            "--pace",
            type=positive,
            default=pace,
            metavar="FACTOR",
            help="multiply all waiting times of the protocol by this (default: %(default)s)",
        )
    return made
