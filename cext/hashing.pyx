# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Columns of messages: the compiled twin of `culm.kernels.pure_hashing`, their specification."""

import hashlib

from blake3 import blake3
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

include "octets.pxi"
include "one_varu64.pxi"
include "lipmaa.pxi"
include "sodium.pxi"

cdef enum:
    BLAKE2B_KIND = 0
    BLAKE3_KIND = 1
    SHA256_KIND = 2
    KEY_SIZE = 32
    SIGNATURE_SIZE = 64
    PLACE_SIZE = 48
    DIGEST_SIZE_MAX = 247
    # `culm.wire.errors.WireErrorCode`
    ERROR_TRUNCATED = 1
    ERROR_NON_CANONICAL = 2
    ERROR_BAD_TYPE = 3
    ERROR_BAD_LENGTH = 4
    ERROR_BAD_VALUE = 6
    ERROR_TRAILING_DATA = 7
    # From here on hashlib's is faster, its call included, and lets other threads run, too.  (From
    # about 500 bytes on it is a little faster without doing that.)  For SHA-256 it always is:
    # libsodium's is no faster than OpenSSL's with its call, and OpenSSL knows the instructions.
    BLAKE2B_LARGE = 2048
    COPY_MAX = 512

BLAKE2B = BLAKE2B_KIND
BLAKE3 = BLAKE3_KIND
SHA256 = SHA256_KIND

cdef dict HASHES = {BLAKE2B: hashlib.blake2b, BLAKE3: blake3, SHA256: hashlib.sha256}


cdef class Column:
    # Messages between offsets, which are read once each, so that they cannot change between
    # check and use.
    cdef const uint8_t[::1] octets
    cdef const uint8_t[::1] cuts
    cdef const uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t count
    cdef bint is_narrow

    def __cinit__(self, data, offsets):
        cuts = memoryview(offsets)
        if cuts.format not in {"i", "l", "q"} or cuts.ndim != 1:
            raise TypeError("offsets are signed integers of 32 or 64 bits")
        self.octets = memoryview(data).cast("B")
        self.cuts = cuts.cast("B")
        self.data = &self.octets[0]
        self.size = self.octets.shape[0]
        self.is_narrow = cuts.itemsize == 4
        self.count = max(len(cuts) - 1, 0)
        if len(cuts) == 1 and not 0 <= self.cut(0) <= self.size:
            raise wrong_offsets()

    cdef inline int64_t cut(self, Py_ssize_t index) noexcept nogil:
        cdef int32_t narrow
        cdef int64_t wide
        if self.is_narrow:
            memcpy(&narrow, &self.cuts[4 * index], 4)
            return narrow
        memcpy(&wide, &self.cuts[8 * index], 8)
        return wide

    cdef inline int64_t start(self) noexcept nogil:
        """The first offset; -1 if it is not inside."""
        cdef int64_t first = self.cut(0) if self.count else 0
        return first if 0 <= first <= self.size else -1

    cdef inline int64_t stop(self, Py_ssize_t index, int64_t start) noexcept nogil:
        """Where the message ends that begins at `start`; -1 if that is not inside."""
        cdef int64_t end = self.cut(index + 1)
        return end if 0 <= start <= end <= self.size else -1


cdef object wrong_offsets():
    return ValueError("offsets ascend and stay inside the buffer")


cdef bytes room(Py_ssize_t count, Py_ssize_t each):
    """Bytes to be filled, of `each` for every one of `count`."""
    if each and count > (<Py_ssize_t>1 << 62) // each:
        raise MemoryError
    return PyBytes_FromStringAndSize(NULL, count * each)


cdef inline uint8_t *inside(bytes value) noexcept:
    return <uint8_t *>PyBytes_AS_STRING(value)


cdef bytes copied(const uint8_t *data, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *>data, size)


def hash_many(int function, data, offsets, bytes prefix not None):
    """The hash of each message after `prefix`, one after the other."""
    cdef Py_ssize_t size
    if function == BLAKE2B_KIND:
        size = 64
    elif function == BLAKE3_KIND or function == SHA256_KIND:
        size = 32
    else:
        raise ValueError(f"no hash function has the number {function}")
    cdef Column column = Column(data, offsets)
    cdef Py_ssize_t prefix_size = PyBytes_GET_SIZE(prefix)
    cdef bytes hashes = room(column.count, prefix_size + size)
    cdef uint8_t *target = inside(hashes)
    cdef const uint8_t *front = inside(prefix)
    cdef Py_ssize_t index
    cdef int64_t end
    if function == BLAKE2B_KIND and hash_blake2b != NULL:
        end = blake2b_many(column, target, prefix_size)
    elif function == BLAKE3_KIND:
        end = blake3_many(column, target, prefix_size)
    else:
        end = call_many(column, target, prefix_size, size, HASHES[function])
    if end < 0:
        raise wrong_offsets()
    for index in range(column.count if prefix_size else 0):
        memcpy(target + index * (prefix_size + size), front, prefix_size)
    return hashes


