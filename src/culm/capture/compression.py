"""The ways in which blocks of captures are compressed."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from culm.capture.errors import CaptureError, ErrorCode
from culm.wire import lzfoo


class Compression(IntEnum):
    """How blocks are compressed."""

    LZFOO = 0
    """By culm itself."""
    ZSTD = 1
    """Zstandard (RFC 8878): by ``compression.zstd`` of Python 3.14, or the package zstandard."""


def compress(compression: Compression, data: bytes, size_max: int) -> bytes | None:
    """The compressed data; ``None`` if they have more than `size_max` bytes.

    Raises `CaptureError` (``UNKNOWN_COMPRESSION``) if nothing here compresses so.
    """
    if compression is Compression.LZFOO:
        return lzfoo.Compressor(_WINDOW).compress(data, size_max)
    stored = _zstd().compress(data)
    return stored if len(stored) <= size_max else None


def decompress(compression: Compression, stored: bytes, size: int) -> bytes:
    """The data, at most one byte more than `size`; never more memory than that, and a window.

    Raises `ValueError` for data that is not compressed so, and `CaptureError` as `compress` does.
    """
    if compression is Compression.LZFOO:
        return lzfoo.decompress(stored, size, _WINDOW)
    codec = _zstd()
    try:
        return codec.decompress(stored, size + 1)
    except Exception as error:  # each module has errors of its own
        raise ValueError(f"no zstd: {error}") from None


_WINDOW = (1 << 16) - 1
_LEVEL = 3  # zstd's own default


class _Zstd(NamedTuple):
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], bytes]


def _of_python(module: Any) -> _Zstd:
    def decompress(stored: bytes, size_max: int) -> bytes:
        found: bytes = module.ZstdDecompressor().decompress(stored, size_max)
        return found

    return _Zstd(partial(module.compress, level=_LEVEL), decompress)


def _of_package(module: Any) -> _Zstd:
    def decompress(stored: bytes, size_max: int) -> bytes:
        found: bytes = module.ZstdDecompressor().stream_reader(stored).read(size_max)
        return found

    return _Zstd(lambda data: module.ZstdCompressor(_LEVEL).compress(data), decompress)


_MODULES = {"compression.zstd": _of_python, "zstandard": _of_package}


def _zstd() -> _Zstd:
    for name, codec_of in _MODULES.items():
        try:
            return codec_of(import_module(name))
        except ImportError:
            continue
    raise CaptureError(
        ErrorCode.UNKNOWN_COMPRESSION, "zstd: needs the package zstandard, or Python 3.14"
    )
