# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Plain messages: the compiled twin of `culm.kernels.pure_classic`, its specification."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    UNITS_MAX = 8192
    DATA_SIZE_MAX = 3 * 8192
    DEPTH_MAX = 32
    KEYS_MAX = 64
    TYPE_UNITS_MIN = 3
    TYPE_UNITS_MAX = 52
    DIGITS_SAFE = 15
    DIGITS_MAX = 17
    # The text of 8192 units takes three times as many bytes at most; a piece that is too much
    # is refused before it is written.
    TEXT_SIZE_MAX = 3 * 8192

cdef struct Key:
    const uint8_t *start
    Py_ssize_t size

cdef struct Scan:
    const uint8_t *at
    const uint8_t *end
    uint8_t *target
    uint8_t *limit
    Py_ssize_t units
    int keys
    # Of the string that was read last.
    Py_ssize_t string_units
    bint escaped
    Key key[DEPTH_MAX * KEYS_MAX]


# Of a byte in a string: 0 if it stands for itself, otherwise the sequence that it begins.
cdef enum:
    PLAIN = 0
    QUOTE = 1
    ESCAPE = 2
    TWO = 3
    THREE = 4
    FOUR = 5
    WRONG = 6

cdef uint8_t[256] KINDS
cdef uint8_t[256] BASE64


cdef int _fill_tables() except -1:
    cdef int byte
    for byte in range(256):
        KINDS[byte] = PLAIN
        BASE64[byte] = 0
        if byte < 0x20 or 0x80 <= byte < 0xC2 or byte > 0xF4:
            KINDS[byte] = WRONG
        elif byte >= 0xF0:
            KINDS[byte] = FOUR
        elif byte >= 0xE0:
            KINDS[byte] = THREE
        elif byte >= 0xC2:
            KINDS[byte] = TWO
    KINDS[b'"'] = QUOTE
    KINDS[b"\\"] = ESCAPE
    for place, byte in enumerate(
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    ):
        BASE64[byte] = 0x80 | place
    return 0


_fill_tables()


cdef inline bint expect(Scan *scan, const char *word, Py_ssize_t size) noexcept nogil:
    if scan.end - scan.at < size or memcmp(scan.at, word, size) != 0:
        return False
    scan.at += size
    return True


cdef inline bint put(Scan *scan, const void *data, Py_ssize_t size) noexcept nogil:
    if scan.limit - scan.target < size:
        return False
    memcpy(scan.target, data, size)
    scan.target += size
    return True


cdef inline bint put_line(Scan *scan, int depth) noexcept nogil:
    if scan.limit - scan.target < 1 + 2 * depth:
        return False
    scan.target[0] = b"\n"
    memset(scan.target + 1, b" ", 2 * depth)
    scan.target += 1 + 2 * depth
    return True


cdef inline bint base64(Scan *scan, Py_ssize_t size, int last_mask) noexcept nogil:
    # `size` digits, of the last of which the bits of the mask are zeros.
    cdef const uint8_t *at = scan.at
    cdef uint8_t all_digits = 0x80
    cdef Py_ssize_t index
    if scan.end - at < size:
        return False
    for index in range(size):
        all_digits &= BASE64[at[index]]
    scan.at += size
    return all_digits == 0x80 and BASE64[at[size - 1]] & last_mask == 0


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef inline int wide_size(const uint8_t *at, Py_ssize_t left) noexcept nogil:
    # Bytes of the letter beyond ASCII that begins here; 0 if that is no UTF-8.
    cdef uint8_t first = at[0], second
    cdef int kind = KINDS[first]
    cdef int size = kind - TWO + 2
    if kind < TWO or kind > FOUR or left < size or not is_continuation(at[1]):
        return 0
    second = at[1]
    if size == 2:
        return 2
    if not is_continuation(at[2]):
        return 0
    if size == 3:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        return 3
    if not is_continuation(at[3]):
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return 4


cdef inline int escape_size(const uint8_t *at, Py_ssize_t left) noexcept nogil:
    # Bytes of the escape that begins here; 0 if V8 does not write it like that.
    cdef uint8_t digit
    if left < 2:
        return 0
    if at[1] in (b'"', b"\\", b"b", b"f", b"n", b"r", b"t"):
        return 2
    if left < 6 or memcmp(at, b"\\u00", 4) != 0:
        return 0
    digit = at[5]
    if at[4] == b"0":
        return 6 if b"0" <= digit <= b"7" or digit in (b"b", b"e", b"f") else 0
    if at[4] == b"1":
        return 6 if b"0" <= digit <= b"9" or b"a" <= digit <= b"f" else 0
    return 0


