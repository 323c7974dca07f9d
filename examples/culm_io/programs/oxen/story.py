"""The story of ``culm oxen demo``: processes that meet, lose each other, and part."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from culm.oxen import PeerState
from culm_io.command import command_of
from culm_io.programs.ports import HOST, free_ports
from culm_io.programs.tables import Screen, Table

__all__ = ["HOST", "Member", "Story"]

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal")


class Member:
    """One process of the cluster, as the narrator sees it."""

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
        command = command_of("oxen", "node", self.port, "--json")
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
        ports = free_ports(count, kind=socket.SOCK_DGRAM)
        self.members = [Member(port, names[n], pace) for n, port in enumerate(ports)]
        self._names = {str(member.port): member.name for member in self.members}
        self._told: list[str] = []
        self.step = ""
        self.seconds: dict[str, float] = {}
        self._lives: dict[tuple[int, int], int] = defaultdict(int)
        self._as_json = as_json
        self._screen = Screen()

    async def tell(self) -> dict[str, Any]:
        """The story; returns its summary.  Raises `TimeoutError` if it gets stuck."""
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
        """Messages of two go through a third, until they reach each other again."""
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
        """Tell the story, in words."""
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
        """Which members reach which, and by which way."""
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
