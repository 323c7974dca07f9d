"""Hypothesis strategies over conversations: cuts, mutations, sizes.

They are functions of ``draw``, so that a property reads as a story from top to bottom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from culm.machines.encodings import EXTREMES
from culm.machines.operations import Call, Operation, Receive, ReceiveDatagram
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]
Story = list[Operation]
_Mutation = Callable[[Story, int, list[int], Draw], None]

_MUTATIONS_MAX = 3
_FAT = b"\xff" * 9  # the biggest claim that a length of most encodings can make


def conversation(spec: MachineSpec, draw: Draw) -> Conversation:
    """One of the machine's valid conversations."""
    return pick(conversations(spec), draw)


def tightened(spec: MachineSpec, told: Conversation, draw: Draw) -> Conversation:
    """The conversation with its own config or the tight one, where limits may apply."""
    if not spec.bounds.tight or draw(st.booleans()):
        return told
    return replace(told, config={**told.config, **spec.bounds.tight})


def pick(items: Sequence[T], draw: Draw) -> T:
    """One of `items`."""
    index: int = draw(st.integers(0, len(items) - 1))
    return items[index]


def links_in(told: Conversation) -> list[int]:
    """The links on which bytes arrive."""
    return sorted({op.link for op in told.operations if isinstance(op, Receive) and op.link})


def ways_in(told: Conversation) -> list[Receive | ReceiveDatagram]:
    """The ways in, each as an empty input: the stream, links, sources of datagrams."""
    heard = (op for op in told.operations if isinstance(op, (Receive, ReceiveDatagram)))
    return list(dict.fromkeys(replace(op, data=b"") for op in heard))


