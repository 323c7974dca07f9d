"""Oxen: a cluster of three, from each node's side, and attacks by hostile peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from culm.machine import Effect, Event
from culm.machines import Config, ReceiveDatagram, call
from culm.machines.oxen import EPOCH, NAMES, OXEN
from culm.oxen import MessageReceived, Node
from culm.oxen.messages import (
    Gossip,
    MessageData,
    OneToOne,
    Parcel,
    Piece,
    Position,
    Synchronize,
    Tags,
    decode_parcel,
    encode_parcel,
    read_message,
    write_message,
)
from culm.testing.cluster import Cluster
from culm.testing.contents import BENCODE
from culm.testing.network import Conditions, Network
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Comparison,
    Conversation,
    Flood,
    Frame,
    MachineSpec,
    Usage,
    Work,
)

__all__ = ["recorded"]

TIGHT: Mapping[str, Any] = {
    "datagram_size_max": 240,
    "sid_size_max": 8,
    "peers_max": 3,
    "candidates_max": 1,
    "queue_max": 4,
    "window_max": 2,
    "inbox_size_max": 1024,
    "outbox_max": 8,
    "forwards_max": 4,
    "message_size_max": 600,
    "assemblies_max": 2,
    "tags_size_max": 24,
}

# The growing parts: up to three peers and three tombstones with their contents (windows, and for
# peers a queue), the fixed part of each, the inbox, the outbox and the memory of forwarded parcels;
# a message costs up to 500 bytes besides its payload, a peer 5,000.  The last message in each queue
# may have five pieces more, and two are put together, with a quarter to spare.  Tags of 24 bytes
# are up to 5, of 200 bytes each: ours, on their way to each peer, and those of others.
_RETAINED_MAX = (
    3 * (9 * 740 + 5000) + 6 * 2 * 2 * 340 + 1024 + 8 * 900 + 4 * 400 + 2 * 750 + 10 * 5 * 200
)

# Twice the measured cost: a turn in which every peer gets something costs up to 900 steps; a
# message from a server that has left, which is to be forwarded, 2,000 for its 73 bytes.
_WORK = Work(base=2000, per_byte=30)

Story = Callable[[Cluster], None]


def _made(config: Config) -> Node:
    machine = OXEN.make(config)
    assert isinstance(machine, Node)
    return machine


def recorded(name: str, story: Story, *, seed: int = 0, **config: Any) -> list[Conversation]:
    """The sides of three nodes in `story`, built from `config`."""
    configs = {
        sid: {"me": sid, "seed": index, "epoch": EPOCH, **config} for index, sid in enumerate(NAMES)
    }
    conditions = Conditions(delay_min=0.001, delay_max=0.02)
    cluster = Cluster(Network(seed=seed, conditions=conditions), records=True)
    for sid in NAMES:
        cluster.add(sid, lambda host: _made(configs[host.address]))  # type: ignore[index]
    with cluster:
        story(cluster)
    return [
        cluster[sid].conversation(f"{name}/{sid.decode()}", configs[sid])
        for sid in NAMES
        if cluster[sid].running
    ]


def _assemble(cluster: Cluster) -> None:
    one, two, three = (cluster[sid] for sid in NAMES)
    one.call("start")
    two.call("join", sid=one.address)
    three.call("join", sid=one.address)
    cluster.run(3.0)


def _everything(cluster: Cluster) -> None:
    """Every request, over good links and around a broken one, and a goodbye."""
    _assemble(cluster)
    one, two, three = (cluster[sid] for sid in NAMES)
    for number in range(3):
        one.call("send_in_order", to=two.address, data=b"one %d" % number)
        two.call("broadcast_in_order", data=b"all %d" % number)
    three.call("send", to=one.address, data=b"any")
    three.call("broadcast", data=b"lost, perhaps", acknowledged=False)
    two.call("broadcast", data=b"any")
    cluster.network.cut(one.address, two.address)
    cluster.run(28.0)
    one.call("send_in_order", to=two.address, data=b"around")
    cluster.run(30.0)
    three.call("leave")
    cluster.run(31.0)


def _misfortune(cluster: Cluster) -> None:
    """Loss, a give-up and a return."""
    _assemble(cluster)
    one, two, three = (cluster[sid] for sid in NAMES)
    cluster.network.set_conditions(Conditions(loss=0.3, duplication=0.3, delay_max=0.1))
    for number in range(6):
        one.call("broadcast_in_order", data=b"%d" % number)
        cluster.run(3.5 + number / 10)
    cluster.network.partition([one.address], [two.address, three.address])
    one.call("send", to=three.address, data=b"in vain")
    cluster.run(20.0)
    cluster.network.heal()
    cluster.network.set_conditions(Conditions())
    cluster.run(26.0)
    two.call("send_in_order", to=one.address, data=b"there again")
    cluster.run(27.0)


def _large(cluster: Cluster) -> None:
    """Messages in pieces, to one peer and to all, over lossy links; then a node leaves."""
    _assemble(cluster)
    one, two, three = (cluster[sid] for sid in NAMES)
    cluster.network.set_conditions(Conditions(loss=0.1, reordering=0.3, delay_max=0.1))
    for number in range(3):
        one.call("send_in_order", to=two.address, data=b"%d" % number * (200 + 200 * number))
        two.call("send_in_order", to=one.address, data=b"%d" % number * (580 - 200 * number))
        three.call("broadcast_in_order", data=b"%d" % number * (100 + 220 * number))
    cluster.run(8.0)
    three.call("send_in_order", to=one.address, data=bytes(600))
    two.call("leave")
    cluster.run(12.0)


def _tagged(cluster: Cluster) -> None:
    """Tags that change while some datagrams are lost, and messages to groups."""
    one, two, three = (cluster[sid] for sid in NAMES)
    one.call("set_tags", tags={"role": "db", "hall": ""})
    _assemble(cluster)
    cluster.network.set_conditions(Conditions(loss=0.2, duplication=0.2, reordering=0.3))
    for number in range(3):
        two.call("set_tags", tags={"load": str(number)})
        three.call("join_group", group="hall")
        one.call("send_to_group", group="hall", data=b"%d" % number)
        cluster.run(4.0 + number)
        three.call("send_to_group", group="hall", data=b"%d" % number)
        three.call("leave_group", group="hall")
    cluster.run(10.0)
    two.call("set_tags", tags={})
    two.call("leave")
    cluster.run(14.0)


def _rekeyed(cluster: Cluster) -> None:
    """In a cluster with a key, which is replaced."""
    _assemble(cluster)
    for keys in ([_KEY, _NEXT_KEY], [_NEXT_KEY, _KEY], [_NEXT_KEY]):
        for sid in NAMES:
            cluster[sid].call("rekey", keys=keys)
        cluster[NAMES[0]].call("broadcast_in_order", data=b"%d" % len(keys))
        cluster.run(cluster.network.clock.now + 1.0)
    cluster[NAMES[1]].call("leave")
    cluster.run(cluster.network.clock.now + 2.0)


_KEY, _NEXT_KEY = bytes(range(32)), bytes(range(32, 64))

_LARGE = {"datagram_size_max": 240, "sid_size_max": 8, "message_size_max": 600}

_QUICK = {"keepalive_s": 1.0, "usable_s": 4.0, "give_up_s": 5.0, "leave_s": 5.0}


def _received(result: Effect[Any] | Event) -> list[MessageReceived]:
    return [result] if isinstance(result, MessageReceived) else []


def _waiting(size: int) -> Conversation:
    """`size` messages wait for their turn, from a node and to it."""

    def story(cluster: Cluster) -> None:
        _assemble(cluster)
        one, two, _ = (cluster[sid] for sid in NAMES)
        for number in range(size):
            one.call("send_in_order", to=two.address, data=b"%d" % number)
            two.call("send_in_order", to=one.address, data=b"%d" % number)
        cluster.run(60.0)

    return recorded("messages that wait", story, queue_max=size)[0]


def _conversations(spec: MachineSpec) -> Iterable[Conversation]:
    yield from recorded("everything", _everything)
    yield from recorded("flat", _everything, dialect="flat")
    yield from recorded("misfortune", _misfortune, seed=1, **_QUICK)
    yield from recorded("suspicion", _misfortune, seed=3, **_QUICK, suspect_s=1.5)
    yield from recorded("large", _large, seed=2, **_LARGE)
    yield from recorded("rekeyed", _rekeyed, key=_KEY)
    yield from recorded("tagged", _tagged, seed=4, tags_size_max=60)
    yield from recorded("tagged, flat", _tagged, dialect="flat", tags_size_max=60)


def _numbered(message: Callable[[int], MessageData]) -> Callable[[int], bytes]:
    return lambda number: encode_parcel(Parcel(None, None, message(number)))


def _sid(number: int) -> bytes:
    return b"x%d" % number


@cache
def _last_number() -> int:
    """The last number from the second node to the first, in the story of large messages."""
    told, *_ = recorded("large", _large, seed=2, **_LARGE)
    numbers = [0]
    for operation in told.operations:
        if isinstance(operation, ReceiveDatagram) and operation.source == NAMES[1]:
            body = decode_parcel(operation.data).body
            message = read_message(body.d) if isinstance(body, MessageData) else None
            if isinstance(message, OneToOne | Piece):
                numbers.append(message.sequence)
    return max(numbers)


def _piece(number: int, position: Position) -> MessageData:
    sequence = _last_number() + 1 + number
    message = Piece(b"1", sequence, position, bytes(120))
    return MessageData(NAMES[0], NAMES[1], number, write_message(message))


@cache
def _first_number() -> int:
    """The first number that the second node uses to the first, in the story of tags."""
    told, *_ = recorded("tagged", _tagged, seed=4, tags_size_max=60)
    numbers = [0]
    for operation in told.operations:
        if isinstance(operation, ReceiveDatagram) and operation.source == NAMES[1]:
            body = decode_parcel(operation.data).body
            message = read_message(body.d) if isinstance(body, MessageData) else None
            if isinstance(message, Synchronize):
                numbers.append(message.one)
    return max(numbers)


_FLOODS = (
    Flood(  # tags that change without end
        unit=_numbered(
            lambda number: MessageData(
                NAMES[0],
                NAMES[1],
                number,
                write_message(Tags(_first_number(), 100 + number, {"load": str(number)})),
            )
        ),
        after="tagged/AAA",
        source=lambda number: NAMES[1],
    ),
    Flood(  # a message that never ends
        unit=_numbered(lambda n: _piece(n, Position.MIDDLE if n else Position.FIRST)),
        after="large/AAA",
        source=lambda number: NAMES[1],
    ),
    Flood(  # beginnings, between which one is missing
        unit=_numbered(lambda n: _piece(n + n // 2, Position.FIRST)),
        after="large/AAA",
        source=lambda number: NAMES[1],
    ),
    Flood(  # unknown servers ask to be known
        unit=_numbered(
            lambda number: MessageData(
                NAMES[0], _sid(number), number, write_message(Synchronize(0, number << 30))
            )
        ),
        after="everything/AAA",
        source=lambda number: NAMES[1],
    ),
    Flood(  # or are mentioned by others
        unit=lambda number: encode_parcel(
            Parcel(None, None, Gossip({NAMES[1]: [EPOCH + 31]}, [_sid(number)]))
        ),
        after="everything/AAA",
        source=lambda number: NAMES[1],
    ),
    Flood(  # messages in order whose first never comes
        unit=_numbered(
            lambda number: MessageData(
                NAMES[0],
                NAMES[1],
                number,
                write_message(OneToOne((2**62 + number) % 2**63, bytes(150))),
            )
        ),
        after="everything/AAA",
        source=lambda number: NAMES[1],
    ),
    Flood(  # messages to be forwarded
        unit=_numbered(lambda number: MessageData(NAMES[1], _sid(number), number, bytes(150))),
        after="everything/CCC",
        source=_sid,
    ),
    Flood(  # questions from everywhere
        unit=lambda number: encode_parcel(Parcel(ka=number)),
        after="everything/AAA",
        source=_sid,
    ),
)

_NUMBER_MAX = 2**63 - 1

_BOMBS = (
    b"l" * 1200,  # lists in lists
    b"d1:a" * 300,
    b"l" + b"le" * 600 + b"e",
    b"d" + b"1:a1:b" * 200 + b"e",  # the same key over and over
    b"d2:kai%deee" % _NUMBER_MAX,
    b"d2:kai%deee" % (_NUMBER_MAX + 1),
    b"i" + b"9" * 1200 + b"e",
    *(b"%d:" % size for size in (2**31 - 1, _NUMBER_MAX, 2**64)),
    b"9" * 1200 + b":",
    b"d2:ka%d:" % _NUMBER_MAX,
    b"t%d.999999999e" % _NUMBER_MAX,
    encode_parcel(Parcel(_NUMBER_MAX, _NUMBER_MAX, Gossip({}, []))),
    encode_parcel(
        Parcel(
            None,
            None,
            MessageData(NAMES[0], NAMES[1], _NUMBER_MAX, write_message(Synchronize(0, 2**62))),
        )
    ),
)

SPEC = register(
    MachineSpec(
        machine=OXEN,
        bounds=Bounds(
            retained_max=_RETAINED_MAX,
            work=_WORK,
            tight=TIGHT,
        ),
        usage=Usage(
            growth={"messages that wait": _waiting},
            conversations=_conversations,
            bad_calls=[
                call("start"),
                call("join", sid=b""),
                call("join", sid=b"x" * 33),
                call("join", sid=NAMES[0]),
                call("send", to=b"nobody", data=b""),
                call("send", to=NAMES[1], data=bytes(2000)),
                call("send_in_order", to=NAMES[0], data=b"to itself"),
                call("broadcast", data=bytes(2000)),
                call("broadcast_in_order", data=bytes(2000)),
                call("send_in_order", to=NAMES[1], data=bytes(601)),
                call("rekey", keys=[bytes(32)]),
                call("set_tags", tags={"name": "x" * 60}),
                call("join_group", group="x" * 60),
                call("send_to_group", group="x", data=bytes(2000)),
            ],
        ),
        attacks=Attacks(
            bombs=_BOMBS,
            frames=tuple(
                Frame(
                    name=name,
                    wrap=lambda content, head=head, tail=tail: head + content + tail,  # type: ignore[misc]
                    contents=BENCODE,
                    size=1100,
                    refused=not head,  # a parcel must be a dictionary
                    after="everything/AAA",
                    source=NAMES[1],
                )
                for name, head, tail in (
                    ("a datagram", b"", b""),
                    ("a field that nobody knows", b"d1:a", b"2:kai1ee"),
                    ("a message", b"d2:kai1e2:mdd1:d", b"2:fr3:BBB2:idi7e2:to3:AAAee"),
                )
            ),
            floods=_FLOODS,
        ),
        # Answers to several datagrams at once have other numbers than those to each alone, and the
        # recorded peer's later messages answer the numbers of its own time.
        comparison=Comparison(kept=_received, is_answer=lambda message: True),
    )
)