cdef inline object message_at(Column column, int64_t start, int64_t end):
    """One message, in a copy if that is cheaper than a view."""
    if end - start < COPY_MAX:
        return copied(column.data + start, end - start)
    return PyMemoryView_FromMemory(<char *>column.data + start, end - start, PyBUF_READ)


cdef int put_digest(uint8_t *target, hash, Column column, int64_t start, int64_t end) except -1:
    """Hash one message by calling `hash`."""
    cdef bytes digest = hash(message_at(column, start, end)).digest()
    memcpy(target, <const uint8_t *>PyBytes_AS_STRING(digest), PyBytes_GET_SIZE(digest))
    return 0


cdef int64_t call_many(
    Column column, uint8_t *target, Py_ssize_t prefix_size, Py_ssize_t size, hash
) except -2:
    cdef int64_t start = column.start(), end = start
    cdef Py_ssize_t index
    for index in range(column.count):
        end = column.stop(index, start)
        if end < 0:
            break
        target += prefix_size
        put_digest(target, hash, column, start, end)
        target += size
        start = end
    return end


cdef int64_t blake3_many(Column column, uint8_t *target, Py_ssize_t prefix_size) except -2:
    """One hasher for all, since to make one costs as much as to hash some hundred bytes."""
    hasher = blake3()
    update, finish, reset = hasher.update, hasher.digest, hasher.reset
    cdef int64_t start = column.start(), end = start
    cdef Py_ssize_t index
    cdef bytes digest
    for index in range(column.count):
        end = column.stop(index, start)
        if end < 0:
            break
        update(message_at(column, start, end))
        digest = finish()
        reset()
        target += prefix_size
        memcpy(target, <const uint8_t *>PyBytes_AS_STRING(digest), 32)
        target += 32
        start = end
    return end


cdef int64_t blake2b_many(Column column, uint8_t *target, Py_ssize_t prefix_size) except -2:
    cdef int64_t start = column.start(), end = start
    cdef Py_ssize_t index
    with nogil:
        for index in range(column.count):
            end = column.stop(index, start)
            if end < 0:
                break
            target += prefix_size
            if end - start >= BLAKE2B_LARGE:
                with gil:
                    put_digest(target, hashlib.blake2b, column, start, end)
            else:
                hash_blake2b(target, 64, column.data + start, end - start, NULL, 0, NULL, NULL)
            target += 64
            start = end
    return end


def verify_many(keys, signatures, data, offsets, Py_ssize_t unsigned):
    """For each message 1 or 0, in a byte: whether its key has signed it with Ed25519."""
    if unsigned < 0:
        raise ValueError("a message does not end with fewer than 0 bytes")
    cdef Column column = Column(data, offsets)
    cdef const uint8_t[::1] all_keys = memoryview(keys).cast("B")
    cdef const uint8_t[::1] all_signatures = memoryview(signatures).cast("B")
    if (
        all_keys.shape[0] != KEY_SIZE * column.count
        or all_signatures.shape[0] != SIGNATURE_SIZE * column.count
    ):
        raise ValueError("there are 32 bytes of key and 64 of signature for each message")
    cdef bytes valid = room(column.count, 1)
    cdef int64_t end
    if open_signed == NULL:
        end = verify_by_calls(column, all_keys, all_signatures, unsigned, inside(valid))
    else:
        end = verify_directly(column, all_keys, all_signatures, unsigned, inside(valid))
    if end < 0:
        raise wrong_offsets()
    return valid


cdef int64_t largest(Column column) noexcept nogil:
    """The size of the largest message; -1 if offsets are wrong."""
    cdef int64_t start = column.start(), end, most = min(start, 0)
    cdef Py_ssize_t index
    for index in range(column.count):
        end = column.stop(index, start)
        if end < 0:
            return -1
        most = max(most, end - start)
        start = end
    return most


