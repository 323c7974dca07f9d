"""Worlds in which a host's follows and blocks are messages of its own feed, as in a program.

It obeys that feed at its start, and whenever some of it is stored, from whatever source.  A folder
restored from a backup therefore brings earlier follows and blocks, and later ones return with the
feed; nothing is written before the feed is confirmed.  All this may happen at any moment, beside
kills, lost memories, and hosts that do not listen.
"""

from __future__ import annotations

import json
from typing import Any

from ebt_memories import SESSIONS_MAX, Disk, Memories
from ebt_support import Host, feed

from culm.ssb.peer.peer import OwnFeed

CONFIRM_S = 30.0


class Life(Host):
    """A host that obeys its own feed."""

    def __init__(self, me: str, store: Disk, *, restored: bool, **options: Any) -> None:
        super().__init__(me, store, **options)
        self.me = me
        self.done = 0  # messages of its own feed that it has obeyed
        self.own = OwnFeed(self.machine, restored=restored, confirm_s=CONFIRM_S, now=self.now)
        self.machine.follow(me)
        self.drain()

    def drain(self) -> None:
        super().drain()
        while self._heed():
            super().drain()
        if self.own.restored:
            self.own.look()

    def _heed(self) -> bool:
        stored = self.machine.stored(self.me)
        if self.done == stored:
            return False
        for verb, whom in words(self.store.messages(self.me)[self.done : stored]):
            if verb in ("follow", "unfollow"):
                self.machine.follow(whom, verb == "follow")
            elif verb in ("block", "unblock"):
                self.machine.block(self.me, whom, verb == "block")
        self.done = stored
        return True


def words(messages: list[bytes]) -> list[tuple[str, str]]:
    """The verbs of these messages, each with the feed it is about."""
    texts = [json.loads(data)["content"]["text"].partition(" ") for data in messages]
    return [(verb, whom) for verb, _, whom in texts]


def standing(messages: list[bytes], yes: str, no: str) -> set[str]:
    """The feeds that a feed's messages follow, or block, in the end."""
    found: set[str] = set()
    for verb, whom in words(messages):
        if verb in (yes, no):
            (found.add if verb == yes else found.discard)(whom)
    return found


class Lives(Memories):
    """One world; every host is an author."""

    def __init__(self, seed: int, *, hosts_max: int = 5) -> None:
        self.restored: set[str] = set()
        super().__init__(seed, hosts_max=hosts_max, authors_max=hosts_max)
        for name in self.names:
            for other in self.names:
                if name != other and self.rng.random() < 0.8:
                    self.say(name, f"follow {feed(other)}")
            self.back_up(name)

    def _new(self, name: str) -> Host:
        store = self.stores[name]
        if not isinstance(store, Disk):
            return super()._new(name)  # a new host with its disk follows everything
        host = Life(feed(name), store, restored=name in self.restored, now=self.now)
        host.drain()
        return host

    def life(self, name: str) -> Life:
        host = self.hosts[name]
        assert isinstance(host, Life)
        if not host.own.restored:
            self.restored.discard(name)
        return host

    # Events

    def live(self, steps: int) -> Lives:
        """After all faults, further messages take effect in the existing sessions.

        Sessions that an unblock has made possible again may be as many as others.
        """
        super().live(steps)
        actions = [self.deliver] * 10 + [self.publish, self.follow, self.unfollow]
        actions += [self.block, self.unblock]
        for _ in range(steps):
            self.rng.choice(actions)()
        lasting = set(self.wires)
        self.rest()
        self.rounds = 1
        while self.rounds < SESSIONS_MAX and set(self.wires) - lasting and not self.is_level():
            for edge in set(self.wires) - lasting:
                self._cut(edge)
            self.rest()
            self.rounds += 1
        return self.check()

    def rest(self) -> None:
        """Time passes until nothing moves, with every allowed connection open."""
        for edge in self.edges:
            self.connect(edge)
        for _ in range(6):
            self.drain()
            self._wait(1.0)
        self._wait(CONFIRM_S + 1.0)
        self.drain()

    def actions(self) -> list[Any]:
        return [*super().actions(), self.block, self.unblock, self.unblock]

    def say(self, name: str, text: str) -> None:
        """Write to one's own feed, if no other host can have more of it."""
        lengths = [len(store.messages(feed(name))) for store in self.stores.values()]
        if self.life(name).own.restored or len(self.stores[name].messages(feed(name))) < max(
            lengths
        ):
            return
        self.hosts[name].write(feed(name), 1, text)
        self.flush(name)

    def write(self, author: str) -> None:
        self.say(author, str(self.rng.random()))

    def publish(self) -> None:
        self.write(self.rng.choice(self.names))

    def _choose(self, value: bool) -> None:
        self._say_of_another("follow" if value else "unfollow")

    def block(self) -> None:
        if self.rng.random() < 0.3:
            self._say_of_another("block")

    def unblock(self) -> None:
        self._say_of_another("unblock")

    def _say_of_another(self, verb: str) -> None:
        name, other = self.rng.sample(self.names, 2)
        self.say(name, f"{verb} {feed(other)}")

    def connect(self, edge: tuple[str, str]) -> None:
        if not any(self._blocks(*pair) for pair in (edge, edge[::-1])):
            super().connect(edge)

    def _blocks(self, name: str, other: str) -> bool:
        return self.hosts[name].machine.blocks(feed(name), feed(other))

    def came_back(self, name: str) -> None:
        self.restored.add(name)

    def _wait(self, seconds: float) -> None:
        super()._wait(seconds)
        for name in self.names:
            self.life(name).own.advance(self.now)
            self.hosts[name].drain()

    # Results

    def settle(self) -> Lives:
        """Every session mentions the own feed, so one is enough to confirm it."""
        for edge in list(self.wires):
            self._cut(edge)
        self.rest()
        self._check_confirmed()
        super().settle()
        return self

    def readers(self, author: str) -> set[str]:
        self.follows = {
            name: {other for other in self.names if other == name or self._follows(name, other)}
            for name in self.names
        }
        return super().readers(author)

    def _follows(self, name: str, other: str) -> bool:
        return self.hosts[name].machine.follows(feed(other))

    def check(self) -> Lives:
        super().check()
        for name in self.names:
            self._check_what_stands(name)
        self._check_confirmed()
        return self

    def _check_confirmed(self) -> None:
        for name in self.names:
            if self.life(name).own.restored:
                assert not self._friends(name), f"{name} is not confirmed"

    def _check_what_stands(self, name: str) -> None:
        messages = self.stores[name].messages(feed(name))
        followed = standing(messages, "follow", "unfollow") | {feed(name)}
        assert set(self.hosts[name].machine.followed) == followed
        blocked = {feed(other) for other in self.names if self._blocks(name, other)}
        assert blocked == standing(messages, "block", "unblock")

    def _friends(self, name: str) -> set[str]:
        """Its neighbours that follow it, and that it follows."""
        others = {wire.other(name) for edge, wire in self.wires.items() if name in edge}
        return {each for each in others if self._follows(name, each) and self._follows(each, name)}
