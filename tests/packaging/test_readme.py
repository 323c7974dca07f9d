"""README.md keeps its promises: two set-up lines, examples that run, links that lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from packaging_project import ROOT, code_blocks, text

from culm.kernels import IMPLEMENTATION

PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
EXAMPLES = code_blocks("README.md", "python")


def set_up_lines() -> list[str]:
    return "".join(code_blocks("README.md", "sh")).splitlines()


def test_there_are_two_set_up_lines_the_main_job_and_the_tests():
    demo, tests = set_up_lines()
    gate = " run-parallel -p 3"
    assert tests.endswith(f"-m tox{gate}")
    assert demo == f"{tests.removesuffix(gate)} run -e demo"


def test_ci_runs_the_second_set_up_line_to_the_letter_and_nothing_else():
    commands = [
        line
        for line in text(".ci/run").splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    assert commands == set_up_lines()[1:]


def test_there_is_a_first_example():
    assert EXAMPLES


@pytest.mark.parametrize("source", EXAMPLES)
def test_the_examples_run(source: str):
    exec(compile(source, "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str):
    targets = re.findall(r"\]\(([^)#:]+)\)", text(page))
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_page_on_installing_says_how_to_see_which_kernels_are_used():
    (command,) = [
        line
        for block in code_blocks("docs/install.md", "console")
        for line in block.splitlines()
        if "IMPLEMENTATION" in line
    ]
    prompt, _, *arguments = shlex.split(command)
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    assert (prompt, done.stdout) == ("$", f"{IMPLEMENTATION}\n")