cdef int64_t verify_directly(
    Column column, const uint8_t[::1] keys, const uint8_t[::1] signatures, Py_ssize_t unsigned,
    uint8_t *valid,
) except -2:
    """libsodium wants the message after its signature: both are copied to one place."""
    cdef int64_t start = column.start(), end = start, most = largest(column), size
    cdef Py_ssize_t index
    cdef uint8_t *place
    cdef unsigned long long opened
    if most < 0:
        return -1
    place = <uint8_t *>PyMem_Malloc(SIGNATURE_SIZE + most)
    if place == NULL:
        raise MemoryError
    with nogil:
        for index in range(column.count):
            end = column.stop(index, start)
            size = end - start - unsigned
            if end < 0 or size > most:
                end = -1
                break
            valid[index] = 0
            if size >= 0:
                memcpy(place, &signatures[0] + SIGNATURE_SIZE * index, SIGNATURE_SIZE)
                memcpy(place + SIGNATURE_SIZE, column.data + start, size)
                valid[index] = 0 == open_signed(
                    NULL, &opened, place, SIGNATURE_SIZE + size, &keys[0] + KEY_SIZE * index
                )
            start = end
    PyMem_Free(place)
    return end


cdef int64_t verify_by_calls(
    Column column, const uint8_t[::1] keys, const uint8_t[::1] signatures, Py_ssize_t unsigned,
    uint8_t *valid,
) except -2:
    cdef int64_t start = column.start(), end = start
    cdef Py_ssize_t index
    for index in range(column.count):
        end = column.stop(index, start)
        if end < 0:
            break
        valid[index] = 0
        if end - start >= unsigned:
            signature = copied(&signatures[0] + SIGNATURE_SIZE * index, SIGNATURE_SIZE)
            message = copied(column.data + start, end - start - unsigned)
            key = copied(&keys[0] + KEY_SIZE * index, KEY_SIZE)
            try:
                crypto_sign_open(signature + message, key)
                valid[index] = 1
            except BadSignatureError:
                pass
        start = end
    return end


cdef struct Parts:
    # Where the parts of an entry are; -1 for links that it does not have.
    uint64_t log_id
    uint64_t seqnum
    uint64_t target
    uint64_t payload_size
    Py_ssize_t lipmaalink_at
    Py_ssize_t backlink_at
    Py_ssize_t payload_hash_at
    Py_ssize_t signature_at


cdef inline int number_at(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, uint64_t *value
) noexcept nogil:
    """Read a number and go past it; 0 or a fault."""
    cdef Py_ssize_t end = decode_one(data, size, at[0], True, value)
    if end < 0:
        return ERROR_NON_CANONICAL if end == FAULT_NON_CANONICAL else ERROR_TRUNCATED
    at[0] = end
    return 0


cdef inline int hash_at(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, Py_ssize_t digest_size
) noexcept nogil:
    """Go past an encoded hash; 0 or a fault."""
    cdef uint64_t value
    cdef int fault = number_at(data, size, at, &value)
    if fault:
        return fault
    if value:
        return ERROR_BAD_TYPE
    fault = number_at(data, size, at, &value)
    if fault:
        return fault
    if value != <uint64_t>digest_size:
        return ERROR_BAD_LENGTH
    if size - at[0] < digest_size:
        return ERROR_TRUNCATED
    at[0] += digest_size
    return 0


cdef int scan(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t digest_size, Parts *parts
) noexcept nogil:
    """Find the parts of an entry; 0 or a fault."""
    cdef Py_ssize_t at = 1 + KEY_SIZE
    cdef int fault
    if not size:
        return ERROR_TRUNCATED
    if data[0] > 1:
        return ERROR_BAD_TYPE
    fault = number_at(data, size, &at, &parts.log_id) or number_at(data, size, &at, &parts.seqnum)
    if fault:
        return fault
    if not parts.seqnum:
        return ERROR_BAD_VALUE
    parts.target = lipmaa(parts.seqnum)
    parts.lipmaalink_at = parts.backlink_at = -1
    if parts.target < parts.seqnum - 1:
        parts.lipmaalink_at = at
        fault = hash_at(data, size, &at, digest_size)
        if fault:
            return fault
    if parts.seqnum > 1:
        parts.backlink_at = at
        fault = hash_at(data, size, &at, digest_size)
        if fault:
            return fault
    fault = number_at(data, size, &at, &parts.payload_size)
    if fault:
        return fault
    parts.payload_hash_at = at
    fault = hash_at(data, size, &at, digest_size)
    if fault:
        return fault
    parts.signature_at = at
    if size - at < SIGNATURE_SIZE:
        return ERROR_TRUNCATED
    return ERROR_TRAILING_DATA if size - at > SIGNATURE_SIZE else 0


cdef struct Fields:
    # Where the columns are that are made.
    uint8_t *faults
    uint8_t *ends
    uint8_t *authors
    uint64_t *log_ids
    uint64_t *seqnums
    uint8_t *places
    uint64_t *targets
    uint8_t *lipmaalinks
    uint8_t *backlinks
    uint64_t *payload_sizes
    uint8_t *payload_hashes
    uint8_t *signatures


