"""Fields, and the reader that splits bytes into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from culm.machine import ProtocolError
from culm.wire import varu64
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

if TYPE_CHECKING:  # the codecs of hashes wait for libraries that others do without
    from culm.wire.multihash import HashFamily

UNREAD = "unread"
"""The name of the bytes after a fault; the value names one that concerns these bytes alone."""

MORE = "more fields"
"""The name of the last field of an item that has no room for others."""
FIELDS_MAX = 1 << 18
"""How many fields an item has, those inside others included."""

_OWED_MIN = 1 << 12

CODES = {"B": 1, "I": 4, "i": 4, "Q": 8}
"""The sizes of numbers in a struct."""


@dataclass(frozen=True, slots=True)
class Field:
    """A named part of some bytes.

    offset, size: in bytes, from the beginning of all that was dissected.
    value: as the codec reads it; ``None`` for bytes that stand for themselves, and where the parts
        say it.
    inside: the parts, in order and without gaps.  Signs between the values of a text syntax are
        parts without a name.
    continues: whether more of it follows elsewhere, or is missing.
    """

    name: str
    offset: int
    size: int
    value: object = None
    inside: tuple[Field, ...] = ()
    continues: bool = False


@dataclass(frozen=True, slots=True)
class DissectionFault:
    """The reason why the rest is `UNREAD`; ``TRUNCATED`` if more bytes could go on."""

    offset: int
    code: str
    message: str

    @property
    def is_short(self) -> bool:
        """Whether the bytes are right as far as they go."""
        return self.code == "TRUNCATED"


@dataclass(frozen=True, slots=True)
class Dissection:
    """Bytes as fields, which cover all of them, and the first fault."""

    fields: tuple[Field, ...]
    fault: DissectionFault | None = None


def leaves(fields: Sequence[Field]) -> Iterator[Field]:
    """The fields without parts, in order."""
    for each in fields:
        if each.inside:
            yield from leaves(each.inside)
        else:
            yield each


class Group:
    """A field that is being put together; its name and value may be known late."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: object = None

    def call(self, name: str) -> None:
        """Give it another name."""
        self.name = name

    def tell(self, value: object) -> None:
        """Give it a value."""
        self.value = value


