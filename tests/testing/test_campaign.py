"""A campaign counts its attempts and reports its findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from culm.testing.campaign import campaign, main
from culm.testing.spec import MachineSpec
from culm.testing.suite import PROPERTIES
from spec_changes import spec_with
from toy_machines import LINES, Lines

SPECS = Path(__file__).resolve().parents[1] / "specs"


class Raises(Lines):
    def close(self) -> None:
        raise IndexError("out of range")


LAWS = [law for law in PROPERTIES if law.name in {"survives", "pieces"}]


def tell(spec: MachineSpec, seed: int) -> tuple[bool, list[str]]:
    lines: list[str] = []
    kept = campaign(spec, conversations=60, seed=seed, laws=LAWS, say=lines.append)
    return kept, lines


def test_a_campaign_tries_as_many_as_it_says() -> None:
    kept, lines = tell(LINES, 7)
    assert kept
    survives, pieces, total = (int(line.split(": ")[1].split()[0]) for line in lines)
    assert survives >= 40
    assert pieces >= 20
    assert total == survives + pieces
    assert lines[-1].endswith("seed 7, 0 of 2 laws broken")
    assert tell(LINES, 7) == (kept, lines)


def test_a_campaign_tells_what_broke() -> None:
    kept, lines = tell(spec_with(LINES, build=lambda config: Raises(**config)), 7)
    assert not kept
    assert "survives: BROKEN (seed 7)" in lines[0]
    assert "out of range" in lines[0]
    assert lines[-1].endswith("of 2 laws broken")


def test_the_program_is_for_a_registered_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["garlic", "--specs", str(SPECS), "--conversations", "20", "--law", "ends"]) == 0
    assert capsys.readouterr().out.endswith(
        "garlic: 20 conversations, seed 0, 0 of 1 laws broken\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no such machine", "--specs", str(SPECS)], "'no such machine'; there are: bymux, "),
        (["garlic", "--specs", "no_such_module"], "No module named 'no_such_module'"),
    ],
)
def test_what_is_not_found_is_said_in_words(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err
