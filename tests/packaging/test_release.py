"""What is built for a release, and by which commands: workflows, wheels and the conda recipe."""

from __future__ import annotations

import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging_project import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSIONS = {
    found[1]
    for each in PROJECT["project"]["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))
}


def envs_of_tox() -> set[str]:
    tox = ConfigParser()
    tox.read(ROOT / "tox.ini")
    named = {section.removeprefix("testenv:") for section in tox.sections()}
    return named | {f"py{version.replace('.', '')}" for version in VERSIONS}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_environments_that_there_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    run = re.findall(r"tox run -e ([a-z0-9,-]+)|, env: (\w+)", text)
    assert {name for names in run for name in names if name} <= envs_of_tox()


def test_the_gate_is_run_as_the_readme_says() -> None:
    assert "- run: bash .ci/run\n" in (ROOT / ".github/workflows/gate.yml").read_text()


def test_each_version_of_python_is_tested_and_has_wheels() -> None:
    tested = re.findall(
        r'python: "(3\.\d+)", env', (ROOT / ".github/workflows/gate.yml").read_text()
    )
    assert set(tested) == VERSIONS
    built = PROJECT["tool"]["cibuildwheel"]["build"].split()
    assert set(built) == {f"cp{version.replace('.', '')}-*" for version in VERSIONS}


CONDA_NAMES = {"blake3": "blake3-py", "xxhash": "python-xxhash"}  # where they are unlike PyPI's


def test_the_conda_recipe_has_the_same_requirements() -> None:
    recipe = (ROOT / "conda/meta.yaml").read_text(encoding="utf-8")
    needed = recipe.split("  run:\n", 1)[1].split("\ntest:", 1)[0]
    listed = set(re.findall(r"- (.+)", needed))
    wanted = {f"python {PROJECT['project']['requires-python']}"}
    for each in PROJECT["project"]["dependencies"]:
        name, version = each.split(">=")
        wanted.add(f"{CONDA_NAMES.get(name, name)} >={version}")
    assert listed == wanted
