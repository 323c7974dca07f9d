"""The tool of `mutants.py` makes the right changes; its excused mutants are still in the code."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from mutants import ROOMS, ROOT, TABLES, Finder, Room, judged, limited, mutants, sample

CODE = b"""\
LIMIT = 4


class BoxErrorCode(IntEnum):
    SHUT = 1


class Box:
    def take(self, number: int = 1) -> bool:
        if self.open and number < LIMIT:
            self.items = number
            self.tell(number + 1)
            return max(number, 2) == 2
        for each in zip(self, self, strict=True):
            assert each
        return not self.open
"""


def changed(source: bytes) -> set[str]:
    """The replacements of the lines that a mutant changes."""
    found = Finder("box.py", source).found
    return {f"{one.function or 'module'}: {one.after}" for one in found}


def test_each_kind_of_change_is_made_once() -> None:
    assert changed(CODE) == {
        "module: LIMIT = 3",
        "module: LIMIT = 5",
        "Box.take: 0",
        "Box.take: 2",
        "Box.take: if (self.open or number < LIMIT)",
        "Box.take: if (number < LIMIT)",
        "Box.take: if (self.open)",
        "Box.take: if self.open and (number <= LIMIT)",
        "Box.take: pass",
        "Box.take: self.tell((number - 1))",
        "Box.take: self.tell(number + 0)",
        "Box.take: self.tell(number + 2)",
        "Box.take: return (max(number, 2) != 2)",
        "Box.take: return min(number, 2) == 2",
        "Box.take: return max(number, 1) == 2",
        "Box.take: return max(number, 3) == 2",
        "Box.take: return max(number, 2) == 1",
        "Box.take: return max(number, 2) == 3",
        "Box.take: return (self.open)",
    }


def test_every_mutant_is_a_program_that_differs() -> None:
    source = (ROOT / "src/culm/garlic/store.py").read_bytes()
    same = ast.dump(ast.parse(source))
    found = Finder("garlic/store.py", source).found
    assert len(found) > 50
    for mutant in found[::6]:
        assert ast.dump(ast.parse(mutant.put_into(source))) != same, str(mutant)


def test_a_sample_is_drawn_by_its_seed_and_more_often_from_boundaries() -> None:
    code = CODE * 20
    inner = Finder("inner.py", code).found
    room = Room((), (), ("edge",))
    both = inner + Finder("edge.py", code).found
    drawn = sample(room, both, 200, 1)
    assert drawn == sample(room, both, 200, 1)
    assert drawn != sample(room, both, 200, 2)
    assert len(set(drawn)) == 200
    assert sum(one.path == "edge.py" for one in drawn) > 120


@pytest.mark.parametrize(
    ("does", "ends"), [("import time; time.sleep(2)", True), ("while True: pass", False)]
)
def test_only_work_ends_a_mutant_that_takes_too_long(does: str, ends: bool) -> None:
    done = subprocess.run(limited([sys.executable, "-c", does], 1), check=False)
    assert (done.returncode == 0) is ends


#: Packages below src/culm without a room: codecs and kernels, tested by their specifications and
#: vectors, and the code around the machines.
WITHOUT_ROOM = frozenset(("capture", "kernels", "machines", "spark", "testing", "wire"))


def test_every_file_of_every_protocol_is_in_one_room() -> None:
    base = ROOT / "src/culm"
    expected = {
        path
        for path in base.rglob("*.py")
        if path.stem not in TABLES and path.relative_to(base).parts[0] not in WITHOUT_ROOM
    }
    in_rooms = [path for room in ROOMS.values() for path in room.files]
    assert len(in_rooms) == len(set(in_rooms))
    assert expected <= set(in_rooms)


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_has_code_and_tests(name: str) -> None:
    room = ROOMS[name]
    assert set(room.boundaries) <= {path.stem for path in room.files}
    assert all(list((ROOT / "tests").glob(pattern)) for pattern in room.tests)
    drawn = sample(room, mutants(room), 60, 1)
    assert len(drawn) == 60
    for path in {Path(mutant.path) for mutant in drawn}:
        assert ROOT / "src/culm" / path in room.files


def test_a_table_is_mutated_only_where_a_room_names_it() -> None:
    held = {path.relative_to(ROOT / "src/culm").as_posix() for path in ROOMS["contract"].files}
    assert {"effects.py", "machine.py", "pump/engine.py"} <= held
    assert not {"pump/limits.py", "pump/__init__.py", "__init__.py"} & held


def test_what_is_judged_is_still_in_the_code() -> None:
    judgements = judged()
    assert all(why.strip() for why in judgements.values())
    paths = {path for path, *_ in judgements}
    found = [
        mutant
        for path in paths
        for mutant in Finder(path, (ROOT / "src/culm" / path).read_bytes()).found
    ]
    assert judgements.keys() <= {mutant.key for mutant in found}