def chunks(data: bytes, draw: Draw, *, single_max: int | None = None) -> list[bytes]:
    """`data` cut byte by byte or at random places.

    single_max: most bytes that come one by one, somewhere in `data`; ``None`` for all.
    """
    if len(data) < 2:
        return [data]
    last = len(data) - 1
    if draw(st.booleans()):
        single, start = last, 1
        if single_max is not None and single_max < last:
            single, start = single_max, draw(st.integers(1, 1 + last - single_max))
        cuts = list(range(start, start + single))
    else:
        cuts = sorted(draw(st.sets(st.integers(1, last), max_size=12)))
    return [data[i:j] for i, j in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def sizes(draw: Draw) -> list[int]:
    """Some positive sizes of pieces."""
    magnitudes = st.one_of(st.integers(1, 8), st.integers(1, 1 << 16))
    chosen: list[int] = draw(st.lists(magnitudes, min_size=1, max_size=6))
    return chosen


def cut_short(operations: Sequence[Operation], draw: Draw) -> Story:
    """The beginning of a story, perhaps up to the middle of a message."""
    size: int = draw(st.integers(0, len(operations)))
    story = list(operations[:size])
    if size < len(operations) and isinstance(following := operations[size], Receive):
        size = draw(st.integers(0, len(following.data)))
        story.append(replace(following, data=following.data[:size]))
    return story


def _hurried(operations: Sequence[Operation], draw: Draw) -> Story:
    """The story of a peer that waits for nothing: its bytes come at once."""
    places = [i for i, operation in enumerate(operations) if isinstance(operation, Receive)]
    if not places:
        return list(operations)
    first = pick(places, draw)
    hasty = operations[first]
    assert isinstance(hasty, Receive)
    rest: Story = []
    data = b""
    for operation in operations[first:]:
        if isinstance(operation, Receive) and operation.link == hasty.link:
            data += operation.data
        else:
            rest.append(operation)
    hasty = replace(hasty, data=data * draw(st.integers(1, 3)))
    return [*operations[:first], hasty, *rest]


def variant(operations: Sequence[Operation], draw: Draw) -> Story:
    """The story unchanged, hurried, mutated or both."""
    story = _hurried(operations, draw) if draw(st.booleans()) else list(operations)
    return mutated(story, draw) if draw(st.booleans()) else story


def hostile(spec: MachineSpec, told: Conversation, draw: Draw) -> Story:
    """The story of a hostile peer, perhaps after an unexpected action of the user.

    It has extreme numbers or bombs, or is mutated; at some moment before that the user may
    interrupt, or make any call of the spec's conversations.
    """
    story = variant(told.operations, draw)
    start = draw(st.integers(0, max(_places(story), default=0)))
    before, after = story[:start], story[start:]
    if draw(st.booleans()):
        before.append(pick(spec.usage.interruptions, draw))
    elif draw(st.booleans()) and (calls := calls_in(spec)):
        before.append(pick(calls, draw))
    malice = draw(st.integers(0, 2))
    for _ in range(draw(st.integers(1, _MUTATIONS_MAX)) if malice else 0):
        ways = ways_in(told)
        if spec.attacks.bombs and ways and draw(st.booleans()):
            bomb = _changed(pick(ways, draw), pick(spec.attacks.bombs, draw))
            at = draw(st.integers(0, len(after)))
            after.insert(at, bomb)
        else:
            _make_extreme(spec, after, draw)
    return [*before, *(after if malice == 1 else mutated(after, draw))]


def calls_in(spec: MachineSpec) -> list[Operation]:
    """The different calls in the machine's conversations."""
    calls: list[Operation] = []
    for told in conversations(spec):
        calls += [op for op in told.operations if isinstance(op, Call) and op not in calls]
    return calls


def _make_extreme(spec: MachineSpec, story: Story, draw: Draw) -> None:
    """Write an extreme number into some bytes of the peer, or insert it there."""
    places = _places(story)
    if not places:
        return
    index = pick(places, draw)
    parts = list(spec.machine.codec.unwrapped(_data(story, index)))
    chosen = draw(st.integers(0, len(parts) - 1)) if parts else 0
    data = parts[chosen].data if parts else b""
    encoding = pick(spec.machine.codec.encodings, draw)
    written = [number for number in map(encoding.encode, EXTREMES) if number is not None]
    found = encoding.places(data)
    if found and draw(st.booleans()):
        start, end = pick(found, draw)
    else:
        start = end = draw(st.integers(0, len(data)))
    changed = data[:start] + pick(written, draw) + data[end:]
    sealed = [part.seal(part.data) for part in parts]
    sealed[chosen : chosen + 1] = [parts[chosen].seal(changed) if parts else changed]
    story[index] = _changed(story[index], b"".join(sealed))


def _places(story: Story) -> list[int]:
    return [i for i, op in enumerate(story) if isinstance(op, (Receive, ReceiveDatagram))]


def mutated(operations: Sequence[Operation], draw: Draw) -> Story:
    """The story with one to three changes in the peer's bytes."""
    story = list(operations)
    for _ in range(draw(st.integers(1, _MUTATIONS_MAX))):
        places = _places(story)
        if not places:
            break
        pick(_MUTATIONS, draw)(story, pick(places, draw), places, draw)
    return story


def _changed(operation: Operation, data: bytes) -> Operation:
    assert isinstance(operation, (Receive, ReceiveDatagram))
    return replace(operation, data=data)


def _data(story: Story, index: int) -> bytes:
    operation = story[index]
    assert isinstance(operation, (Receive, ReceiveDatagram))
    return operation.data


def _flip(data: bytes, draw: Draw) -> bytes:
    if not data:
        return data
    at: int = draw(st.integers(0, len(data) - 1))
    changed: int = data[at] ^ draw(st.integers(1, 255))
    return data[:at] + bytes([changed]) + data[at + 1 :]


def _insert(data: bytes, draw: Draw) -> bytes:
    at = draw(st.integers(0, len(data)))
    return data[:at] + _extra(draw) + data[at:]


def _overwrite(data: bytes, draw: Draw) -> bytes:
    at, extra = draw(st.integers(0, len(data))), _extra(draw)
    return data[:at] + extra + data[at + len(extra) :]


def _delete(data: bytes, draw: Draw) -> bytes:
    at = draw(st.integers(0, len(data)))
    return data[:at] + data[draw(st.integers(at, len(data))) :]


def _extra(draw: Draw) -> bytes:
    extra: bytes = draw(st.one_of(st.binary(min_size=1, max_size=16), st.just(_FAT)))
    return extra


def _within(change: Callable[[bytes, Draw], bytes]) -> _Mutation:
    """The change of one input's bytes."""

    def mutate(story: Story, index: int, places: list[int], draw: Draw) -> None:
        story[index] = _changed(story[index], change(_data(story, index), draw))

    return mutate


def _truncate(story: Story, index: int, places: list[int], draw: Draw) -> None:
    data = _data(story, index)
    story[index] = _changed(story[index], data[: draw(st.integers(0, len(data)))])
    for later in reversed([place for place in places if place > index]):
        del story[later]


def _garbage(story: Story, index: int, places: list[int], draw: Draw) -> None:
    _truncate(story, index, places, draw)
    story[index] = _changed(
        story[index], _data(story, index) + draw(st.binary(min_size=1, max_size=64))
    )


def _repeat(story: Story, index: int, places: list[int], draw: Draw) -> None:
    story.insert(pick(places, draw), story[index])


def _swap(story: Story, index: int, places: list[int], draw: Draw) -> None:
    other = pick(places, draw)
    story[index], story[other] = story[other], story[index]


_MUTATIONS: list[_Mutation] = [
    *map(_within, (_flip, _overwrite, _insert, _delete)),
    _truncate,
    _garbage,
    _repeat,
    _swap,
]
