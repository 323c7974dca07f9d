"""Whether a built site stands alone: ``python docs/check_site.py docs/_build/html``.

Links may lead elsewhere, but nothing that a browser loads by itself may: no script, style, picture
or font. And every link inside leads to a page that is there, and to a place on it that is there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches without being asked; of <link>, the kinds that it only reads are left out.
LOADED = {"src", "srcset", "poster", "data"}
LINKS_READ_ONLY = {"author", "canonical", "license", "next", "prev", "search", "index", "help"}
# A script that imports, and a style that loads, from elsewhere.
OUTSIDE_OF_CODE = re.compile(
    r"""(?:\bfrom\s*|\bimport\s*\(?\s*|\burl\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)"""
)


class Page(HTMLParser):
    """What a page has (`places`), leads to (`links`) and loads (`loads`)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = {"", "top"}
        self.links: list[str] = []
        self.loads: list[str] = []
        self._in_code = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the attributes of an element."""
        given = {name: value or "" for name, value in attrs}
        self._in_code = tag in {"script", "style"}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag in {"a", "area"} and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and not set(given.get("rel", "").lower().split()) & LINKS_READ_ONLY:
            self.loads.append(given.get("href", ""))
        if tag in {"use", "image"}:
            self.loads += [given[name] for name in ("href", "xlink:href") if name in given]
        for name in LOADED & given.keys():
            several = given[name].split(",") if name == "srcset" else [given[name]]
            self.loads += [one.split()[0] for one in several if one.strip()]
        self.loads += OUTSIDE_OF_CODE.findall(given.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        """Code ends with its element."""
        self._in_code = False

    def handle_data(self, data: str) -> None:
        """Look into scripts and styles for what they load."""
        if self._in_code:
            self.loads += OUTSIDE_OF_CODE.findall(data)


def faults(site: Path) -> Iterator[str]:
    """A line for each thing that leaves the site, and for each link inside that leads nowhere."""
    site = site.resolve()

    @cache
    def page(path: Path) -> Page:
        return Page(path.read_text(encoding="utf-8"))

    def missing(source: Path, target: str) -> bool:
        parts = urlsplit(target)
        path = source
        if parts.path:
            path = (source.parent / unquote(parts.path)).resolve()
        if path.is_dir():
            path /= "index.html"
        if not path.is_relative_to(site) or not path.is_file():
            return True
        return path.suffix == ".html" and unquote(parts.fragment) not in page(path).places

    for path in sorted(site.rglob("*")):
        name = path.relative_to(site)
        if path.suffix == ".css":
            for url in OUTSIDE_OF_CODE.findall(path.read_text(encoding="utf-8")):
                yield f"{name}: loads {url}"
        if path.suffix not in {".html", ".svg"}:
            continue
        found = page(path)
        for target in found.loads:
            parts = urlsplit(target)
            if parts.netloc or parts.scheme in {"http", "https"}:
                yield f"{name}: loads {target}"
            elif not parts.scheme and missing(path, target):  # data: brings its bytes along
                yield f"{name}: lacks {target}"
        for target in dict.fromkeys(found.links):
            parts = urlsplit(target)
            if not parts.netloc and not parts.scheme and missing(path, target):
                yield f"{name}: leads nowhere: {target}"


def main(site: str) -> int:
    """Print what is wrong; the exit status is 1 if anything is."""
    pages = len(list(Path(site).rglob("*.html")))
    if not pages:
        print(f"{site}: no pages")
        return 1
    found = list(faults(Path(site)))
    print("\n".join([*found, f"{site}: {pages} pages, {len(found)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
