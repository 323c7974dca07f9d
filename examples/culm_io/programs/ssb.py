"""A small pub of Secure Scuttlebutt: listens, connects, follows, publishes, shows progress.

    culm ssb run --dir /tmp/pub --port 8008
    culm ssb run --dir /tmp/me --port 0 --connect net:HOST:8008~shs:KEY
    culm ssb id --dir /tmp/me
    culm ssb messages --dir /tmp/me @KEY.ed25519

"run" goes on until it is interrupted, and obeys commands on stdin, line by line:

    publish TEXT      write a post to our own feed
    follow FEED       fetch that feed, and pass it on; unfollow FEED ends that
    block FEED        have nothing to do with that peer; unblock FEED ends that
    connect ADDRESS   connect, and again whenever the connection has ended, unless it is blocked
    confirm           say that our own feed is whole here, though the folder is a copy
    status            show the state of the peer
    quit              end, as Ctrl-C does

Events are written to stdout, in words on a terminal and in lines of JSON elsewhere or with --json;
a bar on stderr shows the progress of replication, if that is a terminal.  The peers that we
follow and block stand on our own feed (messages of type "contact"), for others to see.  The
folder
has everything: the key, and the feeds in SQLite.  The program may be killed at any moment; all
that it has said on stdout or to a peer is kept.

A copied folder, or one restored from a backup, is detected.  It may lack the end of our own
feed, and a message in the place of another one would fork the feed for ever.  So nothing can be
published before a peer that we follow has told how long the feed is, and all of it is here, or
before "confirm".
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from socket import gaierror
from textwrap import fill
from threading import Thread
from typing import Any

from nacl.signing import SigningKey

from culm.exits import ExitStatus, exits
from culm.machine import Closed, Event, LocalProtocolError, StoreFailed
from culm.measures import measures
from culm.ssb import MAIN_NETWORK
from culm.ssb.address import Address
from culm.ssb.ebt import (
    FeedExtended,
    FeedForked,
    FeedsLeftOut,
    MessageRefused,
    SourceChanged,
)
from culm.ssb.feed_id import feed_id_of, is_feed_id
from culm.ssb.messages import MessageError, read_message
from culm.ssb.peer import (
    FellBack,
    Limits,
    OwnFeedConfirmed,
    Peer,
    PeerConnected,
    PeerDisconnected,
    Timing,
)
from culm.ssb.v8json import JsonValue
from culm_io.asyncio.ssb import DialFailed, PeerDriver
from culm_io.programs.arguments import any_port, count, folder, host, positive
from culm_io.programs.captures import Captures, add_capture
from culm_io.programs.directory.files import load_key
from culm_io.programs.ending import AbsentError, ImpossibleError
from culm_io.programs.locks import StoreFilesError, locked
from culm_io.programs.numbers import Metrics, add_metrics
from culm_io.programs.tables import Bars, Column, Table, Teller, show, size_of
from culm_io.stores.ssb import SsbSqliteStore
from culm_io.stores.ssb_placed import SsbPlacedStore

_STORE = "feeds.sqlite"
_PING_S = 300.0
_SAID_MAX = 300  # characters of a line that are repeated
_VERBS = {  # the content of a contact message
    "follow": ("following", True),
    "unfollow": ("following", False),
    "block": ("blocking", True),
    "unblock": ("blocking", False),
}


say = Teller()


class Bar(Bars):
    """A bar for the messages that have moved, out of all."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(
            Column.SPINNER,
            "{task.description}",
            Column.BAR,
            Column.COUNT,
            "{task.fields[peers]} peers, {task.fields[messages]} messages >\u00a0",
            quiet=quiet,
        )
        self._task = self.add("replicating", peers=0, messages=0)

    def watch(self, peer: Peer) -> None:
        if self.drawn:
            done, total = peer.progress
            messages = sum(peer.clock.values())
            self.show(self._task, done, total or None, peers=len(peer.links), messages=messages)


