"""LZFoo against LZ4 and Snappy: one packet of a mebibyte, and many with a shared history."""

from __future__ import annotations

import cramjam
import lz4.block
import pytest

from culm.wire import lzfoo

WINDOW = 1 << 16
PACKET_SIZE = 1 << 14


def compress_packets(data):
    compressor = lzfoo.Compressor(WINDOW)
    parts = (data[at : at + PACKET_SIZE] for at in range(0, len(data), PACKET_SIZE))
    return [(compressor.compress(part), len(part)) for part in parts]


def decompress_packets(packets):
    decompressor = lzfoo.Decompressor(WINDOW)
    output = []
    for packet, size in packets:
        decompressor.begin(size)
        output.append(decompressor.decode(packet, 0, size)[0])
        decompressor.finish()
    return b"".join(output)


CODECS = {
    "lzfoo": (
        lambda data: lzfoo.compress(data, WINDOW),
        lambda data: lzfoo.decompress(data, 1 << 20, WINDOW),
    ),
    "lzfoo packets": (compress_packets, decompress_packets),
    "lz4": (lz4.block.compress, lz4.block.decompress),
    "snappy": (cramjam.snappy.compress_raw, cramjam.snappy.decompress_raw),
}


@pytest.mark.benchmark(group="lzfoo compress")
@pytest.mark.parametrize("codec", CODECS)
def test_compress(benchmark, sample, codec):
    compress, decompress = CODECS[codec]
    assert bytes(decompress(benchmark(compress, sample))) == sample


@pytest.mark.benchmark(group="lzfoo decompress")
@pytest.mark.parametrize("codec", CODECS)
def test_decompress(benchmark, sample, codec):
    compress, decompress = CODECS[codec]
    assert bytes(benchmark(decompress, compress(sample))) == sample