cdef bint read_string(Scan *scan) noexcept nogil:
    cdef const uint8_t *at = scan.at
    cdef const uint8_t *end = scan.end
    cdef Py_ssize_t fewer = 0  # units than bytes
    cdef int kind, size
    scan.escaped = False
    if at == end or at[0] != b'"':
        return False
    at += 1
    while True:
        while at != end and KINDS[at[0]] == PLAIN:
            at += 1
        if at == end:
            return False
        kind = KINDS[at[0]]
        if kind == QUOTE:
            break
        if kind == ESCAPE:
            size = escape_size(at, end - at)
            scan.escaped = True
        else:
            size = wide_size(at, end - at)
            fewer += 2 if size == 4 else size - 1
        if size == 0:
            return False
        at += size
    scan.string_units = at - scan.at - 1 - fewer
    scan.units -= fewer
    at += 1
    if not put(scan, scan.at, at - scan.at):
        return False
    scan.at = at
    return True


cdef bint read_number(Scan *scan) noexcept:
    cdef const uint8_t *start = scan.at
    cdef const uint8_t *at = start
    cdef const uint8_t *end = scan.end
    cdef const uint8_t *whole
    cdef Py_ssize_t digits = 0, zeros = 0
    cdef bint is_small
    if at != end and at[0] == b"-":
        at += 1
    whole = at
    while at != end and b"0" <= at[0] <= b"9":
        at += 1
    if at == whole or (whole[0] == b"0" and at - whole > 1):
        return False
    is_small = whole[0] == b"0"
    digits = at - whole
    if at == end or at[0] != b".":
        if digits > DIGITS_SAFE or (is_small and whole != start):
            return False
    else:
        at += 1
        whole = at
        while at != end and b"0" <= at[0] <= b"9":
            if is_small and at[0] == b"0" and zeros == at - whole:
                zeros += 1
            at += 1
        if at == whole or (at - 1)[0] == b"0":
            return False
        digits = at - whole - zeros if is_small else digits + (at - whole)
        if digits > DIGITS_MAX:
            return False
        if digits > DIGITS_SAFE:
            if not is_written_so(start, at - start):
                return False
        elif zeros > 5:
            return False
    if not put(scan, start, at - start):
        return False
    scan.at = at
    return True


cdef bint is_written_so(const uint8_t *data, Py_ssize_t size) noexcept:
    cdef bytes number = PyBytes_FromStringAndSize(<const char *> data, size)
    return repr(float(number)) == number.decode()


cdef bint read_value(Scan *scan, int depth) noexcept:
    cdef uint8_t first
    cdef const uint8_t *start = scan.at
    if start == scan.end:
        return False
    first = start[0]
    if first == b'"':
        return read_string(scan)
    if first == b"{":
        return read_object(scan, depth + 1)
    if first == b"[":
        return read_list(scan, depth + 1)
    if first == b"t":
        return expect(scan, b"true", 4) and put(scan, start, 4)
    if first == b"f":
        return expect(scan, b"false", 5) and put(scan, start, 5)
    if first == b"n":
        return expect(scan, b"null", 4) and put(scan, start, 4)
    return read_number(scan)


cdef bint read_list(Scan *scan, int depth) noexcept:
    if expect(scan, b"[]", 2):
        return put(scan, b"[]", 2)
    if depth > DEPTH_MAX:
        return False
    while True:
        # The bracket or the comma.
        if not put(scan, scan.at, 1):
            return False
        scan.at += 1
        if not put_line(scan, depth + 1) or not read_value(scan, depth):
            return False
        if scan.at == scan.end:
            return False
        if scan.at[0] == b"]":
            scan.at += 1
            return put_line(scan, depth) and put(scan, b"]", 1)
        if scan.at[0] != b",":
            return False


cdef inline bint is_new(Scan *scan, int first, const uint8_t *start, Py_ssize_t size) noexcept nogil:
    cdef int index
    for index in range(first, scan.keys):
        if scan.key[index].size == size and memcmp(scan.key[index].start, start, size) == 0:
            return False
    return True


cdef bint read_key(Scan *scan, int first) noexcept nogil:
    cdef const uint8_t *start = scan.at
    cdef Py_ssize_t size
    if not read_string(scan):
        return False
    size = scan.at - start
    if b"0" <= start[1] <= b"9" or scan.keys - first == KEYS_MAX:
        return False
    if not is_new(scan, first, start, size):
        return False
    scan.key[scan.keys].start = start
    scan.key[scan.keys].size = size
    scan.keys += 1
    return expect(scan, b":", 1) and put(scan, b": ", 2)


cdef bint read_object(Scan *scan, int depth) noexcept:
    cdef int first = scan.keys
    cdef bint has_type = False
    cdef bint is_type
    if depth > 1 and expect(scan, b"{}", 2):
        return put(scan, b"{}", 2)
    if depth > DEPTH_MAX:
        return False
    while True:
        # The brace or the comma.
        if not put(scan, scan.at, 1):
            return False
        scan.at += 1
        if not put_line(scan, depth + 1) or not read_key(scan, first):
            return False
        is_type = depth == 1 and scan.key[scan.keys - 1].size == 6 and memcmp(
            scan.key[scan.keys - 1].start, b'"type"', 6
        ) == 0
        if is_type:
            has_type = True
            if not read_string(scan) or scan.escaped:
                return False
            if not TYPE_UNITS_MIN <= scan.string_units <= TYPE_UNITS_MAX:
                return False
        elif not read_value(scan, depth):
            return False
        if scan.at == scan.end:
            return False
        if scan.at[0] == b"}":
            break
        if scan.at[0] != b",":
            return False
    scan.at += 1
    scan.keys = first
    if depth == 1 and not has_type:
        return False
    return put_line(scan, depth) and put(scan, b"}", 1)


