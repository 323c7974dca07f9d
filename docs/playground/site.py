"""Sphinx extension: the playground as part of the site.

Beside the built pages comes ``playground/``: the page, the histories of all conversations, made now
by the machines themselves, a wheel of culm with its pure twins, and Pyodide from the npm registry.
``CULM_PYODIDE`` says where that is from: ``fetch`` asks npm for it if the cache has none, a path is
that of the package, ``no`` is none at all; by default it is there if the cache has it, so that a
build never waits for a network.  Without Pyodide the conversations can be stepped through, and the
page says that they cannot be changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from html import escape
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import culm
from playground.history import catalogue, told
from playground.scenarios import SCENARIOS

if TYPE_CHECKING:  # the tests look at what is written without it
    from sphinx.application import Sphinx

__all__ = ["cards", "pyodide_package", "setup", "write", "write_wheel"]

VERSION = "314.0.7"
# As `npm view pyodide@VERSION dist.integrity` says.
INTEGRITY = (
    "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyM"
    "cWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
NEEDED = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "pyodide-lock.json",
    "python_stdlib.zip",
)

HERE = Path(__file__).parent
_PATIENCE_S = 120
_MODULES = ("__init__", "changes", "history", "rooms", "scenarios", "world")
_SUFFIXES = {".py", ".css", ".js", ".lua", ".txt", ".typed"}


def cache() -> Path:
    """Where a package that was fetched stays."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "culm" / f"pyodide-{VERSION}.tgz"


def pyodide_package() -> Path | None:
    """The package of Pyodide, as ``CULM_PYODIDE`` wants it; ``None`` if there is none.

    Raises `ValueError` for a package other than the one that is meant.
    """
    wanted = os.environ.get("CULM_PYODIDE", "")
    if wanted == "no":
        return None
    package = cache() if wanted in ("", "fetch") else Path(wanted)
    if wanted == "fetch" and not package.exists():
        _fetch(package)
    if not package.exists():
        return None
    digest = hashlib.sha512(package.read_bytes()).digest()
    if digest != b64decode(INTEGRITY.removeprefix("sha512-")):
        raise ValueError(f"{package} is not pyodide {VERSION} as npm has it")
    return package


def _fetch(package: Path) -> None:
    """Ask npm; where there is none, or no network, there is no package afterwards."""
    package.parent.mkdir(parents=True, exist_ok=True)
    command = ["npm", "pack", "--silent", "--fetch-retries=1", f"pyodide@{VERSION}"]
    try:
        subprocess.run(
            command, cwd=package.parent, check=True, capture_output=True, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"npm has no pyodide for us: {error}")


def write_wheel(folder: Path) -> str:
    """Write a wheel of the installed culm, without what is compiled; returns its name."""
    name = f"culm-{culm.__version__}"
    info = f"{name}.dist-info"
    content = dict(_sources(Path(culm.__file__).parent, "culm"))
    about = distribution("culm")
    described = about.read_text("METADATA") or about.read_text("PKG-INFO") or ""
    content[f"{info}/METADATA"] = described.encode()
    tags = "Root-Is-Purelib: true\nTag: py3-none-any\n"
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: culm\n{tags}".encode()
    content[f"{info}/RECORD"] = _record(content, f"{info}/RECORD")
    wheel = f"{name}-py3-none-any.whl"
    _write_zip(folder / wheel, content.items())
    return wheel


def _record(content: dict[str, bytes], own: str) -> bytes:
    lines = []
    for path, data in content.items():
        digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{own},,", ""]).encode()


def _sources(package: Path, name: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(package.rglob("*")):
        if path.suffix in _SUFFIXES:
            yield f"{name}/{path.relative_to(package).as_posix()}", path.read_bytes()


def _write_zip(target: Path, content: Iterable[tuple[str, bytes]]) -> None:
    """A zip that is the same whenever it is made of the same."""
    with ZipFile(target, "w", ZIP_DEFLATED) as made:
        for path, data in content:
            made.writestr(ZipInfo(path), data, ZIP_DEFLATED)


def write(folder: Path) -> bool:
    """Write all of the playground into a folder; returns whether Pyodide is in it."""
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "data").mkdir(parents=True)
    shutil.copytree(HERE / "page", folder, dirs_exist_ok=True)
    look = files("culm.capture").joinpath("viewer", "viewer.css")
    (folder / "viewer.css").write_text(look.read_text(encoding="utf-8"), encoding="utf-8")
    for name in SCENARIOS:
        (folder / "data" / f"{name}.json").write_text(told(name), encoding="utf-8")
    package = pyodide_package()
    about = {
        "culm": culm.__version__,
        "pyodide": VERSION if package else None,
        "wheel": write_wheel(folder) if package else None,
        "scenarios": catalogue(),
    }
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    if package is None:
        return False
    modules = [(f"playground/{each}.py", (HERE / f"{each}.py").read_bytes()) for each in _MODULES]
    _write_zip(folder / "playground.zip", modules)
    (folder / "pyodide").mkdir()
    with tarfile.open(package) as packed:
        for name in NEEDED:
            part = packed.extractfile(f"package/{name}")
            assert part is not None, name
            with part, (folder / "pyodide" / name).open("wb") as target:
                shutil.copyfileobj(part, target)
    return True


def _finished(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    if not write(Path(app.outdir) / "playground"):
        print(f"the playground has no Pyodide {VERSION}: CULM_PYODIDE=fetch asks npm for it")


_CARDS = "<!-- conversations -->"


def cards() -> str:
    """Links to all conversations, by protocol, as HTML."""
    lines, last = [], ""
    for each in catalogue():
        if each["room"] != last:
            lines += ["</ul>"] * bool(last) + [f"<p>{escape(each['room'])}</p>", "<ul>"]
            last = each["room"]
        title, story = escape(each["title"]), escape(each["story"])
        link = f'<a href="playground/index.html?{each["name"]}">'
        lines.append(f"<li>{link}<b>{title}</b><span>{story}</span></a></li>")
    return "\n".join(['<div class="conversations">', *lines, "</ul>", "</div>"])


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "playground":
        source[0] = source[0].replace(_CARDS, cards())


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    app.connect("build-finished", _finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
