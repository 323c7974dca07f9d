"""The values that a user gives to a p2panda node, and the way it shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey
from test_p2panda_node import Nodes, nodes

from culm.p2panda import Author
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.p2panda import command as p2panda_node
from culm_io.stores.p2panda import OperationSqliteStore

__all__ = ["nodes"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[" * 5000 + "]" * 5000])
def test_a_value_that_is_no_json_is_text(nodes: Nodes, text: str) -> None:
    nodes.write("a", "create", f"x={text}")
    (found,) = nodes.show("a").values()
    assert found["fields"] == {"x": text}


def test_numbers_that_others_have_written_are_shown_as_json(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.write("a", "create", "x=1")
    with OperationSqliteStore(nodes.folder / "a") as store:
        author = Author(SigningKey(bytes(32)), store)
        author.create(p2panda_node.SCHEMA, {"x": float("inf"), "y": float("nan"), "z": 1.5})
    nodes.here("a", "show", "--json")

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    shown = [each["fields"] for each in found.values()]
    assert {"x": "inf", "y": "nan", "z": 1.5} in shown


@pytest.mark.parametrize("command", ["create", "show", "serve"])
def test_a_bad_schema_id_is_refused_by_all(nodes: Nodes, command: str) -> None:
    rest = ["--port", "0"] if command == "serve" else []
    with pytest.raises(SystemExit) as ended:
        nodes.here("a", command, "--schema", "foo", *rest)
    assert ended.value.code == 2
    assert not (nodes.folder / "a").exists()


@pytest.mark.parametrize("arguments", [["show"], ["update", "00", "x=1"], ["delete", "00"]])
def test_of_a_store_that_is_not_there_nothing_is_shown_or_changed(
    nodes: Nodes, arguments: list[str]
) -> None:
    with pytest.raises(ImpossibleError, match="no such file"):
        nodes.here("a", *arguments)
    assert not Path(nodes.folder / "a").exists()
