"""Entries that are not valid, of every kind: some that others accept, some that no peer should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nacl.signing import SigningKey
from p2panda_nodes import OTHER, SCHEMA

from culm.bamboo import LogKey
from culm.bamboo.entry import decode, sign
from culm.p2panda import Action, Operation, Reason
from culm.p2panda.effects import NewOperation
from culm.p2panda.messages import SendEntry
from culm.wire import cbor
from culm.wire.multihash import YASMF

KEY = SigningKey(b"p" * 32)


def signed(payload: bytes, log_id: int, seqnum: int = 1, **of: Any) -> SendEntry:
    """An entry with a valid signature, whatever its content."""
    entry = sign(KEY, family=YASMF, log_id=log_id, seqnum=seqnum, payload=payload, **of)
    return SendEntry(0, entry.encode(), payload)


def creation(name: str = "x", schema_id: str = SCHEMA) -> bytes:
    operation = Operation(action=Action.CREATE, schema_id=schema_id, fields={"name": name})
    return operation.encode()


def update(*previous: bytes, schema_id: str = SCHEMA) -> bytes:
    operation = Operation(
        action=Action.UPDATE,
        schema_id=schema_id,
        previous=tuple(sorted(previous)),
        fields={"name": "y"},
    )
    return operation.encode()


def with_field(encoded: bytes) -> bytes:
    """A creation of one field, whose value has this encoding."""
    front = b"".join(map(cbor.encode, (1, 0, SCHEMA)))
    return b"\x84" + front + b"\xa1" + cbor.encode("n") + encoded


def many_fields(count: int) -> bytes:
    front = b"".join(map(cbor.encode, (1, 0, SCHEMA)))
    names = (cbor.encode(f"f{number:04}") + b"\x01" for number in range(count))
    return b"\x84" + front + cbor.encode_head(5, count) + b"".join(names)


#: Operations that p2panda-rs accepts, or might, and we do not.
LAX: dict[str, tuple[bytes, Reason]] = {
    "a 64-bit float of 1.5": (with_field(b"\xfb\x3f\xf8" + bytes(6)), Reason.NOT_CANONICAL),
    "a long integer": (with_field(b"\x1b" + bytes(7) + b"\x01"), Reason.NOT_CANONICAL),
    "an array without end": (b"\x9f" + creation()[1:] + b"\xff", Reason.NOT_CANONICAL),
    "trailing bytes": (creation() + b"\0", Reason.NOT_CANONICAL),
    "no CBOR": (b"\xff", Reason.NOT_CANONICAL),
    "1,025 fields": (many_fields(1025), Reason.WRONG_FORM),
    "a later version": (b"\x84\x02" + creation()[2:], Reason.UNKNOWN_VERSION),
    "a new action": (b"\x84\x01\x03" + creation()[3:], Reason.UNKNOWN_ACTION),
    "a schema id in capitals": (creation().replace(b"panda_00", b"panda_AA"), Reason.BAD_SCHEMA_ID),
    "a value of no type": (with_field(b"\xf6"), Reason.BAD_VALUE),
    "a field without a name": (creation().replace(b"dname", b"d na!"), Reason.BAD_FIELD_NAME),
    "another schema": (creation(schema_id=OTHER), Reason.NOT_REQUESTED),
}


def accepted(kind: str, log_id: int) -> NewOperation:
    """One of these in an entry, in the form kept by an implementation that accepts it."""
    payload, _ = LAX[kind]
    operation = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"name": "x"})
    object.__setattr__(operation, "_encoded", payload)
    entry = sign(KEY, family=YASMF, log_id=log_id, seqnum=1, payload=payload)
    return NewOperation(entry, operation, entry.hash())


@dataclass(frozen=True)
class Bad:
    """Entries sent among valid ones.

    before: valid entries that it depends on, which are stored.
    behind: entries that depend on it, and are left out with it.
    reason: why the first one is left out.
    """

    entry: SendEntry
    reason: Reason
    before: tuple[SendEntry, ...] = ()
    behind: tuple[SendEntry, ...] = ()

    @property
    def place(self) -> tuple[LogKey, int]:
        """Its log, and its number there."""
        found = decode(self.entry.entry, family=YASMF)
        return found.log, found.seqnum


def left_out() -> dict[str, Bad]:
    """Entries to leave out without blame: a peer may relay them without seeing the fault."""
    found = {name: Bad(signed(payload, 9), reason) for name, (payload, reason) in LAX.items()}
    for name in ("a 64-bit float of 1.5", "1,025 fields"):
        payload, reason = LAX[name]
        bad = signed(payload, 9)
        id = YASMF.hash(bad.entry)
        child = signed(update(id), 9, 2, backlink=id)
        found[f"{name}, and what depends on it"] = Bad(bad, reason, behind=(child,))
    one, two = signed(creation("one"), 9), signed(creation("two"), 10)
    first, second = YASMF.hash(one.entry), YASMF.hash(two.entry)
    made: dict[str, Callable[[], Bad]] = {
        "a gap": lambda: Bad(signed(update(first), 9, 2, backlink=first), Reason.GAP),
        "a wrong link": lambda: Bad(
            signed(update(first), 9, 2, backlink=second), Reason.WRONG_LINK, before=(one,)
        ),
        "an unknown previous": lambda: Bad(
            signed(update(YASMF.hash(b"ghost")), 11), Reason.UNKNOWN_PREVIOUS
        ),
        "two documents": lambda: Bad(
            signed(update(first, second), 11), Reason.SEVERAL_DOCUMENTS, before=(one, two)
        ),
        "a second creation": lambda: Bad(
            signed(creation(), 9, 2, backlink=first), Reason.OTHER_DOCUMENT, before=(one,)
        ),
        "another schema in the midst": lambda: Bad(
            signed(update(first, schema_id=OTHER), 9, 2, backlink=first),
            Reason.NOT_REQUESTED,
            before=(one,),
        ),
    }
    return {**found, **{name: make() for name, make in made.items()}}


GOOD = signed(creation(), 9)

#: A peer that looks at these may not pass them on: they end the session.
BLAMED: dict[str, tuple[SendEntry, Reason]] = {
    "no entry": (SendEntry(0, b"nothing", b""), Reason.MALFORMED_ENTRY),
    "a wrong signature": (
        SendEntry(0, GOOD.entry[:-1] + bytes([GOOD.entry[-1] ^ 1]), GOOD.operation),
        Reason.BAD_SIGNATURE,
    ),
    "another payload": (SendEntry(0, GOOD.entry, b"other"), Reason.WRONG_PAYLOAD),
    "a lax operation with a wrong signature": (
        SendEntry(
            0,
            signed(LAX["a long integer"][0], 9).entry[:-1] + b"\0",
            LAX["a long integer"][0],
        ),
        Reason.BAD_SIGNATURE,
    ),
}
