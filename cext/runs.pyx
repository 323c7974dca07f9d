# cython: language_level=3, boundscheck=False, wraparound=False
"""Runs of entries: the compiled twin of `culm.kernels.pure_runs`, which says what each name means."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

include "octets.pxi"
include "one_varu64.pxi"
include "lipmaa.pxi"

cdef enum:
    RAW = 8
    COMPRESSED = 9
    METADATA = 128
    SIGNATURE_SIZE = 64

cdef struct Packets:
    # A metadata packet and the payload packet behind it.  Offsets count from the first byte.
    Py_ssize_t hash_at
    Py_ssize_t signature_at
    Py_ssize_t metadata_end
    Py_ssize_t body_at
    Py_ssize_t end
    uint64_t payload_size
    bint compressed

cdef struct Form:
    # What all the packets have in common.
    uint64_t size_min
    uint64_t size_max
    const uint8_t *prefix
    Py_ssize_t prefix_size
    Py_ssize_t link_size


cdef inline bint scan(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t at, const Form *form, Packets *found
) noexcept nogil:
    """Find the parts of both packets; whether they are plain and all there."""
    cdef uint64_t announced, body_size
    cdef Py_ssize_t tail = at + 1
    if size - tail < form.prefix_size or data[at] != METADATA:
        return False
    if memcmp(data + tail, form.prefix, form.prefix_size) == 0:
        return False
    found.hash_at = decode_one(data, size, tail, True, &found.payload_size)
    if found.hash_at < 0 or not form.size_min <= found.payload_size <= form.size_max:
        return False
    if size - found.hash_at <= form.link_size + SIGNATURE_SIZE:
        return False
    if memcmp(data + found.hash_at, form.prefix, form.prefix_size) != 0:
        return False
    found.signature_at = found.hash_at + form.link_size
    found.metadata_end = found.signature_at + SIGNATURE_SIZE
    found.compressed = data[found.metadata_end] == COMPRESSED
    if not found.compressed and data[found.metadata_end] != RAW:
        return False
    found.body_at = decode_one(data, size, found.metadata_end + 1, True, &announced)
    if found.body_at < 0 or announced != found.payload_size:
        return False
    body_size = announced
    if found.compressed:
        found.body_at = decode_one(data, size, found.body_at, True, &body_size)
        if found.body_at < 0:
            return False
    if body_size > <uint64_t>(size - found.body_at):
        return False
    found.end = found.body_at + <Py_ssize_t>body_size
    return True


cdef inline uint8_t *put(uint8_t *target, const void *data, Py_ssize_t size) noexcept nogil:
    memcpy(target, data, size)
    return target + size


cdef bytes encode(
    bytes head, uint64_t seqnum, bytes lipmaalink, bytes backlink, const uint8_t *tail,
    Py_ssize_t tail_size
):
    cdef uint8_t[ENCODED_SIZE_MAX] number
    cdef Py_ssize_t number_size = encode_one(number, seqnum) - number
    cdef Py_ssize_t size = 1 + PyBytes_GET_SIZE(head) + number_size + tail_size
    if lipmaalink is not None:
        size += PyBytes_GET_SIZE(lipmaalink)
    if backlink is not None:
        size += PyBytes_GET_SIZE(backlink)
    encoded = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *target = <uint8_t *>PyBytes_AS_STRING(encoded)
    target[0] = 0
    target = put(target + 1, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
    target = put(target, number, number_size)
    if lipmaalink is not None:
        target = put(target, PyBytes_AS_STRING(lipmaalink), PyBytes_GET_SIZE(lipmaalink))
    if backlink is not None:
        target = put(target, PyBytes_AS_STRING(backlink), PyBytes_GET_SIZE(backlink))
    put(target, tail, tail_size)
    return encoded


def read(
    bytes data not None,
    bytes head not None,
    seqnum,
    count_max,
    size_min,
    size_max,
    links,
    bytes prefix not None,
    link_size,
    hash,
):
    cdef const uint8_t *octets = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const char *text = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), at = 0
    cdef uint64_t number = seqnum, left = count_max, target
    cdef bytes lipmaalink, backlink, encoded
    cdef dict known = dict(links)
    cdef list records = []
    cdef Packets found
    cdef Form form
    form.size_min, form.size_max = size_min, size_max
    form.prefix = <const uint8_t *>PyBytes_AS_STRING(prefix)
    form.prefix_size, form.link_size = PyBytes_GET_SIZE(prefix), link_size
    if form.link_size < form.prefix_size:
        raise ValueError("a link is smaller than its prefix")
    while number and left and scan(octets, size, at, &form, &found):
        backlink = known.get(number - 1) if number > 1 else None
        if backlink is None and number > 1:
            break
        target = lipmaa(number)
        lipmaalink = None
        if target != number - 1:
            lipmaalink = known.get(target)
            if lipmaalink is None:
                break
        encoded = encode(
            head, number, lipmaalink, backlink, octets + at + 1, found.metadata_end - at - 1
        )
        link = known[number] = hash(encoded)
        records.append(
            (
                number,
                lipmaalink,
                backlink,
                found.payload_size,
                PyBytes_FromStringAndSize(text + found.hash_at, form.link_size),
                PyBytes_FromStringAndSize(text + found.signature_at, SIGNATURE_SIZE),
                encoded,
                link,
                PyBytes_FromStringAndSize(text + found.body_at, found.end - found.body_at),
                bool(found.compressed),
                found.end,
            )
        )
        at = found.end
        number += 1
        left -= 1
    return records
