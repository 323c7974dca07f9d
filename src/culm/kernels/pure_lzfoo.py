"""LZFoo: the specification of `culm.kernels._lzfoo`, in plain code.

Compressed data is a sequence of elements.  An element's first byte holds its kind in the
top bit, 0 for a literal and 1 for a copy, and in the other bits its length, if that is
below 120; 120..127 announce 1..8 bytes with the length, big-endian.  A literal's bytes
follow; a copy is followed by a VarU64 offset, counted back from the end of the output so far,
and may be longer than its offset.  Source: AljoschaMeyer/lzfoo.

The format leaves the compressor free.  Ours gives the same bytes as its compiled twin and
on every machine:

- A table of ``2**bits`` entries, indexed by a hash of six bytes, holds where such bytes
  were seen last, as a position in the stream: modulo 2**16 if the window is not larger,
  else modulo 2**32.  It grows with the history, all of which then enters the larger one.
- A match starts there, if it has at least six bytes, is within the window and saves at least
  two bytes.  None starts in the last seven bytes.
- As long as a match is short, a better one that starts one or two bytes later is taken
  instead: one that makes the packet shorter, if far offsets are taken to cost two bytes.
- Equal bytes before the match are added to it.
- Four places of the match are entered into the table, and every place that was looked at.
- After every 64 places without a match the step grows by one: incompressible data costs little
  time.
- A large packet after others is cut after one window.  The rest of it can be looked at
  where it is, because nothing before the packet is near enough to be copied.

The second level takes more time, and makes fewer bytes:

- Instead of the table there are chains: a table of ``2**bits`` entries, indexed by a hash of
  four bytes, says where each begins, and each of the last ``2**(bits + 1)`` places which is next.
- For each place the 16 nearest candidates are looked at, and the longest copy from less than
  248 bytes back is kept, and the longest from anywhere if that is longer still.
- For up to 8,192 places, from the last one on, the cheapest elements are found.  A copy that
  saves less than two bytes is not taken.
- A copy of 64 bytes and more is taken at once, and the places that it covers are not looked at:
  with that, the work for a byte is limited.

Kernels know nothing of the rest of culm: faults in the data are numbers with a position,
which `culm.wire.lzfoo` turns into errors.  Wrong calls raise.
"""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview

# Faults: an element is longer than the rest of the packet; a copy's offset is zero, or points
# before the history or the window; there are bytes after the packet's end.
BAD_LENGTH = 1
ZERO_OFFSET = 2
FAR_OFFSET = 3
TRAILING = 4

WINDOW_MAX = 2**30

_COPY = 0x80
_LONG = 120
_WIDE = 248

_SEQUENCE = 6
_PLACE = 8  # bytes at a place where a match may start
_STEP_BITS = 6
_LATER = 2
_GOOD = 20
_TABLE_BITS_MIN = 8
_TABLE_BITS_MAX = 17
_NARROW = 2**16
_CUT_SIZE_MIN = 32768
_MULTIPLIER = 0x9E3779B185EBCA87

_CHAINS_BITS_MAX = 19
_CHAINS_MULTIPLIER = 0x9E3779B1
_CANDIDATES = 16
_LONG_ENOUGH = 64
_BLOCK = 8192
_COPY_SIZE_MIN = 4


