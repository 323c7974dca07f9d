"""The package, tox and the texts agree with each other."""

from __future__ import annotations

import configparser
import re
import tomllib
from datetime import date
from fnmatch import fnmatch
from importlib import metadata, resources

import pytest
from packaging_project import ROOT, text

import culm

PROJECT = tomllib.loads(text("pyproject.toml"))["project"]


def tox_section(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text("tox.ini"))
    return parser[name]


def names(value: str) -> list[str]:
    return re.findall(r"[^\s,]+", value)


def test_the_installed_version_is_the_one_in_the_source():
    assert metadata.version("culm") == culm.__version__


VERSION, DEVELOPED, _ = culm.__version__.partition(".dev")


def last_release() -> tuple[str, str]:
    latest = re.search(r"^## \[(.+)\] - (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert latest is not None
    return latest[1], latest[2]


def test_the_changelog_has_the_version_and_its_date():
    """A version in development has no date yet, and follows the last release."""
    release, day = last_release()
    assert date.fromisoformat(day)
    if DEVELOPED:
        assert f"## [Unreleased]\n\nThis will be {VERSION}" in text("CHANGELOG.md")
        assert [*map(int, release.split("."))] < [*map(int, VERSION.split("."))]
    else:
        assert release == VERSION


def test_culm_io_has_the_same_version_and_needs_it():
    project = tomllib.loads(text("examples/pyproject.toml"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    pins = [each.partition("==")[2] for each in needed if each.startswith(("culm=", "culm["))]
    assert pins == [culm.__version__] * 2
    assert f'__version__ = "{culm.__version__}"\n' in text("examples/culm_io/__init__.py")


def test_the_address_of_the_project_is_the_same_everywhere():
    source = PROJECT["urls"]["Source"]
    assert all(url.startswith(source) for url in PROJECT["urls"].values())
    version, _ = last_release()
    release = f"[{version}]: {source}/releases/tag/v{version}"
    assert release in text("CHANGELOG.md").splitlines()


def test_files_that_addresses_of_the_project_name_are_there():
    named = [url.partition("/blob/main/")[2] for url in PROJECT["urls"].values()]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_installed_package_is_typed():
    assert resources.files("culm").joinpath("py.typed").is_file()


def test_the_licence_is_a_choice_of_two_and_both_texts_are_there_in_full():
    assert metadata.metadata("culm")["License-Expression"] == "Apache-2.0 OR MIT"
    apache, mit = "END OF TERMS AND CONDITIONS", "OR OTHER DEALINGS IN THE\nSOFTWARE."
    assert all(last_words in text("LICENSE") for last_words in (apache, mit))


def test_culm_io_has_the_same_licence():
    assert text("examples/LICENSE") == text("LICENSE")


def test_tox_tests_the_versions_that_the_package_promises():
    promised = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    tested = re.findall(r"\bpy3(\d+)\b", tox_section("tox")["labels"])
    assert sorted(promised) == sorted(f"3.{minor}" for minor in tested)
    assert PROJECT["requires-python"] == f">={min(promised)}"


@pytest.mark.parametrize("extra", ["spark", "bench", "docs", "dev"])
def test_the_extras_are_installable_by_name(extra: str):
    assert extra in (metadata.metadata("culm").get_all("Provides-Extra") or [])


def test_every_public_package_has_a_test_room():
    packages = {path.parent.name for path in (ROOT / "src/culm").glob("[a-z]*/__init__.py")}
    assert sorted(packages - {path.name for path in (ROOT / "tests").iterdir()}) == []


def test_every_page_of_the_site_is_reached_from_its_index():
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= set(text("docs/index.md").split())
    listed = text("docs/decisions/index.md").split()
    decisions = {path.stem for path in (ROOT / "docs/decisions").glob("*.md")} - {"index"}
    assert {name for name in decisions if not any(fnmatch(name, each) for each in listed)} == set()


def test_decisions_are_named_by_what_they_are_about():
    """By a room of the package, or by a part of the house outside it; never by a number."""
    rooms = {path.stem for path in (ROOT / "src/culm").glob("[a-z]*")}
    others = {"contract", "p2p", "site", "stores", "directory"}
    for path in (ROOT / "docs/decisions").glob("*.md"):
        assert path.stem == "index" or path.stem.split("-")[0] in rooms | others, path.name


def test_hooks_run_the_versions_that_tox_pins():
    groups = tomllib.loads(text("pyproject.toml"))["dependency-groups"]
    pins = dict(pin.split("==") for group in groups.values() for pin in group)
    hooks = text(".pre-commit-config.yaml")
    assert re.findall(r"rev: v(.+)", hooks) == [pins["ruff"], pins["mypy"]]


def test_the_page_on_installing_has_every_environment_that_runs_on_demand():
    named = re.findall(r"^\[testenv:(?!\.)(.+)\]$", text("tox.ini"), flags=re.MULTILINE)
    usual = re.findall(r"\w+", tox_section("tox")["env_list"])
    found: set[str] = set()
    for name in named:
        before, _, factors = name.partition("{")
        found |= {before + each for each in factors.rstrip("}").split(",")}
    rows = re.findall(r"^\| (`.+?) \|", text("docs/install.md").split("| Environment |")[1], re.M)
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == found - {*usual}
