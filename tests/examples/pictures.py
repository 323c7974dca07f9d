"""The words in the docs' pictures of programs."""

from __future__ import annotations

import html
import re
from pathlib import Path

_TEXT = re.compile(r'<text[^>]* x="([\d.]+)"[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>')
_DOCS = Path(__file__).parents[2] / "docs"


def words_of(page: str, picture: str) -> str:
    """The words of a picture on `page`, line by line, without the drawn lines."""
    path = f"pictures/{picture}.svg"
    assert f"({path})" in (_DOCS / page).read_text(encoding="utf-8")
    places = _TEXT.findall((_DOCS / path).read_text(encoding="utf-8"))
    lines = sorted(places, key=lambda place: (float(place[1]), float(place[0])))
    words = " ".join(html.unescape(text) for _, _, text in lines).split()
    return " ".join(word for word in words if "\N{BOX DRAWINGS LIGHT HORIZONTAL}" not in word)