class Compressor:
    """One direction's history, and packets made with its help.

    `window` is how far back copies may point: 0..WINDOW_MAX bytes.  With 0 there are
    literals only.  `level`: 1 is quick, 2 thorough.  The compiled twin takes memory for two
    windows at most, a table of up to one window or 512 KiB (for level 2 six windows or 6 MiB),
    and the memory of one packet, and only as data comes.
    """

    def __init__(self, window: int, level: int = 1) -> None:
        self.window = _checked_window(window)
        if level not in (1, 2):
            raise ValueError(f"a level is 1 or 2, not {level}")
        self.level = level
        self._modulus = 2**16 if level == 1 and window <= _NARROW else 2**32
        # Made with the first packet: who sends none needs none.
        self._table: list[int] = []  # of the second level the beginnings of chains,
        self._links: list[int] = []  # and the links
        self._shift = 64
        self._data = bytearray()  # the history and then the packet at hand
        self._base = 0  # the position of its first byte in the stream

    def compress(self, data: Buffer, size_max: int | None = None) -> bytes | None:
        """The elements for `data`, which then belongs to the history.

        They take at most ``len(data) + len(data) // 256 + 2`` bytes.  If they would take
        more than `size_max`, the result is ``None`` and nothing has changed.
        """
        if size_max is not None and size_max < 0:
            raise ValueError("size_max is negative")
        octets = _octets(data)
        if not octets:
            return b""
        if not self.window:
            packet = _literal(octets)
            return packet if size_max is None or len(packet) <= size_max else None
        history_size, size = len(self._data), len(octets)
        saved = self._saved() if size_max is not None else None
        self._grow(size)
        if history_size and size > max(2 * self.window, _CUT_SIZE_MIN):
            packet = b"".join(map(self._elements, (octets[: self.window], octets[self.window :])))
        else:
            packet = self._elements(octets)
        if saved is not None and size_max is not None and len(packet) > size_max:
            self._table, self._links, self._shift = saved
            del self._data[history_size:]
            return None
        self._forget()
        return packet

    def rest(self) -> None:
        """Give back all memory but that of the history; the next packet makes the table anew."""
        self._table, self._links, self._shift = [], [], 64

    def _saved(self) -> tuple[list[int], list[int], int]:
        return self._table.copy(), self._links.copy(), self._shift

    def _grow(self, size: int) -> None:
        """Have a table as large as `size` more bytes call for, with all of the history in it."""
        wanted = min(self.window, len(self._data) + size)
        most = _TABLE_BITS_MAX if self.level == 1 else _CHAINS_BITS_MAX
        bits = max(_TABLE_BITS_MIN, min(most, (wanted - 1 | 1).bit_length() - 1))
        if self._table and bits <= 64 - self._shift:
            return
        self._table, self._shift = [0] * (1 << bits), 64 - bits
        self._links = [0] * (2 << bits) if self.level > 1 else []
        first = max(0, len(self._data) - self.window)
        for place in range(first, len(self._data) - _PLACE + 1):
            self._enter(place) if self.level == 1 else self._chain(place)

    def _elements(self, octets: bytes | memoryview) -> bytes:
        """The elements for `octets`, which are appended to the history."""
        start = len(self._data)
        self._data += octets
        return self._quick_elements(start) if self.level == 1 else self._thorough_elements(start)

    def _quick_elements(self, here: int) -> bytes:
        """The elements for the data from index `here` on, at the first level."""
        packet = bytearray()
        pending = here  # from here on nothing is written yet
        last = len(self._data) - _PLACE
        effort = 1 << _STEP_BITS
        while here <= last:
            distance = self._enter(here)
            following = here + (effort >> _STEP_BITS)
            if following > last:
                break
            length = self._match(here, distance)
            if not length:
                here = following
                effort += 1
                continue
            effort = 1 << _STEP_BITS
            here, length, distance = self._better(here, length, distance)
            while (
                here > pending
                and here > distance
                and self._data[here - 1] == self._data[here - 1 - distance]
            ):
                here, length = here - 1, length + 1
            packet += _literal(self._data[pending:here])
            packet += _header(_COPY, length) + _varu64(distance)
            pending = here + length
            if pending <= last:
                for place in (here + 1, here + 3, pending - 4, pending - 2):
                    self._enter(place)
            here = pending
        packet += _literal(self._data[pending:])
        return bytes(packet)

    def _better(self, here: int, length: int, distance: int) -> tuple[int, int, int]:
        """The place, length and distance of the better match, or of the given one."""
        last = len(self._data) - _PLACE
        later = 1
        while length < _GOOD and later <= _LATER and here + later <= last:
            following = here + later
            other = self._enter(following)
            longer = self._match(following, other)
            # So long a copy would be shorter by a byte, with the literals before it.
            if longer and longer >= length + later - _far(distance) + _far(other):
                here, length, distance, later = following, longer, other, 0
            later += 1
        return here, length, distance

    def _enter(self, here: int) -> int:
        """Enter a place into the table; how far back the one is that was there."""
        sequence = int.from_bytes(self._data[here : here + _SEQUENCE], "little") << 16
        slot = sequence * _MULTIPLIER % 2**64 >> self._shift
        position = (self._base + here) % self._modulus
        before, self._table[slot] = self._table[slot], position
        return (position - before) % self._modulus

    def _match(self, here: int, distance: int) -> int:
        """Length of the match from so far back, 0 if there is none that pays."""
        if not 1 <= distance <= min(self.window, here):
            return 0
        length = _common(self._data, here - distance, here)
        return length if length >= max(_SEQUENCE, 3 + len(_varu64(distance))) else 0

    def _thorough_elements(self, here: int) -> bytes:
        """The elements for the data from index `here` on, at the second level."""
        packet = bytearray()
        pending = start = here  # from `start` on places have yet to be weighed
        found: list[list[tuple[int, int]]] = []
        while here <= len(self._data) - _PLACE:
            copies = self._copies(here)
            length, distance = copies[-1] if copies else (0, 0)
            if length >= _LONG_ENOUGH:
                pending = self._put_cheapest(packet, pending, start, found)
                packet += _literal(self._data[pending:here])
                packet += _header(_COPY, length) + _varu64(distance)
                pending = start = here + length
                for place in range(here + 1, min(pending, len(self._data) - _PLACE + 1)):
                    self._chain(place)
                here, found = pending, []
                continue
            found.append(copies)
            here += 1
            if len(found) == _BLOCK:
                pending = self._put_cheapest(packet, pending, start, found)
                start, found = here, []
        found += [[]] * (len(self._data) - here)
        pending = self._put_cheapest(packet, pending, start, found)
        packet += _literal(self._data[pending:])
        return bytes(packet)

    def _chain(self, here: int) -> int:
        """Put a place before those with the same four bytes; the position of the first of them."""
        octets = int.from_bytes(self._data[here : here + _COPY_SIZE_MIN], "little")
        slot = octets * _CHAINS_MULTIPLIER % 2**32 >> self._shift - 32
        position = (self._base + here) % 2**32
        before, self._table[slot] = self._table[slot], position
        self._links[position % len(self._links)] = before
        return before

    def _copies(self, here: int) -> list[tuple[int, int]]:
        """Chain a place, and find the longest copies for it: length and distance.

        First that from near by, then the longest of all, if that is another one.
        """
        data, candidate = self._data, self._chain(here)
        reach = min(self.window, here, len(self._links))
        near, longest, last = (0, 0), (0, 0), 0
        for _ in range(_CANDIDATES):
            away = (self._base + here - candidate) % 2**32
            # Links to places outside the window lead anywhere, but never further back in order.
            if not last < away <= reach:
                break
            last = away
            end = here + longest[0]  # no longer one has another byte there
            length = _common(data, here - away, here) if data[end] == data[end - away] else 0
            if length >= _COPY_SIZE_MIN and length > longest[0]:
                longest = length, away
                near = longest if away < _WIDE else near
                if length >= _LONG_ENOUGH or here + length == len(data):
                    break
            candidate = self._links[candidate % len(self._links)]
        return [copy for copy in dict.fromkeys((near, longest)) if copy[0]]

    def _put_cheapest(
        self, packet: bytearray, pending: int, start: int, found: list[list[tuple[int, int]]]
    ) -> int:
        """Write the cheapest elements from `start` on; returns where the unwritten bytes begin."""
        in_literal, after_copy = _weighed(found)
        here, stop = start, start + len(found)
        while here < stop:
            copy = (in_literal if here > pending else after_copy)[here - start]
            if copy is None:
                here += 1
                continue
            length, distance = copy
            packet += _literal(self._data[pending:here])
            packet += _header(_COPY, length) + _varu64(distance)
            pending = here = here + length
        return pending

    def _forget(self) -> None:
        """Drop bytes older than the window, seldom enough to cost little."""
        old = len(self._data) - self.window
        if old >= max(self.window, 4096):
            del self._data[:old]
            self._base += old