cdef inline void copy_link(
    uint8_t *target, const uint8_t *data, Py_ssize_t at, Py_ssize_t size
) noexcept nogil:
    if at < 0:
        memset(target, 0, size)
    else:
        memcpy(target, data + at, size)


cdef void put_fields(
    const Fields *fields, Py_ssize_t index, const uint8_t *data, const Parts *parts,
    Py_ssize_t hash_size
) noexcept nogil:
    cdef uint8_t *place = fields.places + PLACE_SIZE * index
    fields.faults[index] = 0
    fields.ends[index] = data[0]
    memcpy(fields.authors + KEY_SIZE * index, data + 1, KEY_SIZE)
    fields.log_ids[index] = parts.log_id
    fields.seqnums[index] = parts.seqnum
    memcpy(place, data + 1, KEY_SIZE)
    store_64_be(place + KEY_SIZE, parts.log_id)
    store_64_be(place + KEY_SIZE + 8, parts.seqnum)
    fields.targets[index] = parts.target
    copy_link(fields.lipmaalinks + hash_size * index, data, parts.lipmaalink_at, hash_size)
    copy_link(fields.backlinks + hash_size * index, data, parts.backlink_at, hash_size)
    fields.payload_sizes[index] = parts.payload_size
    copy_link(fields.payload_hashes + hash_size * index, data, parts.payload_hash_at, hash_size)
    memcpy(fields.signatures + SIGNATURE_SIZE * index, data + parts.signature_at, SIGNATURE_SIZE)


cdef void put_nothing(
    const Fields *fields, Py_ssize_t index, int fault, Py_ssize_t hash_size
) noexcept nogil:
    fields.faults[index] = <uint8_t>fault
    fields.ends[index] = 0
    memset(fields.authors + KEY_SIZE * index, 0, KEY_SIZE)
    fields.log_ids[index] = fields.seqnums[index] = fields.targets[index] = 0
    memset(fields.places + PLACE_SIZE * index, 0, PLACE_SIZE)
    memset(fields.lipmaalinks + hash_size * index, 0, hash_size)
    memset(fields.backlinks + hash_size * index, 0, hash_size)
    fields.payload_sizes[index] = 0
    memset(fields.payload_hashes + hash_size * index, 0, hash_size)
    memset(fields.signatures + SIGNATURE_SIZE * index, 0, SIGNATURE_SIZE)


cdef int64_t decode_many(
    Column column, const Fields *fields, Py_ssize_t digest_size
) noexcept nogil:
    cdef int64_t start = column.start(), end = start
    cdef Py_ssize_t index
    cdef Parts parts
    cdef int fault
    for index in range(column.count):
        end = column.stop(index, start)
        if end < 0:
            break
        fault = scan(column.data + start, end - start, digest_size, &parts)
        if fault:
            put_nothing(fields, index, fault, digest_size + 2)
        else:
            put_fields(fields, index, column.data + start, &parts, digest_size + 2)
        start = end
    return end


def decode_entries(data, offsets, Py_ssize_t digest_size):
    """Decode Bamboo entries into columns."""
    if not 1 <= digest_size <= DIGEST_SIZE_MAX:
        raise ValueError(f"a digest has 1 to {DIGEST_SIZE_MAX} bytes")
    cdef Column column = Column(data, offsets)
    cdef dict made = {
        name: room(column.count, size)
        for name, size in (
            ("faults", 1),
            ("ends", 1),
            ("authors", KEY_SIZE),
            ("log_ids", 8),
            ("seqnums", 8),
            ("places", PLACE_SIZE),
            ("targets", 8),
            ("lipmaalinks", digest_size + 2),
            ("backlinks", digest_size + 2),
            ("payload_sizes", 8),
            ("payload_hashes", digest_size + 2),
            ("signatures", SIGNATURE_SIZE),
        )
    }
    cdef Fields fields
    fields.faults = inside(made["faults"])
    fields.ends = inside(made["ends"])
    fields.authors = inside(made["authors"])
    fields.log_ids = <uint64_t *>inside(made["log_ids"])
    fields.seqnums = <uint64_t *>inside(made["seqnums"])
    fields.places = inside(made["places"])
    fields.targets = <uint64_t *>inside(made["targets"])
    fields.lipmaalinks = inside(made["lipmaalinks"])
    fields.backlinks = inside(made["backlinks"])
    fields.payload_sizes = <uint64_t *>inside(made["payload_sizes"])
    fields.payload_hashes = inside(made["payload_hashes"])
    fields.signatures = inside(made["signatures"])
    cdef int64_t end
    with nogil:
        end = decode_many(column, &fields, digest_size)
    if end < 0:
        raise wrong_offsets()
    return made
