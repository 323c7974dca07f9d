"""Layers: bytes become fields as they come, and their payloads become the fields inside.

A layer takes the bytes of one direction, and gives items: fields that are complete, or that are as
complete as they will be shown.  It holds the bytes of incomplete fields, and no others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from culm.capture.dissect.fields import (
    FAULTS,
    UNREAD,
    DissectionFault,
    Field,
    FieldReader,
    fault_of,
    leaves,
)
from culm.wire.errors import Truncated

__all__ = ["ITEM_SIZE_MAX", "Carried", "Item", "Items", "Layer", "Opaque", "cut", "cut_items"]

ITEM_SIZE_MAX = 1 << 26
"""The largest item, in bytes, that is waited for."""

_FEW = 1 << 12  # bytes that are looked at again whenever some more have come

Step = Callable[[FieldReader], object]


@dataclass(frozen=True, slots=True)
class Item:
    """Fields in order.

    base: the byte of the layer's stream from which offsets count.
    data: the bytes that leaves carry, at their offsets.
    """

    base: int
    fields: tuple[Field, ...]
    data: bytes = b""

    @property
    def end(self) -> int:
        """The byte after it."""
        last = self.fields[-1]
        return self.base + last.offset + last.size


class Layer:
    """Splits the bytes of one direction."""

    def __init__(self) -> None:
        self.faults: list[DissectionFault] = []
        """The faults found, with offsets in the stream; the user takes them out."""

    @property
    def is_amid(self) -> bool:
        """Whether it ends within an item."""
        return False

    def feed(self, data: bytes) -> list[Item]:
        """Take more bytes; the items known with them, in order."""
        raise NotImplementedError

    def force(self) -> list[Item]:
        """The incomplete items, as far as they go; more of them may follow."""
        return []


class Opaque(Layer):
    """Bytes of an unknown format."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._size = 0

    def feed(self, data: bytes) -> list[Item]:
        start, self._size = self._size, self._size + len(data)
        return [Item(start, (Field(self._name, 0, len(data)),))] if data else []


class Items(Layer):
    """Items of one kind after each other.

    step: takes one.
    first: takes the first one, if that is another kind.
    """

    def __init__(self, step: Step, first: Step | None = None) -> None:
        super().__init__()
        self._step = first or step
        self._then = step
        self._buffer = bytearray()
        self._start = 0  # of the buffer, in the stream
        self._wanted = 1  # with fewer bytes it is not tried again
        self._told = 0  # bytes of the buffer that were shown already
        self._owed: tuple[int, list[Any]] = (0, [])
        self._broken = False

    @property
    def is_amid(self) -> bool:
        return bool(self._owed[0] or self._buffer)

    def feed(self, data: bytes) -> list[Item]:
        found: list[Item] = []
        if self._owed[0] and data:
            data = self._go_on(data, found)
        if self._broken and data:
            found.append(Item(self._start, (Field(UNREAD, 0, len(data)),)))
            self._start += len(data)
            return found
        self._buffer += data
        if len(self._buffer) >= self._wanted:
            self._split(found)
        return found

    def force(self) -> list[Item]:
        if len(self._buffer) == self._told:
            return []
        found: list[Item] = []
        self._split(found)
        if not self._buffer:
            return found
        reader = FieldReader(bytes(self._buffer))
        try:
            self._step(reader)
        except FAULTS:
            reader.add(UNREAD, reader.left)
        self._told = len(self._buffer)
        return [*found, Item(self._start, reader.taken(), reader.data)]

    def _go_on(self, data: bytes, found: list[Item]) -> bytes:
        """Take the bytes owed; the rest of the data."""
        owed, groups = self._owed
        size = min(owed, len(data))
        self._owed = owed - size, groups
        *outer, leaf = groups
        made = Field(leaf.name, 0, size, continues=size < owed)
        for group in reversed(outer):
            made = Field(group.name, 0, size, group.value, (made,), made.continues)
        found.append(Item(self._start, (made,), data[:size]))
        self._start += size
        return data[size:]

    def _split(self, found: list[Item]) -> None:
        reader, begun = FieldReader(bytes(self._buffer)), 0
        while reader.left:
            try:
                self._step(reader)
            except Truncated as error:
                if reader.end - begun <= ITEM_SIZE_MAX:
                    break
                self._fail(reader, begun, error)
            except FAULTS as error:
                self._fail(reader, begun, error)
            self._step = self._then
            fields = reader.taken()
            if reader.owed:
                self._owed = reader.owed, reader.owed_in
                fields = (*fields[:-1], _unfinished(fields[-1], len(reader.owed_in)))
            found.append(Item(self._start, fields, reader.data))
            begun = reader.at
        del self._buffer[:begun]
        self._start += begun
        if begun:
            self._told = 0
        left = len(self._buffer)
        self._wanted = max(1, left + 1 if left < _FEW else 2 * left)

    def _fail(self, reader: FieldReader, begun: int, error: Exception) -> None:
        fault = fault_of(error, begun, reader.at)
        self.faults.append(replace(fault, offset=fault.offset + self._start))
        self._broken = True
        reader.add(UNREAD, reader.left)


def _unfinished(field: Field, depth: int) -> Field:
    """A field of which the last part goes on, `depth` fields deep."""
    inside = field.inside
    if depth > 1 and inside and (depth > 2 or inside[-1].continues):
        inside = (*inside[:-1], _unfinished(inside[-1], depth - 1))
    return replace(field, inside=inside, continues=True)


