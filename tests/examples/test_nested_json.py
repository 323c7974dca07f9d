"""JSON of any depth, wherever a program reads JSON: from a peer, a log, a control port, a file."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from culm.garlic.errors import ErrorCode
from culm.garlic.sessions import ClientSession, Sessions, open_session, plain
from culm.garlic.status import StatusRecord
from culm.machine import RemoteProtocolError
from culm.spark.protocol_jobs import parsed_lines
from culm.testing import drive
from culm.wire.json import DEPTH_MAX
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.raft.client import Client, Cluster, NotAppliedError, ask_one
from culm_io.programs.raft.farm import Farm
from culm_io.programs.raft.server import KeyValues, refusal

ROOT = Path(__file__).parents[2]
DEPTHS = (DEPTH_MAX + 1, 900, 1_000, 3_000, 100_000)
NESTED = {
    "lists": lambda depth: "[" * depth + "]" * depth,
    "objects": lambda depth: '{"key":' * depth + "0" + "}" * depth,
    "both": lambda depth: '[{"value":' * (depth // 2 + 1) + "0" + "}]" * (depth // 2 + 1),
    "open lists": lambda depth: "[" * depth,
    "open objects": lambda depth: '{"a":' * depth,
    "a value": lambda depth: json.dumps({"key": "a"})[:-1] + ',"value":' + "[" * depth,
    "behind a text": lambda depth: '["\\\\",' * depth + "0" + "]" * depth,
}


def texts() -> Iterator[bytes]:
    for made in NESTED.values():
        for depth in DEPTHS:
            yield made(depth).encode()


def deep_calls(count: int, call: Callable[[], None]) -> None:
    """Call from a stack that is already that deep."""
    deep_calls(count - 1, call) if count else call()


async def beside(
    answer: Callable[..., Awaitable[None]], ask: Callable[[int], Awaitable[None]]
) -> None:
    """Ask a server at its own port."""
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        await ask(server.sockets[0].getsockname()[1])


def test_a_state_machine_takes_any_value() -> None:
    machine = KeyValues(lambda line: None)
    for index, text in enumerate(texts(), 1):
        machine.apply(index, text)
    assert machine.values == {}


@pytest.mark.parametrize("stack", [0, 300, 800])
@pytest.mark.parametrize("depth", range(DEPTH_MAX - 2, DEPTH_MAX + 3))
def test_what_is_a_command_does_not_depend_on_the_stack(depth: int, stack: int) -> None:
    machine = KeyValues()
    inner = depth - 1
    value = '{"key": "a", "value": ' + "[" * inner + "]" * inner + "}"
    deep_calls(stack, lambda: machine.apply(1, value.encode()))
    assert ("a" in machine.values) == (depth <= DEPTH_MAX)


def test_brackets_within_texts_do_not_count() -> None:
    machine = KeyValues()
    for text in ("[" * 5_000, '"[' * 5_000, '\\"[' * 5_000, "\\[{" * 5_000, "\\"):
        machine.apply(1, json.dumps({"key": text, "value": text}).encode())
        assert machine.values == {text: text}
        machine.values.clear()


def test_a_control_port_refuses_what_would_be_no_command() -> None:
    session = ClientSession(1, 0)
    for text in texts():
        for value in (plain(text), session.command(text)):
            assert refusal(value) == {"error": "TOO_DEEP", "certain": True}
        session = ClientSession(1, 0)
    for value in (open_session(), session.command(b'{"key":"[[","value":"\\"["}'), b"", b"[" * 999):
        assert refusal(value) is None


def test_a_client_says_why_a_value_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = json.loads(await reader.readline())
        found = refusal(bytes.fromhex(question["value"])) or {"ok": True, "index": 1}
        writer.write(json.dumps({"outcome": "opened", **found}).encode() + b"\n")
        writer.close()

    async def ask(port: int) -> None:
        with pytest.raises(NotAppliedError, match="nested"):
            await Client(Cluster({1: port}).propose).do(b"[" * 1_000)

    asyncio.run(beside(answer, ask))


def test_an_answer_of_any_depth_is_no_answer() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"[" * 100_000 + b"\n")
        writer.close()

    async def ask(port: int) -> None:
        assert await ask_one(port, {"do": "status"}, 10) == {"error": "NO_ANSWER"}

    asyncio.run(beside(answer, ask))


def test_a_cluster_file_of_any_depth_is_no_cluster(tmp_path: Path) -> None:
    for text in texts():
        (tmp_path / "cluster.json").write_bytes(text)
        with pytest.raises(ImpossibleError, match=r"cluster\.json"):
            Farm(tmp_path)


def test_a_snapshot_of_any_depth_is_none() -> None:
    for text in texts():
        with pytest.raises(ValueError, match="nested"):
            KeyValues().restore(text)


def test_a_status_of_any_depth_is_none() -> None:
    for text in texts():
        with pytest.raises(RemoteProtocolError) as raised:
            StatusRecord.decode(text)
        assert raised.value.code is ErrorCode.BAD_VALUE


def test_lines_of_any_depth_are_faults_of_a_table() -> None:
    rows = [{"entry": text.decode()} for text in texts()]
    assert {tuple(row) for row in parsed_lines(rows, form=dict)} == {("fault",)}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 3_000])
def test_a_config_of_any_depth_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert drive.main(["bymux", "--config", text]) == 2
    assert "error" in json.loads(capsys.readouterr().out)


def test_sessions_take_any_value() -> None:
    machine = Sessions(KeyValues())
    for index, text in enumerate(texts(), 1):
        machine.apply(index, plain(text))
        machine.apply(index, text)


# Where Python's own reader may stay: its input was written by the program itself, or by one of its
# children. Other places use `culm.wire.json.read_json`.
OWN = {
    "examples/culm_io/programs/demo.py",
    "examples/culm_io/programs/demo_spark.py",
    "examples/culm_io/programs/oxen/story.py",
    "examples/culm_io/programs/ssb.py",
    "examples/culm_io/stores/ssb.py",
    "src/culm/ssb/v8json.py",
    "src/culm/testing/suite/processes.py",
    "src/culm/testing/suite/properties.py",
    "src/culm/wire/json.py",
}


def readers(path: Path) -> Iterator[Any]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id="json"), attr="loads" | "load" | "JSONDecoder"):
                yield node
            case ast.ImportFrom(module="json"):
                yield from (name for name in node.names if name.name.startswith(("load", "JSOND")))


def test_nobody_else_reads_json_by_pythons_recursion() -> None:
    paths = [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in paths if any(readers(path))}
    assert found <= OWN