def contacts(messages: list[bytes]) -> Iterator[tuple[str, str, bool]]:
    """A feed's relations to others, in order: feed id, ``following`` or ``blocking``, whether."""
    for data in messages:
        content = read_message(data).content
        if not isinstance(content, dict) or content.get("type") != "contact":
            continue
        whom = content.get("contact")
        if isinstance(whom, str) and is_feed_id(whom):
            for name in ("following", "blocking"):
                value = content.get(name)
                if isinstance(value, bool):
                    yield whom, name, value


class Pub:
    """The program while it runs."""

    def __init__(
        self,
        options: argparse.Namespace,
        key: SigningKey,
        store: SsbPlacedStore,
        captures: Captures,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._bar = Bar(quiet=options.quiet)
        self._executor = ThreadPoolExecutor(1, "store")
        self._settings = options
        self.peer = captures.tape("ssb-peer").make(
            Peer,
            identity=key,
            stored=store.load(),
            now=self._loop.time(),
            epoch=time.time() - self._loop.time(),
            network=options.network,
            restored=store.restored,
            timing=Timing(ping_s=_PING_S, session_s=options.session_s),
            limits=Limits(links_max=options.links_max),
        )
        for whom, name, value in contacts(store.messages(self.peer.me)):
            self._apply(whom, name, value)
        self._metrics = Metrics.of(options)
        self._driver = PeerDriver(
            self.peer,
            store,
            perform_in=self._executor,
            on_event=self._metrics.counted(self._on_event),
        )

    def _apply(self, whom: str, name: str, value: bool) -> None:
        if whom == self.peer.me:
            return
        if name == "following":
            self.peer.follow(whom, value)
        else:
            self.peer.block(self.peer.me, whom, value)

    async def run(self) -> None:
        """Run until told to end, or until the store fails."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._close)
        address = await self._listen()
        say(event="listening", address=str(address), feed=self.peer.me)
        if self.peer.restored:
            say(event="restored", feed=self.peer.me, sequence=self.peer.clock.get(self.peer.me, 0))
        for each in self._settings.connect:
            self._obey(f"connect {each}")
        Thread(target=self._read_lines, daemon=True).start()
        try:
            async with self._metrics.served("ssb", lambda: measures(self.peer)):
                with self._bar:
                    await self._driver.wait_closed()
        finally:
            self._executor.shutdown()

    async def _listen(self) -> Address:
        host = self._settings.host
        try:
            return await self._driver.listen(host, self._settings.port)
        except gaierror as error:  # which does not say whose name it is
            raise ImpossibleError(f"{host}: {error.strerror}") from error

    def _close(self) -> None:
        self._driver.call(self.peer.close)

    def _settle(self, last: int) -> None:
        self._executor.submit(self._store.settle, last)
        say(event="confirmed", feed=self.peer.me, sequence=last)

    def _heed_feed(self) -> None:
        """Apply new messages of our own feed: it may have come back from others."""
        new = self._store.take_own()
        with suppress(LocalProtocolError):  # all is over
            for whom, name, value in contacts(new):
                self._apply(whom, name, value)

    # Events

    def _on_event(self, event: Event) -> None:
        match event:
            case PeerConnected(peer=peer):
                say(event="connected", peer=peer)
            case PeerDisconnected(peer=peer, error=error):
                say(event="disconnected", peer=peer, error=None if error is None else str(error))
            case FeedExtended(feed=feed, last=last):
                if feed == self.peer.me:
                    self._heed_feed()
                say(event="stored", feed=feed, sequence=last)
            case FeedForked(feed=feed):
                say(event="forked", feed=feed)
            case MessageRefused(feed=feed, peer=peer, sequence=sequence, reason=reason):
                say(event="refused", feed=feed, sequence=sequence, peer=peer, reason=reason)
            case SourceChanged(feed=feed, peer=peer, stalled=stalled):
                say(event="source", feed=feed, peer=peer, stalled=stalled)
            case FeedsLeftOut(peer=peer):
                say(event="feeds left out", peer=peer)
            case DialFailed(address=address, error=error, again_s=again_s):
                say(event="unreachable", address=str(address), error=error, again_s=again_s)
            case OwnFeedConfirmed(last=last):
                self._settle(last)
            case FellBack(peer=peer, reason=reason):
                say(event="fell back", peer=peer, reason=reason.value)
            case StoreFailed(error=error):
                say(event="store failed", error=str(error))
            case Closed():
                say(event="closed")
            case _:
                pass
        self._bar.watch(self.peer)

    # Commands

    def _read_lines(self) -> None:
        """Read commands, in a thread of its own, which may wait for a line for ever."""
        rest, data = b"", b"\n"
        while data:
            data = os.read(0, 1 << 16)
            *lines, rest = (rest + (data or b"\n")).split(b"\n")  # the last one may have none
            for line in lines:
                with suppress(RuntimeError):  # all is over
                    self._loop.call_soon_threadsafe(
                        self._obey, line.decode("utf-8", "replace").strip()
                    )

    def _obey(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        try:
            self._do(verb, rest.strip())
        except (LocalProtocolError, MessageError, ValueError) as error:
            say(event="error", line=line[:_SAID_MAX], error=str(error)[:_SAID_MAX])

    def _do(self, verb: str, rest: str) -> None:
        match verb:
            case "":
                pass
            case "publish":
                self._publish({"type": "post", "text": rest})
            case "follow" | "unfollow" | "block" | "unblock":
                name, value = _VERBS[verb]
                if not is_feed_id(rest) or rest == self.peer.me:
                    raise ValueError(f"{rest!r} is not the id of another feed")
                if self.peer.restored:  # otherwise once it stands on our feed
                    self._driver.call(self._apply, rest, name, value)
                self._publish({"type": "contact", "contact": rest, name: value})
            case "connect":
                self._connect(Address.parse(rest))
            case "confirm":
                self._driver.call(self.peer.confirm)
                self._settle(self.peer.clock[self.peer.me])
            case "status":
                self._tell_status()
            case "quit":
                self._close()
            case _:
                raise ValueError(f"there is no {verb!r}")

    def _connect(self, address: Address) -> None:
        if address.peer == self.peer.me:
            raise ValueError("that is our own key")
        if not self._driver.keep_connected(address):
            raise ValueError("we connect to that address already")

    def _publish(self, content: JsonValue) -> None:
        self._driver.call(self.peer.publish, content)

    def _tell_status(self) -> None:
        if not say.in_words:
            say(event="status", **self._status())
            return
        current, target = self.peer.progress
        feeds = sorted(self.peer.clock.items())
        title = f"{len(self.peer.links)} peers; {current:,} of {target:,} messages have moved"
        mine = {self.peer.me: "ours"}
        rows = [(feed, size_of(count), mine.get(feed, "")) for feed, count in feeds]
        show(Table(title, ("feed", "messages", ""), rows))

    def _status(self) -> dict[str, JsonValue]:
        current, target = self.peer.progress
        return {
            "feed": self.peer.me,
            "links": len(self.peer.links),
            "clock": dict(self.peer.clock),
            "moved": current,
            "to_move": target,
        }


# Commands


def run(options: argparse.Namespace, path: Path) -> None:
    if options.json:
        say.write_json()

    async def serve() -> None:
        await Pub(options, key, placed, captures).run()

    with locked(path), Captures.of(options) as captures:
        key = load_key(path, create=True)
        me = feed_id_of(bytes(key.verify_key))
        with closing(SsbPlacedStore(path, me=me, restored=options.restored)) as placed:
            placed.check_own()
            asyncio.run(serve())


def show_id(options: argparse.Namespace, path: Path) -> None:
    try:
        key = load_key(path, create=False)  # another process may write to the store
    except StoreFilesError:
        with locked(path):
            key = load_key(path, create=True)
    id = feed_id_of(bytes(key.verify_key))
    print(json.dumps({"id": id}) if options.json else id)


def show_messages(options: argparse.Namespace, path: Path) -> None:
    if not path.exists():
        raise AbsentError(f"{path}: there are no feeds")
    with closing(SsbSqliteStore(path)) as store:
        found = store.messages(options.feed)
    if not found:
        raise AbsentError(f"{path}: there are no messages of {options.feed}")
    for number, data in enumerate(found, 1):
        try:
            message = read_message(data)
        except MessageError as error:
            raise ImpossibleError(f"{path}: message {number} is damaged: {error}") from error
        if message.sequence != number or not message.verify():
            raise ImpossibleError(f"{path}: message {number} is damaged")
        print(json.dumps(json.loads(data)))


def feed_name(text: str) -> str:
    if not is_feed_id(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the id of a feed")
    return text


def peer_address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def network_of(text: str) -> bytes:
    with suppress(ValueError):
        if len(key := b64decode(text, validate=True)) == 32:
            return key
    raise argparse.ArgumentTypeError(f"{text!r} is not 32 bytes in base64")


def parser() -> argparse.ArgumentParser:
    epilog = exits(
        {
            ExitStatus.DONE: "done",
            ExitStatus.IMPOSSIBLE: "it cannot be done: wrong arguments, the folder, a port",
            ExitStatus.ABSENT: "there are no messages of that feed",
        },
        endless="run",
    )
    made = argparse.ArgumentParser(
        prog="culm ssb",
        description=__doc__,
        epilog=fill(epilog, 98),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(required=True)

    def command(name: str, do: Callable[[argparse.Namespace, Path], None], purpose: str) -> Any:
        found = commands.add_parser(name, help=purpose, description=purpose, epilog=epilog)
        found.set_defaults(do=do)
        found.add_argument(
            "--dir", type=folder, required=True, help="the folder with the key and the feeds"
        )
        return found

    own = command("id", show_id, "show the id of our own feed")
    own.add_argument("--json", action="store_true", help="write it as JSON, for machines")
    listing = command("messages", show_messages, "show the messages of a feed, as JSON")
    listing.add_argument("--json", action="store_true", help="no change: each is JSON already")
    listing.add_argument(
        "feed", type=feed_name, metavar="FEED", help="the id of the feed: @....ed25519"
    )
    serving = command("run", run, "run a peer until interrupted")
    serving.add_argument("--json", action="store_true", help="write JSON even on a terminal")
    serving.add_argument(
        "--host",
        type=host,
        default="127.0.0.1",
        help="the address to listen on (default: %(default)s)",
    )
    serving.add_argument(
        "--port",
        type=any_port,
        default=8008,
        help="the port to listen on; 0: any free port (default: %(default)s)",
    )
    serving.add_argument(
        "--connect",
        type=peer_address,
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a peer to stay connected to: net:HOST:PORT~shs:KEY (may be repeated)",
    )
    serving.add_argument(
        "--network",
        type=network_of,
        default=MAIN_NETWORK,
        metavar="KEY",
        help="the network's key, in base64 (default: that of the main network)",
    )
    serving.add_argument(
        "--session-s",
        type=positive,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait until a client opens an EBT session (default: %(default)s)",
    )
    serving.add_argument(
        "--links-max",
        type=count,
        default=1024,
        metavar="N",
        help="the most connections at once (default: %(default)s)",
    )
    serving.add_argument(
        "--restored",
        action="store_true",
        help="the feeds come from a backup that cannot be detected: the whole disk was restored",
    )
    add_capture(serving)
    add_metrics(serving)
    serving.add_argument("--quiet", action="store_true", help="draw no bar")
    return made


def main(words: Sequence[str] | None = None) -> ExitStatus:
    options = parser().parse_args(words)
    try:
        if options.do is not show_messages:
            options.dir.mkdir(parents=True, exist_ok=True)
        options.do(options, options.dir / _STORE)
    except StoreFilesError as error:
        raise ImpossibleError(str(error)) from error
    except sqlite3.Error as error:
        raise ImpossibleError(f"{options.dir / _STORE}: {error}") from error
    return ExitStatus.DONE