@dataclass(slots=True)
class _Channel:
    """The payload of some fields, as a stream of its own."""

    layer: Layer | None  # None: it is left as it is
    items: deque[Item] = field(default_factory=deque[Item])
    size: int = 0
    known: int = 0

    def add(self, items: Iterable[Item]) -> None:
        for each in items:
            self.items.append(each)
            self.known = max(self.known, each.end)

    def fields(self, start: int, end: int, offset: int) -> tuple[Field, ...]:
        """Those from `start` to `end`, at `offset`; earlier ones are forgotten."""
        return tuple(cut_items(self.items, start, end, offset))


@dataclass(slots=True)
class _Waiting:
    """An item, and for the offset of each leaf that carries something which part of a channel."""

    item: Item
    parts: dict[int, tuple[_Channel, int, int]]

    @property
    def is_ready(self) -> bool:
        return all(end <= channel.known for channel, _, end in self.parts.values())


class Carried(Layer):
    """A layer, with another one in the payload of some of its fields.

    channel_of: the channel to which a leaf belongs; ``None`` if it carries nothing.
    upper: the layer of a channel; ``None`` to leave it as it is.
    """

    def __init__(
        self,
        lower: Layer,
        *,
        channel_of: Callable[[Field], Hashable | None],
        upper: Callable[[Any], Layer | None],
    ) -> None:
        super().__init__()
        self._lower = lower
        self._channel_of = channel_of
        self._upper = upper
        self._channels: dict[Hashable, _Channel] = {}
        self._waiting: deque[_Waiting] = deque()
        self._fed = 0  # up to this byte the payload was handed on

    @property
    def is_amid(self) -> bool:
        layers = (each.layer for each in self._channels.values())
        return self._lower.is_amid or any(each is not None and each.is_amid for each in layers)

    def feed(self, data: bytes) -> list[Item]:
        self._take(self._lower.feed(data))
        return self._ready()

    def force(self) -> list[Item]:
        self._take(self._lower.force())
        for channel in self._channels.values():
            if channel.layer is not None:
                channel.add(channel.layer.force())
                self._note_faults(channel)
        return self._ready()

    def _take(self, items: Iterable[Item]) -> None:
        for item in items:
            waiting = _Waiting(item, {})
            self._waiting.append(waiting)
            for leaf in leaves(item.fields):
                if (key := self._channel_of(leaf)) is not None:
                    self._hand_on(key, item, leaf, waiting)
            self._fed = max(self._fed, item.end)
        self.faults += self._lower.faults
        self._lower.faults.clear()

    def _hand_on(self, key: Hashable, item: Item, leaf: Field, waiting: _Waiting) -> None:
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(self._upper(key))
        if channel.layer is None:
            return
        before = max(0, self._fed - item.base - leaf.offset)  # which was shown unfinished
        data = item.data[leaf.offset : leaf.offset + leaf.size][before:]
        start = channel.size - before
        channel.size += len(data)
        waiting.parts[leaf.offset] = channel, start, channel.size
        channel.add(channel.layer.feed(data))
        self._note_faults(channel)

    def _note_faults(self, channel: _Channel) -> None:
        assert channel.layer is not None
        for fault in channel.layer.faults:
            self.faults.append(replace(fault, offset=self._place(channel, fault.offset)))
        channel.layer.faults.clear()

    def _place(self, channel: _Channel, at: int) -> int:
        """The byte that carries the byte `at` of a channel, or after which that would be."""
        found = 0
        for waiting in self._waiting:
            for offset, (which, start, end) in waiting.parts.items():
                if which is channel and (start <= at or not found):
                    found = waiting.item.base + offset + min(at, end) - start
        return found

    def _ready(self) -> list[Item]:
        found = []
        while self._waiting and self._waiting[0].is_ready:
            waiting = self._waiting.popleft()
            item = waiting.item
            if waiting.parts:
                inside = {
                    offset: channel.fields(start, end, offset)
                    for offset, (channel, start, end) in waiting.parts.items()
                }
                item = replace(item, fields=tuple(_filled(item.fields, inside)))
            found.append(item)
        return found


def _filled(fields: Sequence[Field], parts: dict[int, tuple[Field, ...]]) -> Iterator[Field]:
    for each in fields:
        if each.inside:
            yield replace(each, inside=tuple(_filled(each.inside, parts)))
        elif inside := parts.get(each.offset):
            yield replace(each, inside=inside)
        else:
            yield each


def cut_items(items: deque[Item], start: int, end: int, offset: int) -> Iterator[Field]:
    """The parts of items from `start` to `end`, at `offset`; items that end there are dropped."""
    while items and items[0].base < end:
        item = items[0]
        yield from cut(item.fields, start - item.base, end - item.base, offset)
        if item.end > end:
            break
        items.popleft()


def cut(fields: Sequence[Field], start: int, end: int, offset: int) -> Iterator[Field]:
    """The parts of fields from `start` to `end`, at `offset`."""
    first = bisect_right(fields, start, key=_offset)
    for each in fields[max(0, first - 1) : bisect_right(fields, end, key=_offset)]:
        begin, stop = max(each.offset, start), min(each.offset + each.size, end)
        if begin < stop:
            yield Field(
                each.name,
                begin - start + offset,
                stop - begin,
                each.value,
                tuple(cut(each.inside, start, end, offset)),
                each.continues or each.offset + each.size > end,
            )


def _offset(field: Field) -> int:
    return field.offset
