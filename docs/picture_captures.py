"""Takes the pictures of the viewer that the docs show: ``python docs/picture_captures.py``.

It needs what ``browse_site.py`` needs.  The conversation is made here: two machines, each under a
pump, over a network of 20 ms that is made up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from browse_site import chromium
from playwright.sync_api import Browser, Page

from culm.capture import Recorder, read
from culm.capture.view import page
from culm.machines import lookup
from culm.pump import Pump

BEGAN = 1_764_259_200.0
WINDOW, TELEPHONE = (1440, 900), (390, 844)
SCHEMES = {"light": "", "dark": "-dark"}

Call = Callable[[], object]


@dataclass
class Network:
    """A virtual clock, and bytes on their way."""

    latency_s: float = 0.02
    rng: Random = field(default_factory=lambda: Random(7))
    now: float = 0.0
    _queue: list[tuple[float, int, Call]] = field(default_factory=list)
    _count: Any = field(default_factory=count)

    def later(self, seconds: float, call: Call) -> None:
        heappush(self._queue, (self.now + seconds, next(self._count), call))

    def run(self, until: float) -> None:
        """Carry out what is due, in order."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, call = heappop(self._queue)
            call()


class End:
    """One end of a connection: a machine under a pump, recorded."""

    def __init__(self, name: str, machine: str, config: Mapping[str, Any], network: Network):
        self.pieces: list[bytes] = []
        self._network = network
        kind = lookup(machine)
        self.recorder = Recorder(
            self.pieces.append,
            machine=machine,
            config=config,
            session=name,
            clock=lambda: network.now,
            began=BEGAN,
        )
        store = kind.store(config)
        self.pump = Pump(
            kind.make(config), perform=store, tap=self.recorder.stand_in, wake=self.look
        )
        self.peer: End
        self._arrives = 0.0

    def meet(self, peer: End) -> None:
        self.peer = peer
        self.pump.connection_made(self._network.now)

    def look(self) -> None:
        """Send what there is; come back when the machine is due."""
        network, pump = self._network, self.pump
        if not hasattr(self, "peer"):
            return
        while pump.outgoing:
            data = bytes(pump.outgoing[:600])
            self._send(lambda data=data: self.peer.pump.receive_data(data, network.now), len(data))
            pump.sent(len(data), network.now)
        if pump.eof_to_send:
            self._send(lambda: self.peer.pump.receive_eof(network.now), 0)
            pump.eof_sent(network.now)
        due = pump.next_deadline()
        if due is not None:
            network.later(max(0.0, due - network.now), self._advance)

    def _advance(self) -> None:
        due = self.pump.next_deadline()
        if due is not None and due <= self._network.now:
            self.pump.advance(self._network.now)

    def _send(self, call: Call, size: int) -> None:
        network = self._network
        takes = network.latency_s * (1 + 0.4 * network.rng.random()) + size / 1e5
        self._arrives = max(self._arrives, network.now + takes)
        network.later(self._arrives - network.now, call)

    def capture(self) -> bytes:
        self.recorder.flush()
        return b"".join(self.pieces)


def conversation(
    machine: str, left: Mapping[str, Any], right: Mapping[str, Any], *, until: float = 5.0
) -> tuple[End, End, Network]:
    """Two machines that have met, and have had so many seconds."""
    network = Network()
    ends = End("alice", machine, left, network), End("bob", machine, right, network)
    ends[0].meet(ends[1])
    ends[1].meet(ends[0])
    for end in ends:
        end.look()
    network.run(until)
    return *ends, network


def shown() -> str:
    """The page of two replicators of which one gets a byte that is none of the protocol's."""
    alice, bob, network = conversation(
        "point2point-replicator",
        {"role": "PROACTIVE", "entries": 9},
        {"role": "REACTIVE", "entries": 0},
    )
    network.now += 0.4
    bob.pump.receive_data(b"\xff\xfe\xfd", network.now)
    network.run(network.now + 3)
    captures = {
        name: partial(read, end.capture()) for name, end in (("alice", alice), ("bob", bob))
    }
    return page(captures)


def pictured(browser: Browser, path: Path, size: tuple[int, int], scheme: str) -> Page:
    """The page in a window, ready."""
    width, height = size
    opened = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=2 if size == TELEPHONE else 1,
    )
    opened.goto(path.as_uri())
    opened.wait_for_selector("[data-ready]", state="attached")
    return opened


def main(pictures: Path) -> int:
    """Take all pictures; returns the exit status."""
    with TemporaryDirectory() as folder, chromium() as browser:
        if browser is None:
            print("there is no browser")
            return 1
        target = Path(folder) / "page.html"
        target.write_text(shown(), encoding="utf-8")
        for scheme, suffix in SCHEMES.items():
            opened = pictured(browser, target, WINDOW, scheme)
            opened.fill("#search", "PROPOSE")
            opened.press("#search", "Enter")
            opened.locator(".fields .row", has_text="expected_hash").click()
            opened.screenshot(path=pictures / f"capture-viewer{suffix}.png")
            opened = pictured(browser, target, TELEPHONE, scheme)
            opened.click("#fault")
            opened.screenshot(path=pictures / f"capture-telephone{suffix}.png")
    return 0


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("pictures")
    sys.exit(main(Path(where)))
