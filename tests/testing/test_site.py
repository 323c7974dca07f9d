"""The check of the built site finds links that leave it and links that lead nowhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs"))

import check_site
import diagrams
import navigation

SOUND = """<html><head><link rel="stylesheet" href="style.css?v=1"><link rel="canonical"
href="https://culm.example/"><script src="script.js"></script></head><body><h1 id="here">x</h1>
<a href="#here">a</a><a href="sub/other.html#there">b</a><a href="https://elsewhere.example/">c</a>
<a href="sub/">d</a><a href="mailto:x@y.example">e</a>
<img src="data:image/png;base64,AA=="></body></html>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(SOUND)
    (tmp_path / "sub/other.html").write_text('<p id="there"><a href="../index.html#here">y</a>')
    (tmp_path / "sub/index.html").write_text("<p>z")
    (tmp_path / "style.css").write_text('p { background: url("picture.png") }')
    (tmp_path / "script.js").write_text("")
    return tmp_path


def test_a_sound_site_has_no_faults(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_site.main(str(site)) == 0
    assert "3 pages, 0 faults" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ('<script src="https://x.example/a.js"></script>', "loads https://x.example/a.js"),
        ('<script src="//x.example/a.js"></script>', "loads //x.example/a.js"),
        (
            '<script type="module">import m from "https://x.example/m.mjs";</script>',
            "loads https://x.example/m.mjs",
        ),
        ("<script>import('https://x.example/m.mjs')</script>", "loads https://x.example/m.mjs"),
        (
            '<link rel="preload" href="https://x.example/f.woff2">',
            "loads https://x.example/f.woff2",
        ),
        ("<style>@import 'https://x.example/s.css';</style>", "loads https://x.example/s.css"),
        ('<p style="background: url(https://x.example/p)">', "loads https://x.example/p"),
        ('<img srcset="style.css 1x, http://x.example/p 2x">', "loads http://x.example/p"),
        ('<img src="gone.png">', "lacks gone.png"),
        ('<script src="sub/gone.js"></script>', "lacks sub/gone.js"),
        ('<a href="gone.html">g</a>', "leads nowhere: gone.html"),
        ('<a href="sub/other.html#gone">g</a>', "leads nowhere: sub/other.html#gone"),
        ('<a href="#gone">g</a>', "leads nowhere: #gone"),
        ('<a href="../index.html">g</a>', "leads nowhere: ../index.html"),
    ],
)
def test_what_leaves_or_leads_nowhere_is_found(site: Path, more: str, fault: str) -> None:
    (site / "index.html").write_text(SOUND + more)
    assert list(check_site.faults(site)) == [f"index.html: {fault}"]
    assert check_site.main(str(site)) == 1


def test_styles_and_pictures_are_looked_into(site: Path) -> None:
    (site / "style.css").write_text("@font-face { src: url(https://x.example/f.woff2) }")
    (site / "p.svg").write_text('<svg><image href="https://x.example/p.png"/></svg>')
    assert list(check_site.faults(site)) == [
        "p.svg: loads https://x.example/p.png",
        "style.css: loads https://x.example/f.woff2",
    ]


def test_a_folder_without_pages_is_no_site(tmp_path: Path) -> None:
    assert check_site.main(str(tmp_path)) == 1


def test_what_does_not_leave_a_state_is_drawn_within_it() -> None:
    source = (
        "stateDiagram-v2\n    [*] --> A\n    A --> A: wait\n    A --> B : go\n    A --> A : stay"
    )
    drawn = diagrams.drawable(source)
    assert drawn.splitlines() == [
        "stateDiagram-v2",
        "    [*] --> A",
        "    A : A",
        "    A : \u21bb wait",
        "    A --> B : go",
        "    A : \u21bb stay",
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "stateDiagram-v2\n    [*] --> A\n    A --> B: go\n    B --> [*] : over",
            "State diagram. start to A; A to B: go; B to end: over.",
        ),
        (
            "sequenceDiagram\n    participant A\n    A->>B: hello\n    B-->>A: you",
            "Sequence diagram. A to B: hello; B to A: you.",
        ),
        ("flowchart TB\n    a([x]) --> b[y]", "Flow chart"),
        ("pie", "Diagram"),
    ],
)
def test_a_diagram_is_described_in_words(source: str, words: str) -> None:
    assert diagrams.description(source) == words


def test_a_notebook_is_the_markdown_that_it_comes_to() -> None:
    pytest.importorskip("myst_parser")
    import notebooks

    cells = [
        {"cell_type": "markdown", "source": ["# A\n", "text"]},
        {
            "cell_type": "code",
            "source": "print(1)\n2",
            "outputs": [{"text": ["1\n"]}, {"data": {"text/plain": "2"}}],
        },
    ]
    fence = notebooks.FENCE
    assert notebooks.markdown_of({"cells": cells}, "a.ipynb").split("\n\n") == [
        "# A\ntext",
        f"{fence}python\nprint(1)\n2\n{fence}",
        f"{fence}text\n1\n{fence}",
        f"{fence}text\n2\n{fence}",
        "{download}`The notebook <a.ipynb>`\n",
    ]


TREE = """<ul>
<li class="toctree-l1"><a class="reference internal" href="sub/index.html">Sub</a>
<ul>
<li class="toctree-l2"><a class="reference internal" href="sub/other.html">Other</a></li>
</ul>
</li>
<li class="toctree-l1"><a class="reference external" href="https://x.example/">X</a></li>
</ul>"""


def test_the_tree_of_pages_is_marked_and_led_from_where_it_is_seen() -> None:
    tree = navigation.Tree(TREE)
    assert tree.seen_from("index.html") == TREE
    assert tree.seen_from("sub/third.html") == TREE.replace('"sub/', '"')
    assert (
        tree.seen_from("sub/other.html")
        == """<ul class="current">
<li class="toctree-l1 current"><a class="reference internal" href="index.html">Sub</a>
<ul class="current">
<li class="toctree-l2 current"><a class="current reference internal" href="#">Other</a></li>
</ul>
</li>
<li class="toctree-l1"><a class="reference external" href="https://x.example/">X</a></li>
</ul>"""
    )


def test_titles_and_code_in_a_table_may_break_between_the_parts_of_names_and_nothing_else() -> None:
    whole = '<span class="pre">a.b_c(d=1.5) &lt;x._y&gt; ...</span>'
    parts = '<span class="pre">a.<wbr>b_<wbr>c(<wbr>d=<wbr>1.<wbr>5) &lt;x.<wbr>_y&gt; ...</span>'
    cell = f"<p>{whole}</p><table><td>a.b {{}}</td></table>"
    assert navigation.breakable(cell.format(whole)) == cell.format(parts)
    title = "<h1>culm.{}oxen<a>#</a></h1><p>culm.oxen</p>"
    assert navigation.breakable(title.format("")) == title.format("<wbr>")
