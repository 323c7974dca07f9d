"""Epidemic Broadcast Trees: ``ssb-ebt``, a replicator whose links carry lines of JSON.

Members of a meeting are named by words, from which their feeds' ids are made; verbs also take
words.  ``dial`` asks for a connection, ``dialled`` and ``accepted`` open links, ``publish``
appends messages to the machine's own feed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from culm.machines import Codec, Config, Dialling, Key, MachineType, call, keys_of, register
from culm.machines.encodings import DECIMAL
from culm.machines.machine_type import close_link
from culm.machines.messages import lines
from culm.machines.ssb_lines import DialWanted, LineLink, ReplicatorOverLines, feed, next_message
from culm.ssb.ebt import Limits, LoadClock, PeerClock, ReadMessages, Replicator, SessionRole, Timing
from culm.ssb.store import MemoryStore

_LIMITS, _TIMING = keys_of(Limits), keys_of(Timing)

_NAMES = {feed(name): name for name in ("alice", "bob", "carol", "dave", "eve")}


def _build(config: Config) -> ReplicatorOverLines:
    machine = ReplicatorOverLines(
        feed(config["me"]),
        now=0.0,
        timing=Timing(**{key.name: config[key.name] for key in _TIMING}),
        limits=Limits(**{key.name: config[key.name] for key in _LIMITS}),
    )
    for name in config["follows"]:
        machine.follow(feed(name), True)
    return machine


def _follow(machine: ReplicatorOverLines, name: str, value: bool = True) -> None:
    machine.follow(feed(name), value)


def _block(machine: ReplicatorOverLines, author: str, target: str, value: bool = True) -> None:
    machine.block(feed(author), feed(target), value)


def _publish(machine: ReplicatorOverLines, text: str) -> None:
    machine.append(next_message(machine.me, machine.head(machine.me), text))


def _dial(machine: ReplicatorOverLines, name: str) -> None:
    machine.dial(feed(name))


def _dialled(machine: ReplicatorOverLines, name: str) -> LineLink:
    return machine.open(SessionRole.CLIENT, feed(name))


def _accepted(machine: ReplicatorOverLines) -> LineLink:
    return machine.open(SessionRole.SERVER, None)


def dialling(names: Mapping[str, str]) -> Dialling:
    """Connections between members of a meeting; `names` maps feeds to their names."""
    return Dialling(
        wanted=lambda event: (
            names.get(event.peer, "nobody") if isinstance(event, DialWanted) else None
        ),
        made=lambda name: call("dialled", name=name),
        failed=lambda name: call("dial_failed", name=name),
        accepted=call("accepted"),
    )


def dial_failed(machine: object, name: str) -> None:
    """Ignore that a member could not be reached: SSB machines have no call for it."""


def peer_clock(plain: Any) -> PeerClock:
    """The answer to `LoadClock`, from its plain form."""
    fields = plain["fields"]
    sets = {name: frozenset(fields.get(name, ())) for name in ("refused", "distrusted")}
    return PeerClock(**fields | sets)


MEMBER_KEYS = (
    Key(name="me", type=str, default="alice", meaning="Whose peer it is, by a word."),
    Key(
        name="follows",
        type=list,
        default=("alice", "bob"),
        meaning="The feeds that it follows, by words.",
    ),
)

EBT = register(
    MachineType(
        name="ssb-ebt",
        build=_build,
        keys=(*MEMBER_KEYS, *_TIMING, *_LIMITS),
        verbs={
            "follow": _follow,
            "block": _block,
            "publish": _publish,
            "dial": _dial,
            "dialled": _dialled,
            "dial_failed": dial_failed,
            "accepted": _accepted,
            "close_link": close_link,
        },
        respond=lambda config: MemoryStore().perform,
        dialling=dialling(_NAMES),
        helpers=(Replicator,),
        codec=Codec(
            encodings=[DECIMAL],
            messages=lines,
            results={LoadClock: peer_clock, ReadMessages: tuple},
        ),
    )
)
