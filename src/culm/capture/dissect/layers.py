"""Layers: bytes become fields as they come, and their payloads become the fields inside.

A layer takes the bytes of one direction, and gives items: fields that are complete, or that are as
complete as they will be shown.  It gives one at a time, when it is asked for it: bytes that wait do
so as bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from culm.capture.dissect import fields as _fields
from culm.capture.dissect.fields import (
    FAULTS,
    MORE,
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
_KEPT_MAX = 1 << 8  # items that wait as fields

Step = Callable[[FieldReader], object]


@dataclass(frozen=True, slots=True)
class Item:
    """Fields in order.

    base: the byte of the layer's stream from which offsets count.
    data: the bytes that leaves carry, at their offsets.
    count: the number of fields, those inside others included.
    """

    base: int
    fields: tuple[Field, ...]
    data: bytes = b""
    count: int = 1

    @property
    def end(self) -> int:
        """The byte after it."""
        last = self.fields[-1]
        return self.base + last.offset + last.size


class Layer:
    """Splits the bytes of one direction, item by item, as it is asked for them."""

    def __init__(self) -> None:
        self.faults: list[DissectionFault] = []
        """The faults found, with offsets in the stream; the user takes them out."""

    @property
    def is_amid(self) -> bool:
        """Whether it ends within an item, once no more items are known."""
        return False

    @property
    def waits(self) -> bool:
        """Whether it does not know yet how to split its bytes."""
        return False

    def feed(self, data: bytes) -> None:
        """More bytes, when there is no next item without them."""
        raise NotImplementedError

    def force(self) -> None:
        """Show what is not known yet as far as it goes; more of it may follow.

        Only when there is no next item otherwise.
        """

    def next_item(self) -> Item | None:
        """The next item, in order; ``None`` if it takes more bytes."""
        raise NotImplementedError

    def _adopt(self, inner: Layer, start: int = 0) -> None:
        """Take out the faults of a layer whose bytes begin at `start`."""
        self.faults += [replace(each, offset=each.offset + start) for each in inner.faults]
        inner.faults.clear()


class Opaque(Layer):
    """Bytes of an unknown format."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._size = 0
        self._next: Item | None = None

    def feed(self, data: bytes) -> None:
        if data:
            self._next = Item(self._size, (Field(self._name, 0, len(data)),))
            self._size += len(data)

    def next_item(self) -> Item | None:
        found, self._next = self._next, None
        return found


class Items(Layer):
    """Items of one kind after each other.

    step: takes one.
    first: takes the first one, if that is another kind.
    """

    def __init__(self, step: Step, first: Step | None = None) -> None:
        super().__init__()
        self._step = first or step
        self._then = step
        self._reader: FieldReader | None = None  # of bytes that may have items
        self._buffer = bytearray()  # of an item that is not complete
        self._start = 0  # of the reader or else the buffer, in the stream
        self._wanted = 1  # with fewer bytes it is not tried again
        self._told = 0  # bytes of the buffer that were shown already
        self._owed: tuple[int, list[Any]] = (0, [])
        self._next: Item | None = None  # which is known without reading
        self._broken = False
        self._forced = False

    @property
    def is_amid(self) -> bool:
        return bool(self._owed[0] or self._buffer)

    def feed(self, data: bytes) -> None:
        if self._owed[0] and data:
            data = self._go_on(data)
        if self._broken and data:
            self._next = Item(self._start, (Field(UNREAD, 0, len(data)),))
            self._start += len(data)
        elif len(self._buffer) + len(data) < self._wanted:
            self._buffer += data
        else:
            self._read(data)

    def force(self) -> None:
        if len(self._buffer) != self._told:
            self._forced = True
            self._read(b"")

    def next_item(self) -> Item | None:
        found, self._next = self._next, None
        reader = self._reader
        if found is not None or reader is None:
            return found
        begun = reader.at
        if not reader.left:
            return self._leave(reader, begun)
        try:
            self._step(reader)
        except Truncated as error:
            if reader.end - begun <= ITEM_SIZE_MAX:
                return self._leave(reader, begun)
            self._fail(reader, begun, error)
        except FAULTS as error:
            self._fail(reader, begun, error)
        self._step = self._then
        count, fields = reader.count, reader.taken()
        if reader.owed:
            self._owed = reader.owed, reader.owed_in
            fields = (*fields[:-1], _unfinished(fields[-1], len(reader.owed_in)))
        return Item(self._start, fields, reader.data, count)

    def _go_on(self, data: bytes) -> bytes:
        """Take what was owed; what is left of the data."""
        owed, groups = self._owed
        size = min(owed, len(data))
        self._owed = owed - size, groups
        *outer, leaf = groups
        made = Field(leaf.name, 0, size, continues=size < owed)
        for group in reversed(outer):
            made = Field(group.name, 0, size, group.value, (made,), made.continues)
        self._next = Item(self._start, (made,), data[:size])
        self._start += size
        return data[size:]

    def _read(self, data: bytes) -> None:
        if self._buffer:
            self._buffer += data
            data = bytes(self._buffer)
            self._buffer.clear()
        self._reader = FieldReader(data)

    def _leave(self, reader: FieldReader, begun: int) -> Item | None:
        """Keep what begins there until there is more of it; it as far as it goes, if forced."""
        self._reader = None
        self._buffer += reader.data[begun:]
        self._start += begun
        if begun:
            self._told = 0
        left = len(self._buffer)
        self._wanted = max(1, left + 1 if left < _FEW else 2 * left)
        forced, self._forced = self._forced, False
        if not (forced and left):
            return None
        reader = FieldReader(bytes(self._buffer))
        try:
            self._step(reader)
        except FAULTS:
            reader.add(UNREAD, reader.left)
        self._told = left
        return Item(self._start, reader.taken(), reader.data)

    def _fail(self, reader: FieldReader, begun: int, error: Exception) -> None:
        # In bytes that there are: the last ones may be right, and be no message as a whole.
        fault = fault_of(error, begun, max(begun, min(reader.at, reader.end - 1)))
        self.faults.append(replace(fault, offset=fault.offset + self._start))
        self._broken = True
        reader.add(UNREAD, reader.left)