class FieldReader:
    """Splits bytes into fields, from the front.

    Its methods raise `Truncated` where bytes are missing; those that are there are a field then.
    Only large bytes that stand for themselves, at the end, need not be there (`owed`).
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.owed = 0
        """Bytes of the last field that are still to come."""
        self.owed_in: list[Group] = []
        """The groups of that field, and last the field itself."""
        self.count = 0
        """The fields since they were taken last, those inside others included."""
        self._open: list[list[Field]] = [[]]
        self._groups: list[Group] = []
        self._cut = False  # some of the bytes to take are missing
        self._bound = 0  # how many judges and limits want all bytes

    @property
    def left(self) -> int:
        """Bytes that are not in a field yet."""
        return self.end - self.at

    def taken(self) -> tuple[Field, ...]:
        """The fields since this was asked last."""
        fields = tuple(self._open[0])
        self._open[0].clear()
        self.count = 0
        return fields

    def add(self, name: str, size: int, value: object = None) -> None:
        """Let the next `size` bytes be a field."""
        if size > self.left:
            if self.left:
                self._put(Field(name, self.at, self.left, continues=True))
                self.at = self.end
            raise Truncated(self.end)
        if size:
            self._put(Field(name, self.at, size, value))
            self.at += size

    def _put(self, field: Field) -> None:
        """Keep a field; without room for it, as a part of one that stands for all such."""
        fields = self._open[-1]
        if self.count < FIELDS_MAX:
            self.count += 1
            fields.append(field)
        else:
            first = fields.pop() if fields and fields[-1].name == MORE else field
            size = field.offset + field.size - first.offset
            fields.append(Field(MORE, first.offset, size, continues=field.continues))

    def peek(self, size: int) -> bytes:
        """The next bytes, at most `size`."""
        return self.data[self.at : min(self.at + size, self.end)]

    def raw(self, name: str, size: int) -> bytes:
        """Take bytes that stand for themselves."""
        taken = self.peek(size)
        missing = size - self.left
        if missing > 0 and size >= _OWED_MIN and not (self._bound or self.owed):
            if self.left:
                self._open[-1].append(Field(name, self.at, self.left, continues=True))
            self.at, self.owed = self.end, missing
            self.owed_in = [*self._groups, Group(name)]
        else:
            self.add(name, size)
        return taken

    def uint(self, name: str, size: int, read: Callable[[int], object] = int) -> int:
        """Take a number, big-endian.

        read: makes of it the value to show.
        """
        number = int.from_bytes(self.peek(size), "big")
        self.add(name, size, read(number) if size <= self.left else None)
        return number

    def varu64(self, name: str, *, canonical: bool = False) -> int:
        """Take a VarU64."""
        try:
            number, end = varu64.decode(self.data, self.at, canonical=canonical)
        except Truncated:
            end = self.end + 1
            number = 0
        self.add(name, end - self.at, number)
        return number

    def hash(self, name: str, family: HashFamily) -> bytes:
        """Take an encoded hash; its value is the whole encoding."""
        try:
            encoded, end = family.decode(self.data, self.at)
        except Truncated:
            encoded, end = b"", self.end + 1
        self.add(name, end - self.at)
        return encoded

    def struct(self, layout: Struct, names: Sequence[str]) -> list[int]:
        """Take numbers as a struct has them, one for each name."""
        numbers = []
        for code, name in zip(layout.format[1:], names, strict=True):
            size = CODES[code]
            number = int.from_bytes(self.peek(size), "big", signed=code.islower())
            self.add(name, size, number)
            numbers.append(number)
        return numbers

    @contextmanager
    def group(self, name: str) -> Iterator[Group]:
        """Let all fields taken inside be parts of one."""
        group, start, is_full = Group(name), self.at, self.count >= FIELDS_MAX
        self.count += not is_full
        self._open.append([])
        self._groups.append(group)
        try:
            yield group
        finally:
            self._groups.pop()
            inside = tuple(self._open.pop())
            if inside:
                size = self.at - start
                made = Field(group.name, start, size, group.value, inside)
                if is_full:
                    self._put(made)
                else:
                    self._open[-1].append(made)

    @contextmanager
    def within(self, size: int, *, alone: bool = False) -> Iterator[None]:
        """Take no more than `size` bytes, and all of them.

        alone: whether a fault concerns these bytes alone, and later ones are read.
        """
        outer, outer_cut, whole = self.end, self._cut, self.left >= size
        self.end = min(self.end, self.at + size)
        self._cut = outer_cut or not whole
        self._bound += 1
        try:
            yield
            if self.left:
                self.add("more bytes", self.left)
        except FAULTS as error:
            fault: Exception = error
            if whole and isinstance(error, Truncated):  # it is no lack of bytes that ends it
                fault = DecodeError(WireErrorCode.BAD_LENGTH, self.at, "cut short")
            if not (whole and alone):
                raise fault from None
            found = fault_of(fault, 0, self.at)
            self.add(UNREAD, self.left, f"{found.code}: {found.message}")
        finally:
            self._bound -= 1
            self.end, self._cut = outer, outer_cut
        if not whole:
            raise Truncated(outer)

    @contextmanager
    def judged(self, decode: Callable[[bytes, int], object]) -> Iterator[None]:
        """Let the codec judge the bytes taken inside, and name their fault.

        decode: the codec's function, for all bytes and an index.  It is not asked about bytes of
            which the end is known to be missing.
        """
        fault: Exception | None = None
        outer = self.end
        try:
            if not self._cut:
                decode(self.data, self.at)
        except FAULTS as error:
            fault = error
            if isinstance(error, DecodeError) and not isinstance(error, Truncated):
                self.end = max(self.at, min(self.end, error.offset))
        self._bound += 1
        try:
            yield
        except FAULTS:
            if fault is None:
                raise
        finally:
            self._bound -= 1
            self.end = outer
        if fault is not None:
            raise fault


FAULTS = (ValueError, ProtocolError)
"""The errors by which codecs say that bytes are wrong."""


def fault_of(error: Exception, first: int, at: int) -> DissectionFault:
    """An error that came up at the byte `at`, in the item that begins at `first`."""
    code = getattr(error, "code", None) or getattr(error, "reason", None)
    name = type(error).__name__ if code is None else code.name
    message = getattr(error, "message", None) or str(error)
    if isinstance(error, DecodeError):
        message = message.removesuffix(f" (at byte {error.offset})")
    return DissectionFault(max(first, min(at, getattr(error, "offset", at))), name, message)
