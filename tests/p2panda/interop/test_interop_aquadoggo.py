"""Nodes of aquadoggo replicate with ours, over TCP and QUIC."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2panda_peers import Documents, Doggo, bridged, doggo, shown, until

from culm.p2panda import Author, MemoryStore, SessionEnded, materialise

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("alone")]

FIELDS = {"age": "int", "alive": "bool", "height": "float", "name": "str"}
SYSTEM = ["schema_definition_v1", "schema_field_definition_v1"]
PEOPLE = [bytes([number]) * 32 for number in (1, 2)]


def panda(number: int) -> dict[str, Any]:
    return {"age": number, "alive": number % 2 == 0, "height": number / 4, "name": f"Lu {number}"}


class Zoo:
    """Documents made by p2panda-rs that a node has been given."""

    def __init__(self, theirs: Documents, node: Doggo) -> None:
        self._theirs = theirs
        self._node = node
        fields = [
            self._publish(0, SYSTEM[1], {"name": name, "type": kind})
            for name, kind in FIELDS.items()
        ]
        views = [[each.hex()] for each in fields]
        definition = {"name": "panda", "description": "of a test", "fields": views}
        made = self._publish(0, SYSTEM[0], definition)
        self.schema_id = f"panda_{made.hex()}"
        theirs.ask("schema", id=self.schema_id, fields=FIELDS)
        self.documents = [self._publish(n % 2, self.schema_id, panda(n)) for n in range(12)]
        self.count = len(fields) + 1 + len(self.documents)
        for number, document_id in enumerate(self.documents[:8]):
            # Twice after the same view: branches.
            for person in (0, 1):
                change = {"age": 10 * number + person}
                self._publish(person, self.schema_id, change, previous=[document_id])
                self.count += 1

    def _publish(
        self, person: int, schema_id: str, fields: Mapping[str, Any], previous: Any = ()
    ) -> bytes:
        made = self._theirs.publish(PEOPLE[person], schema_id, fields, previous=previous)
        self._node.publish(made)
        return bytes.fromhex(made["id"])


def of(store: MemoryStore, schema_id: str) -> dict[str, Any]:
    """The documents of a schema, in the form that a node of aquadoggo reports."""
    found = {}
    for document_id in store.documents(schema_id):
        document = materialise(store.operations(document_id))
        if not document.deleted:
            found[document_id.hex()] = (document.view_id, document.fields)
    return found


@pytest.mark.parametrize("asks", [True, False], ids=["we ask", "it asks"])
@pytest.mark.parametrize("transport", ["tcp", "quic"])
def test_documents_go_both_ways(
    theirs: Documents, programs: Path, tmp_path: Path, transport: str, asks: bool
) -> None:
    store = MemoryStore()
    with doggo(programs, tmp_path / "one", transport) as node:
        zoo = Zoo(theirs, node)
        schema_ids = [*SYSTEM, zoo.schema_id]
        until(lambda: len(node.documents(zoo.schema_id, FIELDS) or ()) == len(zoo.documents))
        with bridged(programs, node, store, schema_ids, asks=asks) as ours:
            until(lambda: store.range(schema_ids).position == zoo.count, ours.turn)
            for document_id in zoo.documents:
                document = materialise(store.operations(document_id))
                assert shown(document) == theirs.document(document_id)
            until(lambda: node.documents(zoo.schema_id, FIELDS) == of(store, zoo.schema_id))
            # Now our writes go there, while the connection stays.
            author = Author(SigningKey(b"3" * 32), store)
            author.create(zoo.schema_id, panda(99))
            author.update(zoo.documents[0], {"name": "Lo"})
            author.update(zoo.documents[9], {"height": 0.5})
            author.delete(zoo.documents[10])
            until(
                lambda: node.documents(zoo.schema_id, FIELDS) == of(store, zoo.schema_id),
                ours.turn,
            )
            assert [each for each in ours.events if failed(each)] == []
    with (
        doggo(programs, tmp_path / "two", transport) as node,
        bridged(programs, node, store, schema_ids, asks=asks) as ours,
    ):
        until(lambda: node.documents(zoo.schema_id, FIELDS) == of(store, zoo.schema_id), ours.turn)
        assert [each for each in ours.events if failed(each)] == []


def failed(event: object) -> bool:
    return isinstance(event, SessionEnded) and event.error is not None
