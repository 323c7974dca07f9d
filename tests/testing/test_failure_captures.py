"""Failures in the suite, or in a simulator, leave captures; a command makes tests of them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from culm.capture import read, replay
from culm.capture.command import main
from culm.exits import ExitStatus
from culm.garlic.raft import Raft
from culm.testing import captures
from culm.testing.captures import FOLDER, of_failures
from culm.testing.record import conversations
from culm.testing.suite import PROPERTIES
from specs import spec_of

TESTS = Path(__file__).parents[1]
LAWS = {law.name: law for law in PROPERTIES}


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of captures named in the environment."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "captures"))
    return tmp_path / "captures"


def simulator(room: str, module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TESTS / room))
    return getattr(__import__(module), name)


def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader fails to take proposals."""

    def wrong(self: Raft, values: Any) -> tuple[int, int]:
        raise RuntimeError("planted")

    monkeypatch.setattr(Raft, "propose_bytes", wrong)


def note_of(error: BaseException, begins: str) -> str:
    [note] = [each for each in error.__notes__ if each.startswith(begins)]
    return note


def check_that_its_test_finds_it(path: Path, tmp_path: Path, mend: Callable[[], object]) -> None:
    """The test that the command makes fails with the fault, and passes without it."""
    made = tmp_path / "test_fault.py"
    assert main(["test", "--broken", str(path), "-o", str(made)]) is ExitStatus.DONE
    names = runpy.run_path(str(made))
    with pytest.raises(AssertionError, match="when it was broken"):
        names["test_it_no_longer_comes_out_so"]()
    mend()
    names["test_it_no_longer_comes_out_so"]()


def test_a_failing_example_of_the_suite_is_kept(
    wanted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary_profile: None
) -> None:
    conversations(spec_of("garlic-node"))  # these are kept: they are those of a sound machine
    with monkeypatch.context() as patches:
        planted(patches)
        with pytest.raises(RuntimeError, match="planted") as caught:
            LAWS["purity"].check(spec_of("garlic-node"))
        note = note_of(caught.value, "capture: ")
        path = wanted / "garlic-node-purity.culmcap"
        assert str(path) in note
        assert read(path.read_bytes()).header.machine == "garlic-node"
        check_that_its_test_finds_it(path, tmp_path, patches.undo)


def test_a_failing_seed_of_a_simulator_is_kept(
    wanted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = simulator("garlic", "garlic_simulator", "run_garlic_seed", monkeypatch)
    with monkeypatch.context() as patches:
        planted(patches)
        with pytest.raises(RuntimeError, match="planted") as caught:
            run(3)
        note = note_of(caught.value, "captures of the same run, which failed again")
        paths = [Path(line) for line in note.splitlines()[1:]]
        assert {path.parent for path in paths} == {wanted}
        at_fault = [path for path in paths if has_raised(path, "planted")]
        assert at_fault
        check_that_its_test_finds_it(at_fault[0], tmp_path, patches.undo)


def has_raised(path: Path, message: str) -> bool:
    steps = read(path.read_bytes())
    return any(step.error is not None and message in str(step.error) for step in steps)


@pytest.mark.parametrize(
    ("room", "module", "name", "seed"),
    [
        ("garlic", "garlic_simulator", "run_garlic_seed", 3),
        ("garlic", "garlic_simulator", "run_garlic_seed", 14),
        ("oxen", "oxen_simulation", "simulate", 1),
        ("point2point", "test_replicator_simulation", "go_for_parts", 1),
        ("p2panda", "p2panda_simulation", "run_p2panda_seed", 1),
        ("p2panda", "p2panda_simulation", "run_p2panda_seed", 2),
        ("ssb", "ebt_simulator", "run_ebt_seed", 1),
        ("ssb", "test_ssb_worlds", "tell", 1),
    ],
)
def test_all_machines_of_a_run_are_kept_and_replayed(
    room: str, module: str, name: str, seed: int, wanted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = simulator(room, module, name, monkeypatch)

    @of_failures
    def fails(seed: int) -> None:
        run(seed)
        raise AssertionError("in the end")

    with pytest.raises(AssertionError, match="in the end") as caught:
        fails(seed)
    paths = note_of(caught.value, "captures of the same run, which failed again").splitlines()[1:]
    assert len(paths) > 1
    for path in paths:
        assert replay(read(Path(path).read_bytes())) is None, path


def test_nothing_is_kept_where_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)

    @of_failures
    def fails(seed: int) -> None:
        raise AssertionError(f"seed {seed}")

    with pytest.raises(AssertionError) as caught:
        fails(1)
    assert not getattr(caught.value, "__notes__", [])
    assert captures.folder() is None


def test_a_run_that_does_not_fail_again_is_said_to(wanted: Path) -> None:
    left = [1]

    @of_failures
    def fails_once(seed: int) -> None:
        if left:
            left.clear()
            raise AssertionError("once")

    with pytest.raises(AssertionError) as caught:
        fails_once(7)
    assert note_of(caught.value, "captures of the same run, which did not fail again")
