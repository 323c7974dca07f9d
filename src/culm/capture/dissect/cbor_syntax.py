"""CBOR: nested values, by their names there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from culm.capture.dissect.fields import FieldReader
from culm.capture.dissect.xenc import DEPTH_MAX, check_depth
from culm.kernels import cbor as _kernel
from culm.wire import cbor
from culm.wire.errors import DecodeError, WireErrorCode

_HEAD_SIZE_MAX = 9
FEW = 1 << 20  # items that any bytes may have
_SIZE_MAX = 1 << 26
_ITEM_SIZE = 8

Inner = Mapping[str, Callable[[FieldReader], object]]
"""How to split the bytes under a name."""


def check_items(data: bytes, at: int = 0) -> None:
    """Raise `DecodeError` for more items than a codec may be asked to decode."""
    if len(data) > FEW:
        scanner = cbor.Scanner(
            size_max=_SIZE_MAX, depth_max=DEPTH_MAX, items_max=FEW, item_size=_ITEM_SIZE
        )
        try:
            scanner.scan(data, len(data))
        except DecodeError as error:
            raise DecodeError(error.code, at + error.offset, str(error)) from None


def take_cbor(
    reader: FieldReader,
    name: str,
    names: Sequence[str] = (),
    inner: Inner | None = None,
    depth: int = 0,
) -> None:
    """Take an item.

    names: those of its own items, if it is an array.
    inner: how to split byte strings, by name.
    """
    check_depth(reader, depth)
    kind, argument, size = _kernel.head(reader.peek(_HEAD_SIZE_MAX), 0)
    if size == _kernel.TRUNCATED:
        reader.add(name, reader.left + 1)
    if size < 0:
        raise DecodeError(WireErrorCode.BAD_VALUE, reader.at, "no item of CBOR")
    if kind in (cbor.ARRAY, cbor.MAP):
        with reader.group(name):
            reader.add("", size)
            for index in range(argument):
                if kind == cbor.ARRAY:
                    own = names[index] if index < len(names) else f"{index}"
                    take_cbor(reader, own, (), inner, depth + 1)
                else:
                    _take_pair(reader, inner, depth)
    elif kind == cbor.BYTES and inner is not None and name in inner:
        with reader.group(name):
            reader.add("", size)
            with reader.within(argument, alone=True):
                inner[name](reader)
    elif kind in (cbor.BYTES, cbor.TEXT):
        content = reader.peek(size + argument)[size:]
        value = content if kind == cbor.BYTES else content.decode(errors="replace")
        reader.add(name, size + argument, value)
    else:
        value, end = cbor.decode_first(reader.data, reader.at, 0)
        reader.add(name, max(size, end - reader.at), value)


def _take_pair(reader: FieldReader, inner: Inner | None, depth: int) -> None:
    key, end = cbor.decode_first(reader.data, reader.at, 0)
    if end < 0:
        take_cbor(reader, "key", (), None, depth + 1)
        take_cbor(reader, "value", (), inner, depth + 1)
        return
    with reader.group(str(key)):
        reader.add("", end - reader.at)
        take_cbor(reader, str(key), (), inner, depth + 1)
