# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Runs of entries: the compiled twin of `culm.kernels.pure_runs`, its specification."""

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.long cimport PyLong_CheckExact
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.string cimport memcmp, memcpy

include "octets.pxi"
include "one_varu64.pxi"
include "lipmaa.pxi"

cdef enum:
    RAW = 8
    COMPRESSED = 9
    METADATA = 128
    SIGNATURE_SIZE = 64

NUMBER_MAX = (1 << 64) - 1

cdef struct Packets:
    # A metadata packet and the payload packet after it.  Offsets count from the first byte.
    Py_ssize_t hash_at
    Py_ssize_t signature_at
    Py_ssize_t metadata_end
    Py_ssize_t body_at
    Py_ssize_t end
    uint64_t payload_size
    bint compressed

cdef struct Form:
    # The common properties of all the packets.
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


cdef int check_link_size(Py_ssize_t link_size, Py_ssize_t prefix_size) except -1:
    if link_size < prefix_size:
        raise ValueError("a link is smaller than its prefix")
    return 0


cdef inline Py_ssize_t links_of(uint64_t number, uint64_t target) noexcept nogil:
    """How many links an entry has of which the lipmaalink has that target."""
    return 0 if number == 1 else 1 + (target < number - 1)


cdef inline bint starts_with(
    bytes text, Py_ssize_t at, const void *data, Py_ssize_t size
) noexcept:
    return (
        size <= PyBytes_GET_SIZE(text) - at
        and memcmp(PyBytes_AS_STRING(text) + at, data, size) == 0
    )


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
    check_link_size(form.link_size, form.prefix_size)
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


cdef bint agree(dict sent, dict received, number, bytes hash) except -1:
    return sent.get(number, hash) == received.get(number, hash) == hash


def choose(
    rows,
    bytes head not None,
    seqnum,
    count_max,
    size_min,
    size_max,
    room,
    dict sent not None,
    dict received not None,
    Py_ssize_t link_size,
):
    cdef uint64_t first = seqnum, left = count_max, least = size_min, most = size_max
    cdef uint64_t number = first, found, size, target
    cdef Py_ssize_t used = 0, used_max = room, tail, metadata_size
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head)
    cdef uint8_t[ENCODED_SIZE_MAX] size_octets
    cdef Py_ssize_t size_octets_size
    cdef bytes encoded, payload, metadata
    cdef char *text
    cdef list chosen = []
    check_link_size(link_size, 0)
    for row in rows:
        row_number, encoded, hash, row_size, _, complete, row_payload, _ = row
        found, size = row_number, row_size
        if found != number or not left or used >= used_max:
            break
        if not complete or row_payload is None:
            break
        payload = row_payload
        if <uint64_t>PyBytes_GET_SIZE(payload) != size or not least <= size <= most:
            break
        text = PyBytes_AS_STRING(encoded)
        if PyBytes_GET_SIZE(encoded) < 1 or text[0] != 0:
            break
        if not starts_with(encoded, 1, PyBytes_AS_STRING(head), head_size):
            break
        target = lipmaa(number)
        size_octets_size = encode_one(size_octets, size) - size_octets
        tail = PyBytes_GET_SIZE(encoded) - size_octets_size - link_size - SIGNATURE_SIZE
        if tail < 1 + head_size + links_of(number, target) * link_size:
            break
        if number == first and number > 1 and not agree(
            sent, received, number - 1, text[tail - link_size : tail]
        ):
            break
        if target < first and target < number - 1 and not agree(
            sent, received, target, text[tail - 2 * link_size : tail - link_size]
        ):
            break
        metadata_size = 1 + PyBytes_GET_SIZE(encoded) - tail
        metadata = PyBytes_FromStringAndSize(NULL, metadata_size)
        (<uint8_t *>PyBytes_AS_STRING(metadata))[0] = METADATA
        memcpy(PyBytes_AS_STRING(metadata) + 1, text + tail, metadata_size - 1)
        chosen.append(
            (
                hash,
                metadata,
                PyBytes_FromStringAndSize(<char *>size_octets, size_octets_size),
                payload,
            )
        )
        used += metadata_size - 1 + <Py_ssize_t>size
        number += 1
        left -= 1
    return chosen