class Decompressor:
    """One direction's history, and packets decoded with its help, in any pieces.

    `window` is how far back copies may point: 0..WINDOW_MAX bytes.  Takes memory for the
    window at most, and only as data comes.
    """

    def __init__(self, window: int) -> None:
        self.window = _checked_window(window)
        # Bytes of the packet that are still to be made, and compressed bytes of it read.
        self.remaining = 0
        self.position = 0
        # The fault, if not 0, and the compressed byte of the packet at which it is.
        self.fault = 0
        self.fault_position = 0
        self._history = bytearray()
        self._header = bytearray()  # the element's first byte, length and offset so far
        self._literal = 0  # bytes of the element that are still to be appended,
        self._copy = 0  # of either kind
        self._distance = 0

    @property
    def pending(self) -> bool:
        """`decode` has something to say without further input."""
        return self._copy > 0 or self.fault != 0

    @property
    def between_elements(self) -> bool:
        """No element is begun and not complete."""
        return not (self._header or self._literal or self._copy)

    def begin(self, size: int) -> None:
        """Declare the next packet: `size` bytes, uncompressed, 0..2**64-1.

        Raises ``ValueError`` if the packet before is at fault or not complete.
        """
        if not 0 <= size < 2**64:
            raise ValueError(f"a packet's size is 0..2**64-1, not {size}")
        if self.fault or self.remaining:
            raise ValueError("the packet before is at fault or not complete")
        self.remaining = size
        self.position = 0

    def decode(self, data: Buffer, offset: int, out_max: int) -> tuple[bytes, int]:
        """Decode ``data[offset:]``: the output, and the number of bytes read.

        Goes on until the input is read, `out_max` bytes are made, the packet is complete
        or a fault is found.  After a fault nothing more is made.
        """
        octets = _octets(data)
        if not 0 <= offset <= len(octets):
            raise ValueError("offset is outside the data")
        if out_max < 0:
            raise ValueError("out_max is negative")
        if self.fault:
            return b"", 0
        if not self.remaining and offset < len(octets):
            self._fail(TRAILING, self.position)
        room = min(out_max, self.remaining)
        start = len(self._history)
        read = self._run(octets[offset:], start + room)
        output = bytes(memoryview(self._history)[start:])
        self._forget()
        return output, read

    def _run(self, data: bytes | memoryview, limit: int) -> int:
        """Append to the history, up to `limit` bytes in all; return how many were read."""
        read = 0
        while not self.fault and len(self._history) < limit:
            room = limit - len(self._history)
            if self._literal:
                if read == len(data):
                    break
                piece = data[read : read + min(room, self._literal)]
                self._literal -= len(piece)
                self._append(piece)
                read += len(piece)
                self.position += len(piece)
            elif self._copy:
                size = min(room, self._copy)
                self._copy -= size
                self._append(self._recall(size))
            else:
                if read == len(data):
                    break
                self._header.append(data[read])
                read += 1
                self.position += 1
                self._parse_header()
        return read

    def _parse_header(self) -> None:
        """Look at the element's bytes after each one of them."""
        header = self._header
        start = self.position - len(header)
        offset_at = 1 + max(0, header[0] % _COPY - (_LONG - 1))
        if len(header) < offset_at:
            return
        length = int.from_bytes(header[1:offset_at], "big") if offset_at > 1 else header[0] % _COPY
        if length > self.remaining:
            self._fail(BAD_LENGTH, start)
        elif header[0] < _COPY:
            self._literal = length
            header.clear()
        elif len(header) > offset_at:
            octets = max(0, header[offset_at] - (_WIDE - 1))
            if len(header) == offset_at + 1 + octets:
                self._distance = int.from_bytes(header[offset_at + (octets > 0) :], "big")
                self._start_copy(length, start + offset_at)

    def _start_copy(self, length: int, offset_position: int) -> None:
        if self._distance == 0:
            self._fail(ZERO_OFFSET, offset_position)
        elif self._distance > min(self.window, len(self._history)):
            self._fail(FAR_OFFSET, offset_position)
        else:
            self._copy = length
            self._header.clear()

    def _recall(self, size: int) -> bytes:
        """The next `size` bytes of the copy: the last `distance` bytes, repeated."""
        start = len(self._history) - self._distance
        period = bytes(self._history[start : start + size])
        return (period * (size // len(period) + 1))[:size]

    def _append(self, data: bytes | memoryview) -> None:
        self._history += data
        self.remaining -= len(data)

    def _fail(self, fault: int, position: int) -> None:
        self.fault = fault
        self.fault_position = position

    def _forget(self) -> None:
        """Drop bytes older than the window, seldom enough to cost little."""
        old = len(self._history) - self.window
        if old >= max(self.window, 4096):
            del self._history[:old]


def _checked_window(window: int) -> int:
    if not 0 <= window <= WINDOW_MAX:
        raise ValueError(f"a window is 0..{WINDOW_MAX} bytes, not {window}")
    return window


def _octets(data: Buffer) -> bytes | memoryview:
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the buffer is not contiguous")
    return view.cast("B")


def _common(data: bytearray, one: int, other: int) -> int:
    """The number of equal bytes from `one` and from `other` on, the later index."""
    length, step = 0, 1
    while step:
        end = other + length + step
        if end <= len(data) and data[one + length : end - other + one] == data[end - step : end]:
            length += step
            step *= 2
        else:
            step //= 2
    return length


_Copies = list[tuple[int, int] | None]


def _weighed(found: list[list[tuple[int, int]]]) -> tuple[_Copies, _Copies]:
    """For each place the copy with which the rest costs least, or None for a literal.

    First for the case that a literal goes on there, then for any other.  A longer rest costs no
    less: of the copies from one distance the longest is always the best.
    """
    in_literal: _Copies = [None] * len(found)
    after_copy: _Copies = [None] * len(found)
    literal_costs, copy_costs = [0] * (len(found) + 1), [0] * (len(found) + 1)
    for index in reversed(range(len(found))):
        best, cost = None, 2**32
        for whole, distance in found[index]:
            length = min(whole, len(found) - index)
            size = len(_header(_COPY, length) + _varu64(distance))
            if length >= _COPY_SIZE_MIN and size + copy_costs[index + length] < cost:
                best, cost = (length, distance), size + copy_costs[index + length]
        literal_costs[index] = 1 + literal_costs[index + 1]
        copy_costs[index] = 2 + literal_costs[index + 1]
        if cost + 1 < literal_costs[index]:
            in_literal[index], literal_costs[index] = best, cost
        if cost + 1 < copy_costs[index]:
            after_copy[index], copy_costs[index] = best, cost
    return in_literal, after_copy


def _far(distance: int) -> int:
    """How many bytes a copy from there takes more than one from near by."""
    return 0 if distance < _WIDE else 2


def _literal(data: bytes | bytearray | memoryview) -> bytes:
    return _header(0, len(data)) + data if data else b""


def _header(kind: int, length: int) -> bytes:
    if length < _LONG:
        return bytes([kind | length])
    octets = (length.bit_length() + 7) // 8
    return bytes([kind | _LONG - 1 + octets]) + length.to_bytes(octets, "big")


def _varu64(value: int) -> bytes:
    if value < _WIDE:
        return bytes([value])
    octets = (value.bit_length() + 7) // 8
    return bytes([_WIDE - 1 + octets]) + value.to_bytes(octets, "big")
