"""Each room imports the modules it needs, and none of them touches the outside world."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from packaging_project import ROOT, text
from test_arrows import ARROWS, room

from culm.kernels import NAMES

# A room's imports from other projects, by the names of their modules, on the compiled kernels or on
# the pure ones; everything else is Python's own.
NACL, BLAKE3, CBOR, XXHASH = {"nacl"}, {"blake3"}, {"cbor2"}, {"xxhash"}
LOGS = NACL | BLAKE3
NEEDS = {
    "kernels": set[str](),
    "pump": set[str](),
    "stack": set[str](),
    "wire": set[str](),
    "wire.cbor": CBOR,
    "wire.lzfoo": set[str](),
    "wire.xenc": set[str](),
    "bamboo": LOGS,
    "bymux": set[str](),
    "garlic": set[str](),
    "garlic.handshake": {"h11"},
    "garlic.raft": set[str](),
    "oxen": set[str](),
    "p2panda": LOGS | CBOR | XXHASH,
    "point2point": LOGS,
    "point2point.replication": LOGS,
    "reconcile": LOGS | CBOR | XXHASH,
    "ssb": NACL,
    "ssb.ebt": NACL,
    "ssb.muxrpc": NACL,
    "ssb.peer": LOGS,
    "testing": set[str](),
}
# PyNaCl needs a module of cffi's, and compiled kernels one of Cython's.
BESIDE = {"_cffi_backend", "_sodium", "culm", "cython_runtime"}
WORLD = {"asyncio", "logging", "multiprocessing", "selectors", "socket", "sqlite3", "ssl"}
WORLD |= {"subprocess", "tempfile", "threading", "urllib"}

TELL = """
import json, sys
before = set(sys.modules)
import culm.{name}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_of(name: str) -> list[str]:
    """The modules that a new interpreter imports for a room, beyond those it has anyway."""
    told = f"import sys; sys.path[:] = {sys.path!r}" + TELL.format(name=name)
    command = [sys.executable, "-I", "-c", told]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


def below(name: str) -> set[str]:
    """The rooms below a room, indirect ones included."""
    reached = set(ARROWS[name])
    for other in ARROWS[name]:
        reached |= below(other) | {other.split(".")[0]}
    return reached


@pytest.mark.parametrize("name", NEEDS)
def test_a_room_imports_what_it_needs(name: str):
    modules = modules_of(name)
    tops = {module.split(".")[0] for module in modules}
    assert tops & WORLD == set()
    others = {top for top in tops - sys.stdlib_module_names - BESIDE if top[:7] != "_cython"}
    assert others <= NEEDS[name]
    rooms = {room(module.split(".")[1:]) for module in modules if module.startswith("culm.")}
    own = room(name.split("."))
    if own in ARROWS:
        assert rooms - {own, own.split(".")[0]} <= below(own)


def test_whoever_wants_one_codec_waits_for_no_other_kernel():
    names = [module.removeprefix("culm.kernels.") for module in modules_of("wire.xenc")]
    assert {name for name in NAMES if {f"_{name}", f"pure_{name}"} & set(names)} == {"xenc"}


def test_dependencies_are_what_the_rooms_need():
    stated = re.search(r"^dependencies = \[(.*?)\]$", text("pyproject.toml"), re.MULTILINE)
    assert stated is not None
    names = set(re.findall(r'"(\w+)>=', stated[1]))
    assert names - {"pynacl"} | {"nacl"} == set.union(*NEEDS.values())
