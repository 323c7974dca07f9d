"""Layers: the bytes that packets carry are split again, and the fields put into the packets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from culm.capture.dissect.fields import Dissection, DissectionFault, Field, leaves

__all__ = ["carried", "cut"]

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Channel:
    """The stream that some fields carry: where each of them begins, in it and in all bytes."""

    starts: list[int] = field(default_factory=list[int])
    offsets: list[int] = field(default_factory=list[int])
    size: int = 0

    def add(self, offset: int, size: int) -> None:
        self.starts.append(self.size)
        self.offsets.append(offset)
        self.size += size

    def place(self, at: int) -> int:
        """The place among all bytes of the byte `at` of the stream."""
        index = max(0, bisect_right(self.starts, at) - 1)
        return self.offsets[index] + at - self.starts[index]


def carried(
    lower: Dissection,
    data: bytes,
    *,
    channel_of: Callable[[Field], K | None],
    split: Callable[[K, bytes], Dissection | None],
) -> Dissection:
    """The fields of a lower layer, with those of the upper one inside.

    data: the bytes that the leaves of the lower layer carry, at their offsets.
    channel_of: the channel to which a leaf belongs; ``None`` if it carries nothing.
    split: dissects the bytes of a channel; ``None`` to leave them as they are.
    """
    channels: dict[K, _Channel] = {}
    for leaf in leaves(lower.fields):
        key = channel_of(leaf)
        if key is not None:
            channels.setdefault(key, _Channel()).add(leaf.offset, leaf.size)
    parts: dict[int, tuple[Field, ...]] = {}
    faults = [lower.fault] if lower.fault is not None else []
    for key, channel in channels.items():
        found = split(key, _joined(channel, data))
        if found is None:
            continue
        parts.update(_placed(channel, found.fields))
        if found.fault is not None:
            faults.append(replace(found.fault, offset=channel.place(found.fault.offset)))
    return Dissection(tuple(_filled(lower.fields, parts)), _first(faults))


def _sizes(channel: _Channel) -> Iterator[tuple[int, int, int]]:
    for index, (start, offset) in enumerate(zip(channel.starts, channel.offsets, strict=True)):
        end = channel.starts[index + 1] if index + 1 < len(channel.starts) else channel.size
        yield start, end, offset


def _joined(channel: _Channel, data: bytes) -> bytes:
    return b"".join(data[offset : offset + end - start] for start, end, offset in _sizes(channel))


def _placed(channel: _Channel, fields: Sequence[Field]) -> Iterator[tuple[int, tuple[Field, ...]]]:
    """For each place that carries bytes, the fields in it."""
    for start, end, offset in _sizes(channel):
        yield offset, tuple(cut(fields, start, end, offset))


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


def _filled(fields: Sequence[Field], parts: Mapping[int, tuple[Field, ...]]) -> Iterator[Field]:
    for each in fields:
        if each.inside:
            yield replace(each, inside=tuple(_filled(each.inside, parts)))
        elif inside := parts.get(each.offset):
            yield replace(each, inside=inside)
        else:
            yield each


def _first(faults: Sequence[DissectionFault]) -> DissectionFault | None:
    """The first one; bytes that are only missing are the last to be told of."""
    return min(faults, key=lambda each: (each.code == "TRUNCATED", each.offset), default=None)
