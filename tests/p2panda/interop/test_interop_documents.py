"""Documents written by p2panda-rs and culm together: operations are valid in both or in neither."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2panda_nodes import SCHEMA
from p2panda_peers import Documents, Refused, shown
from p2panda_victim import Victim
from peer_programs import running

from culm.bamboo.entry import sign
from culm.p2panda import Action, Author, Operation, OperationStored, Reason, materialise
from culm.p2panda.effects import StoredOperation
from culm.p2panda.messages import SendEntry
from culm.wire.multihash import YASMF

pytestmark = pytest.mark.interop

OURS = [SigningKey(bytes([number]) * 32) for number in (1, 2)]
THEIRS = [bytes([number]) * 32 for number in (3, 4, 5)]
BLOB = "relation(blob_v1)"
FIELDS = {
    "alive": "bool",
    "age": "int",
    "height": "float",
    "name": "str",
    "photo": "bytes",
    "friend": BLOB,
    "friends": f"relation_list({BLOB[9:-1]})",
    "pin": f"pinned_{BLOB}",
    "pins": f"pinned_relation_list({BLOB[9:-1]})",
}


def id_of(rng: Random) -> bytes:
    return YASMF.hash(rng.randbytes(8))


def ids_of(rng: Random, least: int) -> tuple[bytes, ...]:
    return tuple(sorted(id_of(rng) for _ in range(rng.randint(least, 3))))


VALUES: dict[str, Callable[[Random], Any]] = {
    "alive": lambda rng: rng.random() < 0.5,
    "age": lambda rng: rng.randint(-(2**63), 2**63 - 1) >> rng.randrange(64),
    "height": lambda rng: rng.choice((0.1, 1.5, -65504.0, 1e300, 100000.0, rng.random())),
    "name": lambda rng: "".join(rng.choices('aé\n"\u4e16\U0001f43c', k=rng.choice((0, 5, 300)))),
    "photo": lambda rng: rng.randbytes(rng.choice((0, 3, 300))),
    "friend": id_of,
    "friends": lambda rng: ids_of(rng, 0)[::-1],
    "pin": lambda rng: ids_of(rng, 1),
    "pins": lambda rng: tuple(ids_of(rng, 1) for _ in range(rng.randint(0, 3))),
}


def plain(value: Any) -> Any:
    """A value of a field for p2panda-rs."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value