def _unfinished(field: Field, depth: int) -> Field:
    """A field of which the last part goes on, `depth` fields deep."""
    inside = field.inside
    if depth > 1 and inside and (depth > 2 or inside[-1].continues):
        inside = (*inside[:-1], _unfinished(inside[-1], depth - 1))
    return replace(field, inside=inside, continues=True)


_Parts = dict[int, tuple[Hashable, int, int]]
"""For the offset of each leaf that carries something, which part of which channel it is."""


class _Walk:
    """Goes through the items of a layer, and counts what they carry."""

    def __init__(self, layer: Layer, channel_of: Callable[[Field], Hashable | None]) -> None:
        self.layer = layer
        self.pieces: deque[bytes | None] = deque()  # to be fed; None: it is forced there
        self._channel_of = channel_of
        self._sizes: defaultdict[Hashable, int] = defaultdict(int)
        self._at = 0  # up to this byte what is carried was counted

    def next(self) -> tuple[Item, _Parts] | None:
        while (item := self.layer.next_item()) is None:
            if not self.pieces:
                return None
            if (piece := self.pieces.popleft()) is None:
                self.layer.force()
            else:
                self.layer.feed(piece)
        parts: _Parts = {}
        for leaf in leaves(item.fields):
            if (key := self._channel_of(leaf)) is not None:
                before = max(0, self._at - item.base - leaf.offset)  # which was shown unfinished
                start = self._sizes[key] - before
                self._sizes[key] += max(0, leaf.size - before)
                parts[leaf.offset] = key, start, self._sizes[key]
        self._at = max(self._at, item.end)
        return item, parts


