"""A cluster of processes that chat over UDP: Oxen with real sockets, real deaths and returns.

    python examples/oxen_cluster.py demo                      # a story with four processes
    python examples/oxen_cluster.py node 9001                 # three terminals:
    python examples/oxen_cluster.py node 9002 --join 9001     # type to chat,
    python examples/oxen_cluster.py node 9003 --join 9001 9002   # /leave to say goodbye

With ``--key cluster.key``, everywhere, strangers are kept out and cannot read along; the file is
made by ``python examples/oxen_cluster.py key >cluster.key``.

A server's ID is its UDP port on this machine, so nobody needs a book of addresses: whoever
is heard of can be written to.  Kill a node with ctrl-C and start it again, and watch who
reaches whom.  ``/cut 9002`` pulls the plug between two nodes (typed at both), ``/mend 9002``
puts it back: what they say to each other goes through others meanwhile.  ``/tag role=store`` says
what a node is, ``/tag hall`` puts it into a group, ``/untag hall`` takes that back, and
``/to hall hello`` is heard by those in the group alone.

Exit status of the demo: 0 if all that was said was heard in order, 1 if not, 130 if it was
interrupted; of a node: 0, or 2 if its port cannot be used or a tag is invalid.
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
import socket
import stat
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from culm.arguments import is_encodable
from culm.machine import Event, LocalProtocolError
from culm.oxen import (
    LeaveReason,
    Limits,
    MessageReceived,
    Node,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerState,
    PeerUnreachable,
    TagsChanged,
    Timing,
)
from drivers.udp_driver import UdpDriver
from ending import end_with, exits
from tables import Screen, Table, clean, render

HOST = "127.0.0.1"
CLEAR = "\x1b[2J\x1b[H"
# What is typed stands in the first line, and stays there while the rest is drawn anew.
PROMPT = "\x1b[H\x1b[2K> "
BELOW_PROMPT = "\x1b7\x1b[3H"
BACK = "\x1b[J\x1b8"
TAGS_SIZE_MAX = 512
LINE_SIZE_MAX = 2**24  # what is too long for a message is told so, not cut off
END_OF_LINE = "\x1b[K\n"
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal")


def paced(pace: float) -> Timing:
    """The default times, each multiplied by `pace`; redelivery stays above loopback's delay."""
    timing = Timing()
    scaled = {name: getattr(timing, name) * pace for name in Timing.__dataclass_fields__}
    return replace(timing, **scaled)


class Wires:
    """Who is where, and between whom the plug has been pulled."""

    def __init__(self) -> None:
        self.cut: set[bytes] = set()

    def address_of(self, sid: Hashable) -> tuple[str, int] | None:
        """IDs come from the network: what is no port is nobody's address."""
        is_there = isinstance(sid, bytes) and sid not in self.cut and _is_port(sid)
        return (HOST, int(sid)) if is_there and isinstance(sid, bytes) else None

    def name_of(self, address: tuple[Any, ...]) -> bytes | None:
        name = b"%d" % address[1]
        return name if address[0] == HOST and name not in self.cut else None


def ways(node: Node) -> dict[str, str]:
    """How each peer is reached: directly, through whom, or not at all."""
    contacts, peers, found = node.contacts(), node.peers(), {}
    for sid, view in peers.items():
        helpers = {
            other: contacts.get(other, {}).get(sid, 0.0)
            for other, each in peers.items()
            if each.usable and other != sid
        }
        if view.usable:
            found[sid.decode()] = "direct"
        elif view.reachable and any(helpers.values()):
            found[sid.decode()] = f"through {max(helpers, key=helpers.__getitem__).decode()}"
        else:
            found[sid.decode()] = "unreachable"
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


# -- one node ----------------------------------------------------------------------------------


