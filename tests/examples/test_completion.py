"""Shells complete the words of the programs' parsers, with the scripts of ``culm completion``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
import shtab

from culm_io.command import PROGRAMS, command_of, parser_of
from culm_io.programs.completion import whole

SHELLS = ("bash", "fish", "zsh")
COMPLETE = {
    # Prints a line for each possible continuation of each line on stdin.
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
    # A shell completes only with a terminal, and only while it edits a line.
    "zsh": """
zmodload zsh/zpty
export folder=${1:h}; cat > $folder/asked
cat > $folder/inner <<'END'
fpath=($folder $fpath); autoload -Uz compinit; compinit -u -D
compadd() {
    local -a hits
    (( ${#@[(R)-[OAD]*]} )) || { builtin compadd -O hits "$@"; print -rn -- "${hits[*]} " >&3 }
    builtin compadd "$@"
}
ask() { _main_complete; compstate[insert]=; compstate[list]=; }
zle -C ask complete-word ask
zle-line-init() {
    for BUFFER in "${(@f)$(<$folder/asked)}"; do
        [[ $BUFFER == *" -" ]] || BUFFER+=" "
        CURSOR=${#BUFFER}; zle ask; print >&3
    done
    exit
}
zle -N zle-line-init
exec 3> $folder/found
END
zpty inner zsh -f -i; zpty -w inner 'source $folder/inner'
while zpty -r inner; do :; done > /dev/null
cat $folder/found
""",
}


@cache
def script_for(shell: str) -> str:
    return subprocess.run(
        command_of("completion", shell), capture_output=True, text=True, check=True
    ).stdout


def named(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, set[str]]]:
    """Possible words after these, or after these and a dash: commands and options."""
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
    asked = wanted()
    found = completed(shell, list(asked), tmp_path)
    assert [words for words in asked if asked[words] - found[words]] == []
    assert found["culm"] == asked["culm"]


@pytest.mark.once
@pytest.mark.parametrize("shell", COMPLETE)
def test_a_shell_completes_paths_and_choices(shell: str, tmp_path: Path) -> None:
    """Where a folder is wanted, no file is offered."""
    here = tmp_path / "here"
    (here / "a-folder").mkdir(parents=True)
    (here / "a-file").touch()
    asked = dict(values("culm", whole()))
    found = completed(shell, list(asked), tmp_path, here)
    assert {words: {each.rstrip("/") for each in found[words]} for words in asked} == asked
    assert asked["culm drive --from"] == asked["culm capture show"] == {"a-file", "a-folder"}
    assert asked["culm directory fetch --into"] == {"a-folder"}


def values(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, set[str]]]:
    """Possible words where a path, or one of a few words, is wanted."""
    places = [action for action in parser._actions if not action.option_strings]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from values(f"{words} {name}", inner)
        elif action.option_strings or action is places[0]:
            before = " ".join([words, *action.option_strings[-1:]])
            if action.choices is not None:
                yield before, {getattr(each, "value", each) for each in action.choices}
            elif kind := getattr(action, "complete", None):
                yield before, {"a-folder", "a-file"} if kind == shtab.FILE else {"a-folder"}


def completed(
    shell: str, asked: Sequence[str], folder: Path, here: Path | None = None
) -> dict[str, set[str]]:
    """A shell's completions of each line; skips without the shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    script, complete = folder / "_culm", folder / "complete"
    script.write_text(script_for(shell))
    complete.write_text(COMPLETE[shell])
    said = subprocess.run(
        [shell, complete, script],
        input="".join(f"{words}\n" for words in asked),
        capture_output=True,
        text=True,
        check=True,
        cwd=here,
        env={**os.environ, "HOME": str(folder)},
    ).stdout.splitlines()
    return {words: set(line.split()) for words, line in zip(asked, said, strict=True)}
