"""The parts of a release, and the commands for it: workflows, wheels and the conda recipe."""

from __future__ import annotations

import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging_project import ROOT

import culm
import culm_io

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
IO = tomllib.loads((ROOT / "examples/pyproject.toml").read_text(encoding="utf-8"))
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


# Names that differ from PyPI's
CONDA_NAMES = {
    "blake3": "blake3-py",
    "prometheus-client": "prometheus_client",
    "xxhash": "python-xxhash",
}


def listed_in(recipe: str, section: str) -> set[str]:
    """The requirements of one kind in a conda recipe."""
    text = (ROOT / "conda" / recipe / "meta.yaml").read_text(encoding="utf-8")
    found = re.search(rf"^  {section}:\n((?:    - .+\n)+)", text, re.MULTILINE)
    assert found is not None
    return set(re.findall(r"- (.+)", found[1]))


def conda_name(requirement: str) -> str:
    """A requirement in conda's spelling; only PyPI has extras."""
    name, version = re.sub(r"\[.*\]", "", requirement).split(">=")
    return f"{CONDA_NAMES.get(name, name)} >={version}"


def test_the_conda_recipe_has_the_same_requirements() -> None:
    wanted = {conda_name(each) for each in PROJECT["project"]["dependencies"]}
    assert listed_in("culm", "run") == {f"python {PROJECT['project']['requires-python']}", *wanted}


def test_the_conda_recipe_of_culm_io_has_the_same_requirements() -> None:
    version = "{{ version }}"
    python = f"python {IO['project']['requires-python']}"
    assert listed_in("culm-io", "run") == {python, f"culm =={version}"}
    extras = IO["project"]["optional-dependencies"]
    brought = {each for name in extras for each in extras[name] if not each.startswith("culm")}
    assert listed_in("culm-io", "run_constrained") == {conda_name(each) for each in brought}
    (command,) = IO["project"]["scripts"].items()
    assert " = ".join(command) in (ROOT / "conda/culm-io/meta.yaml").read_text(encoding="utf-8")


def test_a_release_is_of_both_distributions() -> None:
    """And both have one version, which must be the tag's."""
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    for made in ("python -m build --sdist\n", "python -m build --outdir dist examples #"):
        assert f"- run: {made}" in text
    for name in ("culm", "culm_io"):
        assert f'dist/{name}-"${{GITHUB_REF_NAME#v}}".tar.gz' in text
    assert IO["project"]["dependencies"] == [f"culm=={culm.__version__}"]
    assert culm_io.__version__ == culm.__version__
    container = (ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    assert "-e '.[dev]' -e 'examples[all]'" in container