cdef Py_ssize_t measure(
    row,
    bytes head,
    uint64_t first,
    uint64_t last,
    bytes prefix,
    Py_ssize_t link_size,
    Py_ssize_t payload_size_max,
) except -2:
    """How many bytes encoding and payload take; -1 if it is none of these entries."""
    cdef uint64_t number, size, on_hand
    cdef Py_ssize_t links_at, tail_at, index, prefix_size = PyBytes_GET_SIZE(prefix)
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head), number_size, size_size, total
    cdef uint8_t[ENCODED_SIZE_MAX] numbered, sized
    if len(row) != 8:
        return -1
    row_number, encoded, hash, row_size, row_on_hand, complete, payload, begun = row
    if not (
        PyLong_CheckExact(row_number)
        and PyLong_CheckExact(row_size)
        and PyLong_CheckExact(row_on_hand)
        and (complete is True or complete is False)
        and (begun is True or begun is False)
        and PyBytes_CheckExact(encoded)
        and PyBytes_CheckExact(hash)
    ):
        return -1
    number, size, on_hand = row_number, row_size, row_on_hand
    if not first <= number <= last or on_hand > size:
        return -1
    if complete is True and (on_hand != size or begun is True):
        return -1
    if PyBytes_GET_SIZE(hash) != link_size:
        return -1
    if not starts_with(hash, 0, PyBytes_AS_STRING(prefix), prefix_size):
        return -1
    total = PyBytes_GET_SIZE(encoded)
    if payload is not None:
        if not PyBytes_CheckExact(payload) or complete is False:
            return -1
        if <uint64_t>PyBytes_GET_SIZE(payload) != size:
            return -1
        if PyBytes_GET_SIZE(payload) > payload_size_max:
            return -1
        total += PyBytes_GET_SIZE(payload)
    number_size = encode_one(numbered, number) - numbered
    size_size = encode_one(sized, size) - sized
    links_at = 1 + head_size + number_size
    tail_at = links_at + links_of(number, lipmaa(number)) * link_size
    if PyBytes_GET_SIZE(encoded) != tail_at + size_size + link_size + SIGNATURE_SIZE:
        return -1
    if PyBytes_AS_STRING(encoded)[0] & ~1:
        return -1
    if not (
        starts_with(encoded, 1, PyBytes_AS_STRING(head), head_size)
        and starts_with(encoded, 1 + head_size, numbered, number_size)
        and starts_with(encoded, tail_at, sized, size_size)
        and starts_with(encoded, tail_at + size_size, PyBytes_AS_STRING(prefix), prefix_size)
    ):
        return -1
    for index in range(links_at, tail_at, link_size):
        if not starts_with(encoded, index, PyBytes_AS_STRING(prefix), prefix_size):
            return -1
    return total


def stored_size(
    rows,
    bytes head not None,
    first,
    last,
    bytes prefix not None,
    Py_ssize_t link_size,
    payload_size_max,
):
    cdef Py_ssize_t size, payload_max = -1, total = 0
    cdef uint64_t lowest, highest
    check_link_size(link_size, PyBytes_GET_SIZE(prefix))
    if not rows:
        return 0
    try:
        lowest = max(first, 1)
        highest = NUMBER_MAX if last is None else min(last, NUMBER_MAX)
        if payload_size_max is not None:
            payload_max = max(-1, min(payload_size_max, PY_SSIZE_T_MAX))
        for row in rows:
            size = measure(row, head, lowest, highest, prefix, link_size, payload_max)
            if size < 0:
                return -1
            total += size
            lowest = <uint64_t>row[0]
            if lowest < highest:
                lowest += 1
            else:
                highest = 0  # nothing comes after it
    except OverflowError:  # numbers of no entry
        return -1
    return total