cdef bint read_content(Scan *scan) noexcept:
    cdef const uint8_t *start = scan.at
    cdef Py_ssize_t size
    if start == scan.end:
        return False
    if start[0] == b"{":
        return read_object(scan, 1)
    if not read_string(scan) or scan.escaped:
        return False
    size = scan.at - start
    if size >= 6 and memcmp(scan.at - 5, b'.box"', 5) == 0:
        return True
    return size >= 7 and memcmp(scan.at - 6, b'.box2"', 6) == 0


cdef bint read_previous(Scan *scan, bint *has_previous) noexcept nogil:
    cdef const uint8_t *start = scan.at
    has_previous[0] = False
    if expect(scan, b"null", 4):
        return put(scan, start, 4)
    has_previous[0] = True
    if not expect(scan, b'"%', 2) or not base64(scan, 43, 3) or not expect(scan, b'=.sha256"', 9):
        return False
    return put(scan, start, scan.at - start)


cdef bint read_author(Scan *scan, const uint8_t **author) noexcept nogil:
    cdef const uint8_t *start
    if not expect(scan, b'"author":', 9) or not put(scan, b'"author": ', 10):
        return False
    start = scan.at
    author[0] = start + 1
    if not expect(scan, b'"@', 2) or not base64(scan, 43, 3) or not expect(scan, b'=.ed25519"', 10):
        return False
    return put(scan, start, scan.at - start)


cdef bint read_sequence(Scan *scan, int64_t *sequence) noexcept nogil:
    cdef const uint8_t *start
    if not expect(scan, b'"sequence":', 11) or not put(scan, b'"sequence": ', 12):
        return False
    start = scan.at
    sequence[0] = 0
    while scan.at != scan.end and b"0" <= scan.at[0] <= b"9" and scan.at - start <= DIGITS_SAFE:
        sequence[0] = 10 * sequence[0] + scan.at[0] - 48
        scan.at += 1
    if scan.at == start or scan.at - start > DIGITS_SAFE or start[0] == b"0":
        return False
    return put(scan, start, scan.at - start)


cdef bint read_signature(Scan *scan) noexcept nogil:
    cdef const uint8_t *start
    if not expect(scan, b',"signature":', 13) or not put(scan, b',\n  "signature": ', 17):
        return False
    start = scan.at
    if not expect(scan, b'"', 1) or not base64(scan, 86, 15):
        return False
    if not expect(scan, b'==.sig.ed25519"', 15) or not put(scan, start, scan.at - start):
        return False
    return expect(scan, b"}", 1) and put(scan, b"\n}", 2) and scan.at == scan.end


def scan(bytes data not None):
    cdef Scan scan
    cdef uint8_t[TEXT_SIZE_MAX] room
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef const uint8_t *author = NULL
    cdef const uint8_t *timestamp
    cdef const uint8_t *timestamp_end
    cdef const uint8_t *content
    cdef const uint8_t *content_end
    cdef int64_t sequence = 0
    cdef bint has_previous = False
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    if size > DATA_SIZE_MAX:
        return None
    scan.at, scan.end = start, start + size
    scan.target, scan.limit = room, room + TEXT_SIZE_MAX
    scan.units = scan.keys = 0
    if not expect(&scan, b'{"previous":', 12) or not put(&scan, b'{\n  "previous": ', 16):
        return None
    if not read_previous(&scan, &has_previous):
        return None
    if not expect(&scan, b",", 1) or not put(&scan, b",\n  ", 4):
        return None
    if scan.at != scan.end and scan.end - scan.at > 1 and scan.at[1] == b"s":
        if not read_sequence(&scan, &sequence) or not expect(&scan, b",", 1):
            return None
        if not put(&scan, b",\n  ", 4) or not read_author(&scan, &author):
            return None
    else:
        if not read_author(&scan, &author) or not expect(&scan, b",", 1):
            return None
        if not put(&scan, b",\n  ", 4) or not read_sequence(&scan, &sequence):
            return None
    if has_previous == (sequence == 1):
        return None
    if not expect(&scan, b',"timestamp":', 13) or not put(&scan, b',\n  "timestamp": ', 17):
        return None
    timestamp = scan.at
    if not read_number(&scan):
        return None
    timestamp_end = scan.at
    if not expect(&scan, b',"hash":"sha256","content":', 27):
        return None
    if not put(&scan, b',\n  "hash": "sha256",\n  "content": ', 35):
        return None
    content = scan.at
    if not read_content(&scan):
        return None
    content_end = scan.at
    if not read_signature(&scan) or scan.target - room + scan.units > UNITS_MAX:
        return None
    return (
        PyBytes_FromStringAndSize(<const char *> room, scan.target - room),
        sequence,
        author - start,
        timestamp - start,
        timestamp_end - start,
        content - start,
        content_end - start,
    )
