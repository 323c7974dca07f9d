"""Shells complete what the parsers of programs know, as the scripts of ``culm completion`` say."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from culm_io.command import PROGRAMS, command_of, parser_of

SHELLS = ("bash", "fish", "zsh")
COMPLETE = {
    # A line for what each line on stdin could go on with.
    "bash": """
source "$1"
while IFS= read -r line; do
    COMP_WORDS=($line ""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    case $line in *" -") COMP_WORDS=($line); COMP_CWORD=$((COMP_CWORD - 1));; esac
    _shtab_culm; echo "${COMPREPLY[@]}"
done
""",
    "fish": """
source $argv[1]
while read -l line
    string match -q -- '* -' $line; or set line "$line "
    echo (complete -C $line | string split -f 1 \\t)
end
""",
}


@cache
def script_for(shell: str) -> str:
    return subprocess.run(
        command_of("completion", shell), capture_output=True, text=True, check=True
    ).stdout


def named(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, set[str]]]:
    """What may come next after words and a dash, or after words: commands and options."""
    options = {name for action in parser._actions for name in action.option_strings}
    yield f"{words} -", options
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield words, set(action.choices)
            for name, inner in action.choices.items():
                yield from named(f"{words} {name}", inner)


def wanted() -> dict[str, set[str]]:
    pairs = {"culm": set(PROGRAMS)}
    for program in PROGRAMS:
        pairs |= named(f"culm {program}", parser_of(program))
    return pairs


@pytest.mark.once
@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_accepted_by_its_shell(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    script = tmp_path / "script"
    script.write_text(script_for(shell))
    checked = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.once
@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_every_command_and_option(shell: str) -> None:
    script = script_for(shell)
    for words, found in wanted().items():
        # fish has options without their dashes
        names = {each.lstrip("-") if shell == "fish" else each for each in found}
        assert [name for name in names if name not in script] == [], words


@pytest.mark.once
@pytest.mark.parametrize("shell", COMPLETE)
def test_a_shell_completes_every_command_and_option(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    script, asked = tmp_path / "script", wanted()
    script.write_text(script_for(shell))
    (tmp_path / "complete").write_text(COMPLETE[shell])
    said = subprocess.run(
        [shell, tmp_path / "complete", script],
        input="".join(f"{words}\n" for words in asked),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    ).stdout.splitlines()
    found = {words: set(line.split()) for words, line in zip(asked, said, strict=True)}
    assert [words for words in asked if asked[words] - found[words]] == []
    assert found["culm"] == asked["culm"]