class Chat:
    """A node and what its user sees: lines of JSON, or a screen with the live table."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._drawn = sys.stdout.isatty() and not as_json
        self.lines: deque[str] = deque(maxlen=12)

    def note(self, event: Event) -> None:
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
            peers = {sid.decode(): view.state.value for sid, view in node.peers().items()}
            queued = {sid.decode(): view.queued for sid, view in node.peers().items()}
            tags = {sid.decode(): dict(view.tags) for sid, view in node.peers().items()}
            table = {"peers": peers, "ways": ways(node), "queued": queued, "tags": tags}
            self._print({"what": "table", **table})
        elif self._drawn or last:
            screen = render(self._table(node), sys.stdout) + "\n\n" + "\n".join(self.lines) + "\n"
            if self._drawn:
                screen = screen.replace("\n", END_OF_LINE)
                screen = CLEAR + screen if last else BELOW_PROMPT + screen + BACK
            sys.stdout.write(screen)
            sys.stdout.flush()

    def _table(self, node: Node) -> Table:
        reached = ways(node)
        rows = []
        for sid, view in sorted(node.peers().items()):
            age = "-" if view.age_s is None else f"{view.age_s:.0f} s ago"
            name = sid.decode()
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

    def _tell(self, what: str, peer: bytes, text: str = "") -> None:
        if self.as_json:
            self._print({"what": what, "peer": peer.decode(), "text": text})
        else:
            said = {"message": f": {clean(text)}", "tags": f" is {clean(text) or 'nothing'}"}
            self.lines.append(peer.decode() + said.get(what, f" {what}"))

    def _print(self, line: dict[str, object]) -> None:
        print(json.dumps(line), flush=True)


async def run_node(options: argparse.Namespace) -> None:
    chat, port, seeds = Chat(as_json=options.json), options.port, options.join
    loop = asyncio.get_running_loop()
    node = Node(
        me=b"%d" % port,
        rng=random.SystemRandom(),
        epoch=time.time() - loop.time(),
        timing=paced(options.pace),
        limits=Limits(tags_size_max=TAGS_SIZE_MAX),
        keys=[options.key] if options.key else [],
    )
    node.set_tags(tags_in(options.tags))
    wires = Wires()
    driver = UdpDriver(node, address_of=wires.address_of, name_of=wires.name_of, on_event=chat.note)
    await loop.create_datagram_endpoint(lambda: driver, local_addr=(HOST, port))
    if not seeds:
        driver.call(node.start)
    for seed in seeds:  # whoever of them is not there yet is asked again
        driver.call(partial(node.join, b"%d" % seed, seed=True))
    chat.prompt(clear=True)
    typing = asyncio.create_task(_obey(driver, node, await _typed(), chat, wires))
    showing = asyncio.create_task(_show(node, chat))
    await driver.wait_closed()
    for task in (typing, showing):
        task.cancel()
    chat.show(node, last=True)


async def _typed() -> asyncio.StreamReader:
    """What is typed or piped to us, or is in a file or /dev/null, for which no loop can wait."""
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
    driver: UdpDriver, node: Node, reader: asyncio.StreamReader, chat: Chat, wires: Wires
) -> None:
    """Say what is typed, until ``/leave`` or the end of input."""
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
            chat.lines.append(f"not sent: {error}")
    driver.call(node.leave)


def _do(line: str, driver: UdpDriver, node: Node, chat: Chat, wires: Wires) -> None:
    """Do what one line says; raises `LocalProtocolError` if the node refuses."""
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
            chat.lines.append(f"you to {group}: {text}")
        case _:
            driver.call(node.broadcast_in_order, line.encode())
            chat.lines.append(f"you: {line}")


async def _show(node: Node, chat: Chat) -> None:
    while True:
        chat.show(node)
        await asyncio.sleep(0.25)


# -- the story -----------------------------------------------------------------------------------


class Member:
    """One process of the cluster, as the story's teller sees it."""

    def __init__(self, port: int, name: str, pace: float) -> None:
        self.port = port
        self.name = name
        self.running = False
        self.life = 0
        self.peers: dict[str, str] = {}
        self.ways: dict[str, str] = {}  # "direct", "through" a port, "unreachable"
        self.queued: dict[str, int] = {}
        self.notes: list[tuple[str, str, str]] = []  # what, peer, text
        self._pace = pace
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._said = 0

    async def start(self, *seeds: int) -> None:
        command = [sys.executable, __file__, "node", str(self.port), "--json"]
        command += ["--pace", str(self._pace)]
        command += ["--join", *map(str, seeds)] if seeds else []
        self.life += 1
        self.peers, self.ways, self.queued, self.notes, self._said = {}, {}, {}, [], 0
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self._listening = asyncio.create_task(self._listen(self._process))
        self.running = True

    def say(self) -> None:
        self._said += 1
        self._type(f"{self.port}/{self.life}/{self._said}")

    def leave(self) -> None:
        self._type("/leave")

    def cut(self, other: Member) -> None:
        self._type(f"/cut {other.port}")

    def mend(self, other: Member) -> None:
        self._type(f"/mend {other.port}")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)

    async def ended(self) -> int:
        assert self._process is not None
        assert self._listening is not None
        code = await self._process.wait()
        await self._listening
        self.running = False
        return code

    def heard(self, port: int, life: int) -> list[int]:
        """Numbers of the lines of that life, as they came."""
        texts = [text.split("/") for what, _, text in self.notes if what == "message"]
        return [int(n) for sender, at, n in texts if (int(sender), int(at)) == (port, life)]

    def was_told(self, what: str, port: int) -> bool:
        return any((w, peer) == (what, str(port)) for w, peer, _ in self.notes)

    def _type(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            note = json.loads(line)
            if note["what"] == "table":
                self.peers, self.ways, self.queued = note["peers"], note["ways"], note["queued"]
            else:
                self.notes.append((note["what"], note["peer"], note["text"]))


class Story:
    """N processes that meet, chat, lose a link, lose one to a kill, get it back, and part."""

    def __init__(self, count: int, pace: float, *, as_json: bool) -> None:
        names = [*NAMES, *(f"node {n}" for n in range(len(NAMES), count))]
        ports = free_ports(count)
        self.members = [Member(port, names[n], pace) for n, port in enumerate(ports)]
        self._names = {str(member.port): member.name for member in self.members}
        self._told: list[str] = []
        self.step = ""
        self.seconds: dict[str, float] = {}
        self._lives: dict[tuple[int, int], int] = defaultdict(int)
        self._as_json = as_json
        self._screen = Screen()

    async def tell(self) -> dict[str, Any]:
        """The story; returns its summary.  Raises `TimeoutError` if it does not go on."""
        drawing = asyncio.create_task(self._draw())
        try:
            with self._screen:
                return await self._tell()
        finally:
            drawing.cancel()
            for member in self.members:
                if member.running:
                    with contextlib.suppress(ProcessLookupError):
                        member.kill()
                    await member.ended()

    async def _tell(self) -> dict[str, Any]:
        first, *others = self.members
        victim = others[-1]
        self._say(f"{first.name} is there. The others know where, and ask to join.")
        await first.start()
        for member in others:
            await member.start(first.port)
        await self._until("everybody has joined", self._all_joined)
        self._say("Each says three things to all.")
        self._speak(3)
        await self._until("everybody has heard everybody", self._all_heard)
        await self._lose_a_link(first, others[0])
        self._say(f"{victim.name} is killed, without a goodbye.")
        victim.kill()
        await victim.ended()
        await self._until(
            "the killed one is given up",
            lambda: all(m.was_told("unreachable", victim.port) for m in self._others(victim)),
        )
        self._say(f"The others say something, and {victim.name} comes back with another life.")
        self._speak(1)
        await victim.start(*(member.port for member in self._others(victim)))
        await self._until("it is back", self._all_joined)
        self._speak(2)
        await self._until("it hears and is heard", self._all_heard)
        leaver = others[0]
        self._say(f"{leaver.name} says goodbye.")
        leaver.leave()
        code = await leaver.ended()
        await self._until(
            "a goodbye is understood",
            lambda: all(m.was_told("left", leaver.port) for m in self._others(leaver) if m.running),
        )
        self._say("So do all the others.")
        for member in self.members:
            if member.running:
                member.leave()
        codes = [await member.ended() for member in self.members if member.running]
        return {
            "nodes": len(self.members),
            "lines_said": sum(self._lives.values()),
            "lines_heard": sum(
                note[0] == "message" for member in self.members for note in member.notes
            ),
            "in_order": all(self._in_order(member) for member in self.members),
            "exit_codes": [code, *codes],
            "seconds": self.seconds,
        }

    async def _lose_a_link(self, one: Member, other: Member) -> None:
        """What two say to each other goes through a third, until they reach each other again."""
        pair = ((one, other), (other, one))
        self._say(f"The link between {one.name} and {other.name} is cut.")
        for near, far in pair:
            near.cut(far)
        await self._until(
            "they reach each other through somebody else",
            lambda: all(a.ways.get(str(b.port), "").startswith("through") for a, b in pair),
        )
        self._speak(1)
        await self._until("what they say arrives all the same", self._all_heard)
        self._say("It is mended.")
        for near, far in pair:
            near.mend(far)
        await self._until(
            "they reach each other by themselves",
            lambda: all(a.ways.get(str(b.port)) == "direct" for a, b in pair),
        )

    def _say(self, sentence: str) -> None:
        """Tell what happens, in words."""
        self._told.append(sentence)
        self._print({"story": sentence}, sentence)

    def _print(self, value: dict[str, Any], text: str) -> None:
        if self._as_json:
            print(json.dumps(value), flush=True)
        elif not self._screen.drawn:
            print(text, flush=True)

    def _others(self, one: Member) -> list[Member]:
        return [member for member in self.members if member is not one]

    def _speak(self, lines: int) -> None:
        for _ in range(lines):
            for member in self.members:
                if member.running:
                    member.say()
                    self._lives[member.port, member.life] += 1

    def _all_joined(self) -> bool:
        ports = {str(member.port) for member in self.members}
        joined = PeerState.JOINED.value
        return all(
            {peer for peer, state in member.peers.items() if state == joined}
            == ports - {str(member.port)}
            for member in self.members
        )

    def _all_heard(self) -> bool:
        """Whether everybody has the last line of everybody."""
        for member in self.members:
            for other in self._others(member):
                said = self._lives[other.port, other.life]
                heard = member.heard(other.port, other.life)
                if not heard or heard[-1] != said:
                    return False
        return True

    def _in_order(self, member: Member) -> bool:
        """Whether lines came in order, none twice and none left out between two others."""
        return all(
            (heard := member.heard(port, life)) == list(range(heard[0], heard[-1] + 1))
            for port, life in self._lives
            if member.heard(port, life)
        )

    async def _until(self, step: str, done: Callable[[], bool], timeout_s: float = 60.0) -> None:
        begin = time.monotonic()
        self.step = step
        async with asyncio.timeout(timeout_s):
            while not done():
                await asyncio.sleep(0.02)
        self.step = ""
        self.seconds[step] = round(time.monotonic() - begin, 2)
        line = f"{self.seconds[step]:6.2f} s  {step}"
        self._told.append(line)
        self._print({"step": step, "seconds": self.seconds[step]}, line)

    async def _draw(self) -> None:
        while self._screen.drawn and not self._as_json:
            waiting = [f"        ... waiting until {self.step}"] if self.step else []
            self._screen.draw(self.table(), "\n".join([*self._told[-16:], *waiting]))
            await asyncio.sleep(0.1)

    def table(self) -> Table:
        """Who reaches whom, and through whom."""
        rows = []
        for member in self.members:
            reached = [
                "" if other is member else self._way(member, other) for other in self.members
            ]
            state = "running" if member.running else "down"
            queued = sum(member.queued.values()) if member.running else 0
            heard = sum(what == "message" for what, _, _ in member.notes)
            rows.append((member.name, state, *reached, heard, queued))
        names = [f"to {member.name}" for member in self.members]
        columns = ("", "process", *names, "heard", "unacknowledged")
        return Table("Who reaches whom", columns, rows)

    def _way(self, member: Member, other: Member) -> str:
        if not member.running:
            return "-"
        state = member.peers.get(str(other.port), "")
        if state != PeerState.JOINED.value:
            return state or "-"
        word, _, helper = member.ways.get(str(other.port), "-").partition(" ")
        return f"{word} {self._names.get(helper, helper)}".strip()


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.command == "key":
        print(secrets.token_hex(32))
        return 0
    if options.command == "node":
        try:
            asyncio.run(run_node(options))
        except KeyboardInterrupt:
            pass  # a death without a goodbye, as the others will see
        except LocalProtocolError as error:
            print(f"{' '.join(options.tags)}: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            print(f"port {options.port}: {error.strerror}", file=sys.stderr)
            return 2
        return 0
    story = Story(options.nodes, options.pace, as_json=options.json)
    try:
        summary = asyncio.run(story.tell())
    except TimeoutError:
        print(f"it did not come to it that {story.step}", file=sys.stderr)
        return 1
    good = summary["in_order"] and not any(summary["exit_codes"])
    if options.json:
        print(json.dumps(summary))
    else:
        said, heard = summary["lines_said"], summary["lines_heard"]
        order = "each in its order" if summary["in_order"] else "NOT in order"
        print(f"{said} lines were said and {heard} heard, {order}.")
    return 0 if good else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    epilog = exits(
        "done, and in the demo everything was heard in order",
        "the demo went wrong",
        "wrong arguments, or the port cannot be used",
        endless="node",
    )
    parser = argparse.ArgumentParser(
        description="Processes that chat over UDP, as a cluster of Oxen.", epilog=epilog
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command_of(name: str, purpose: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=purpose, description=purpose, epilog=epilog)

    node = command_of("node", "run one node, and chat in this terminal")
    node.add_argument("port", type=int, help="the node's UDP port on this machine, and its name")
    node.add_argument(
        "--join",
        type=int,
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
        help="what this node tells all others about itself; a name alone is a group that it is in",
    )
    command_of("key", "make a key for a cluster, and print it")
    demo = command_of(
        "demo",
        "start several nodes and watch what happens as a link is cut, a node is killed and"
        " comes back, and another one leaves",
    )
    demo.add_argument(
        "--nodes", type=int, default=4, metavar="N", help="how many, at least 3 (default: 4)"
    )
    for command, pace in ((node, 0.25), (demo, 0.05)):
        command.add_argument(
            "--json", action="store_true", help="write lines of JSON, for machines"
        )
        command.add_argument(
            "--pace",
            type=float,
            default=pace,
            metavar="FACTOR",
            help="multiply all waiting times of the protocol by this (default: %(default)s)",
        )
    options = parser.parse_args(arguments)
    if options.command == "node" and options.port in options.join:
        parser.error("a node cannot help itself to join")
    if options.command == "node" and not all(map(is_encodable, options.tags)):
        parser.error("tags are text")
    if options.command == "demo" and options.nodes < 3:
        parser.error("a story needs three nodes")
    return options


if __name__ == "__main__":
    end_with(main)
