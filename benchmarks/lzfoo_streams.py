"""Streams of small payloads with a shared history, by LZFoo and by LZ4 with a rolling dictionary.

LZ4's blocks have no history: each is given the earlier data anew, as a dictionary of one window,
which both ends keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lz4.block

from culm.wire import lzfoo

__all__ = ["compress", "compress_lz4", "decompress", "decompress_lz4", "payloads_of"]

WINDOW = 65_535
SIZE = 300


def payloads_of(data: bytes) -> list[bytes]:
    return [data[start : start + SIZE] for start in range(0, len(data), SIZE)]


def compress(payloads: Sequence[bytes], level: int = 1) -> list[bytes]:
    compressor = lzfoo.Compressor(WINDOW, level)
    return [compressor.compress(payload) or b"" for payload in payloads]


def decompress(packets: Sequence[bytes]) -> list[bytes]:
    decompressor = lzfoo.Decompressor(WINDOW)
    return [decompressor.packet(packet, SIZE) for packet in packets]


def compress_lz4(payloads: Sequence[bytes]) -> list[bytes]:
    def packets() -> Iterator[bytes]:
        history = b""
        for payload in payloads:
            yield lz4.block.compress(payload, store_size=False, dict=history)
            history = (history + payload)[-WINDOW:]

    return list(packets())


def decompress_lz4(packets: Sequence[bytes]) -> list[bytes]:
    def payloads() -> Iterator[bytes]:
        history = b""
        for packet in packets:
            payload = lz4.block.decompress(packet, uncompressed_size=SIZE, dict=history)
            yield payload
            history = (history + payload)[-WINDOW:]

    return list(payloads())