class Together:
    """One history in both: each validates the other's operations."""

    def __init__(self, theirs: Documents, seed: int) -> None:
        self.theirs = theirs
        theirs.ask("schema", id=SCHEMA, fields=FIELDS)
        self.us = Victim()
        self.us.begin()
        self.documents: dict[bytes, list[bytes]] = {}
        """The operations of each, in order."""
        self.compared = self.odd = 0
        self._rng = Random(seed)
        self._authors = [Author(key, self.us.node.store) for key in OURS]

    def step(self) -> None:
        """One of the two creates or changes a document."""
        rng = self._rng
        if not self.documents or rng.random() < 0.2:
            made = self._write(None, {name: value(rng) for name, value in VALUES.items()}, ())
            self.documents[made] = [made]
        else:
            document_id = rng.choice(list(self.documents))
            names = rng.sample(list(VALUES), rng.randint(1, 4))
            fields = {name: VALUES[name](rng) for name in names}
            made = self._write(document_id, fields, self._some_view(document_id))
            self.documents[document_id].append(made)

    def delete(self, document_id: bytes) -> None:
        self.documents[document_id].append(
            self._write(document_id, None, self._document(document_id).tips)
        )

    def _some_view(self, document_id: bytes) -> tuple[bytes, ...]:
        """Operations, none of which comes after another one."""
        made = self.documents[document_id]
        known = made[: self._rng.randint(1, len(made))]
        operations = self.us.node.store.operations(document_id)
        tips = materialise({each: operations[each] for each in known}).tips
        return tuple(sorted(self._rng.sample(tips, self._rng.randint(1, len(tips)))))

    def _write(
        self, document_id: bytes | None, fields: dict[str, Any] | None, previous: tuple[bytes, ...]
    ) -> bytes:
        author = self._rng.choice([*self._authors, *THEIRS])
        if isinstance(author, Author):
            return self._write_ours(author, document_id, fields, previous)
        found = None if fields is None else {name: plain(each) for name, each in fields.items()}
        made = self.theirs.publish(author, SCHEMA, found, previous=previous)
        events = self.us.tell(
            SendEntry(0, bytes.fromhex(made["entry"]), bytes.fromhex(made["operation"]))
        )
        (stored,) = [event for event in events if isinstance(event, OperationStored)]
        assert stored.operation_id.hex() == made["id"]
        return stored.operation_id

    def _write_ours(
        self,
        author: Author,
        document_id: bytes | None,
        fields: dict[str, Any] | None,
        previous: tuple[bytes, ...],
    ) -> bytes:
        store = self.us.node.store
        position = store.range([SCHEMA]).position
        if document_id is None:
            made = author.create(SCHEMA, fields or {})
        elif fields is None:
            made = author.delete(document_id, previous=previous)
        else:
            made = author.update(document_id, fields, previous=previous)
        (stored,) = store.read_new([SCHEMA], after=position, count_max=2, size_max=1 << 20)
        self.theirs.take(stored, SCHEMA)
        return made

    def _document(self, document_id: bytes) -> Any:
        return materialise(self.us.node.store.operations(document_id))

    def compare(self) -> None:
        """All documents are alike.

        p2panda-rs may list a merge before an operation that it follows, and again (see the
        decisions); of such a document only the view is compared, and then it is left alone.
        """
        for document_id, made in list(self.documents.items()):
            ours, found = self._document(document_id), self.theirs.document(document_id)
            assert len(ours.order) == len(made)
            if self._is_in_order(document_id, found["order"]):
                assert shown(ours) == found
                self.compared += 1
            else:
                self.odd += 1
                del self.documents[document_id]
                assert set(found["order"]) == {each.hex() for each in made}
                assert found["view"] == ours.view_id

    def _is_in_order(self, document_id: bytes, order: list[str]) -> bool:
        """Whether each operation comes once, and after all in its `previous`."""
        operations = self.us.node.store.operations(document_id)
        places = {bytes.fromhex(each): place for place, each in enumerate(order)}
        return len(places) == len(order) and all(
            places[before] < place
            for each, place in places.items()
            for before in operations[each].previous
        )


def test_documents_that_both_write_come_out_alike(programs: Path) -> None:
    compared = odd = 0
    for seed in range(20):
        with running(programs / "documents") as process:
            together = Together(Documents(process), seed)
            for _ in range(100):
                together.step()
            together.compare()
            for document_id in list(together.documents)[::3]:
                together.delete(document_id)
            together.compare()
        compared += together.compared
        odd += together.odd
    print(f"{compared} documents compared, {odd} out of order in p2panda-rs")
    assert compared > 4 * odd


def spoilt(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


@pytest.mark.parametrize("reason", ["BAD_SIGNATURE", "WRONG_PAYLOAD", "GAP", "UNKNOWN_PREVIOUS"])
def test_neither_takes_what_is_not_valid(theirs: Documents, reason: str) -> None:
    together = Together(theirs, 1)
    together.step()
    (document_id,) = together.documents
    previous = bytes(YASMF.hash(b"")) if reason == "UNKNOWN_PREVIOUS" else document_id
    update = Operation(
        action=Action.UPDATE, schema_id=SCHEMA, previous=(previous,), fields={"name": "Lu"}
    )
    payload = update.encode()
    links = {"backlink": document_id} if reason == "GAP" else {}
    seqnum = 2 if links else 1
    entry = sign(OURS[0], family=YASMF, log_id=7, seqnum=seqnum, payload=payload, **links)
    encoded = entry.encode()
    if reason == "BAD_SIGNATURE":
        encoded = spoilt(encoded, -1)
    elif reason == "WRONG_PAYLOAD":
        payload = spoilt(payload, len(payload) - 1)
    stored = StoredOperation(0, entry.log, seqnum, encoded, payload)
    with pytest.raises(Refused):
        theirs.take(stored, SCHEMA)
    assert together.us.refusal(SendEntry(0, encoded, payload)) is Reason[reason]
