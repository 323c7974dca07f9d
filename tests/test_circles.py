"""No object calls back its maker, and no class hides behind a Protocol of its own room.

The tests look for constructor arguments that lead back to the maker: a method of ``self``, or a
function that uses ``self``, given to a class of another module of the same room; and Protocols
whose methods are all those of a class of that room.  The remaining cases each have a reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from modules import MODULES, SOURCE, tree

_OUTSIDE = {"testing", "spark"}

#: By maker and made: why the made object may call back.
CALLS = {
    ("Node", "Link"): "it asks what time it is, and enters itself among the links to look at",
    ("Peer", "ServerHandshake"): "one question, which the user may answer as well: who is let in",
    ("Recorder", "RecordedChance"): "a sink for draws; the recorder never calls it",
    ("Replicator", "PeerSession"): "it enters itself among the sessions to look at",
    ("Links", "Conversation"): "it enters its link among those to look at",
}

#: By Protocol: why a class of its own room has its methods.
PROTOCOLS = {
    "culm.bymux.scheduler.Addressee": "data: the id of a stream",
    "culm.garlic.raft.log.LogView": "a log that is only read",
    "culm.garlic.store.StateMachine": "the user's",
    "culm.garlic.store.Store": "the user's",
    "culm.kernels.pure_items.View": "two kernels, of which one may be compiled",
    "culm.machine.Conduit": "the contract",
    "culm.machine.Durable": "the contract",
    "culm.machine.Machine": "the contract",
    "culm.machine.StreamMachine": "the contract",
    "culm.machine.Timed": "the contract",
    "culm.ssb.ebt.model.Format": "a format of messages, which its owner chooses",
    "culm.wire.multihash._Digester": "those of hashlib",
}


def rooms() -> list[list[Path]]:
    """The modules of each room, those of its folders included."""
    found: dict[str, list[Path]] = {}
    for path in MODULES:
        _, *folders, _ = path.relative_to(SOURCE).parts
        found.setdefault(folders[0] if folders else "", []).append(path)
    return [modules for name, modules in found.items() if name not in _OUTSIDE]


def classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in tree(path).body if isinstance(node, ast.ClassDef)]


def methods(node: ast.ClassDef) -> set[str]:
    """The methods of a class that are called; no properties."""
    return {
        each.name
        for each in node.body
        if isinstance(each, ast.FunctionDef)
        and not any("property" in ast.unparse(mark) for mark in each.decorator_list)
    }


def leads_back(argument: ast.AST, own: set[str]) -> bool:
    """Whether an argument is, or contains, a function that uses ``self``."""
    match argument:
        case ast.Lambda():
            return any(
                isinstance(each, ast.Name) and each.id == "self" for each in ast.walk(argument)
            )
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name in own
        case ast.Call(func=ast.Name(id="partial"), args=[function, *_]):
            return leads_back(function, own)
        case ast.Call():  # its result, not its arguments
            return False
    return any(leads_back(each, own) for each in ast.iter_child_nodes(argument))


def calls_back(modules: list[Path]) -> Iterator[tuple[str, str]]:
    """The pairs of maker and made in a room."""
    made_in = {node.name: path for path in modules for node in classes(path)}
    for path in modules:
        for maker in classes(path):
            for call in ast.walk(maker):
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                    continue
                given = [*call.args, *(each.value for each in call.keywords)]
                if made_in.get(call.func.id, path) != path and any(
                    leads_back(each, methods(maker)) for each in given
                ):
                    yield maker.name, call.func.id


def is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).split("[")[0] == "Protocol" for base in node.bases)


def stand_for_a_class(modules: list[Path]) -> Iterator[str]:
    """The Protocols of a room that one of its own classes satisfies."""
    kept = [
        {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
        for path in modules
        for node in classes(path)
        if not is_protocol(node)
    ]
    for path in modules:
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in classes(path):
            wanted = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            if is_protocol(node) and wanted - {"__call__"} and any(wanted <= has for has in kept):
                yield f"{name}.{node.name}"


def test_no_class_calls_back_its_maker() -> None:
    found = {pair for modules in rooms() for pair in calls_back(modules)}
    assert found == set(CALLS)


def test_no_protocol_stands_for_a_class_of_its_room() -> None:
    found = {each for modules in rooms() for each in stand_for_a_class(modules)}
    assert found == set(PROTOCOLS)


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "class One:\n"
        "    def __init__(self): self.other = Other(read=self.read, name=self.name())\n"
        "    def read(self): ...\n"
        "    def name(self): ...\n"
    )
    (tmp_path / "other.py").write_text("class Other:\n    def __init__(self, **of): ...\n")
    assert [*calls_back([tmp_path / "one.py", tmp_path / "other.py"])] == [("One", "Other")]