class _Channel:
    """What some fields carry, as a stream of its own, which is split when it is asked for."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.size = 0
        self.known = 0
        self.faults: list[tuple[DissectionFault, int]] = []
        """Those that have no place yet, and how many bytes were split when they were found."""
        self._items: deque[Item] = deque()
        self._count = 0  # of their fields
        # The pieces to be fed, one after the other, and their sizes; 0: it is forced there.
        self._data = bytearray()
        self._sizes: deque[int] = deque()

    def add(self, data: bytes) -> None:
        if data:
            self.size += len(data)
            self._data += data
            self._sizes.append(len(data))

    def force(self) -> None:
        self._sizes.append(0)

    def split(self) -> bool:
        """Make one item more known, if there are the bytes for it."""
        while (item := self.layer.next_item()) is None:
            if not self._sizes:
                return False
            if size := self._sizes.popleft():
                piece = bytes(self._data[:size])
                del self._data[:size]
                self.layer.feed(piece)
            else:
                self.layer.force()
        at = self.size - len(self._data)
        self.faults += [(fault, at) for fault in self.layer.faults]
        self.layer.faults.clear()
        self._keep(item)
        self.known = max(self.known, item.end)
        return True

    def _keep(self, item: Item) -> None:
        """Keep an item; without room for its fields, as a part of one that stands for all such."""
        if self._count < _fields.FIELDS_MAX:
            self._items.append(item)
        else:
            first = self._items.pop() if self._items[-1].fields[0].name == MORE else item
            start = first.base + first.fields[0].offset
            rest = Field(MORE, 0, item.end - start, continues=item.fields[-1].continues)
            self._items.append(Item(start, (rest,)))
        self._count += item.count

    def fields(self, start: int, end: int, offset: int) -> tuple[Field, ...]:
        """Those from `start` to `end`, at `offset`; what is before them is forgotten."""
        found = tuple(cut_items(self._items, start, end, offset))
        self._count = sum(each.count for each in self._items)
        return found

    def faults_in(self, start: int, end: int) -> Iterator[DissectionFault]:
        """Those that have their place from `start` to `end`, or after that if no more is split."""
        for each in list(self.faults):
            fault, at = each
            if fault.offset < end or at <= end:
                self.faults.remove(each)
                yield replace(fault, offset=min(fault.offset, end - 1) - start)


class Carried(Layer):
    """A layer, with another one in the payload of some of its fields.

    An item of the layer waits until all that it carries is known, for which what later ones carry
    is looked at ahead.  Of these few are kept: others are split again when their turn comes.

    channel_of: the channel to which a leaf belongs; ``None`` if it carries nothing.
    upper: the layer of a channel.
    """

    def __init__(
        self,
        lower: Layer,
        *,
        channel_of: Callable[[Field], Hashable | None],
        upper: Callable[[Any], Layer],
    ) -> None:
        super().__init__()
        self._upper = upper
        self._channels: dict[Hashable, _Channel] = {}
        self._first: tuple[Item, _Parts] | None = None  # the item that waits
        self._kept: deque[tuple[Item, _Parts]] = deque()  # those after it
        self._ahead = _Walk(lower, channel_of)
        self._behind: _Walk | None = None  # through those after the ones that are kept
        self._left = 0  # how many items it is behind

    @property
    def is_amid(self) -> bool:
        layers = (each.layer for each in self._channels.values())
        return self._ahead.layer.is_amid or any(each.is_amid for each in layers)

    def feed(self, data: bytes) -> None:
        self._put(data)

    def force(self) -> None:
        self._put(None)
        while self._look_ahead():
            pass
        for channel in self._channels.values():
            channel.force()

    def next_item(self) -> Item | None:
        self._first = self._first or self._take()
        if self._first is None:
            return None
        item, parts = self._first
        for key, _, end in parts.values():
            channel = self._channels[key]
            while channel.known < end:
                if not (channel.split() or self._look_ahead()):
                    return None
        self._first = None
        inside: dict[int, tuple[Field, ...]] = {}
        for offset, (key, start, end) in parts.items():
            channel = self._channels[key]
            inside[offset] = channel.fields(start, end, offset)
            for fault in channel.faults_in(start, end):
                place = item.base + offset + fault.offset
                self.faults.insert(0, replace(fault, offset=place))
        return replace(item, fields=tuple(_filled(item.fields, inside))) if parts else item

    def _put(self, piece: bytes | None) -> None:
        self._ahead.pieces.append(piece)
        if self._behind is not None:
            self._behind.pieces.append(piece)

    def _take(self) -> tuple[Item, _Parts] | None:
        """The next item of the layer below."""
        if not (self._kept or self._left or self._look_ahead()):
            return None
        if self._kept or self._behind is None:
            return self._kept.popleft()
        found = self._behind.next()
        self._left -= 1
        if not self._left:
            self._behind = None
        return found

    def _look_ahead(self) -> bool:
        """Hand on what one more item carries, if there is one."""
        if self._behind is None and len(self._kept) >= _KEPT_MAX:
            self._behind = deepcopy(self._ahead)
        found = self._ahead.next()
        self._adopt(self._ahead.layer)
        if found is None:
            return False
        if self._behind is None:
            self._kept.append(found)
        else:
            self._left += 1
        item, parts = found
        for offset, (key, start, end) in parts.items():
            if key not in self._channels:
                self._channels[key] = _Channel(self._upper(key))
            channel = self._channels[key]
            channel.add(item.data[offset + channel.size - start : offset + end - start])
        return True


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
