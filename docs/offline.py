"""Sphinx extension: diagrams and formulas are drawn while the site is built.

So the site needs no network. A ``mermaid`` block becomes a picture, whose brightness dark pages
turn round; mermaid itself runs inside the build (`mermaidx`). Formulas become MathML, which
browsers draw by themselves. Of a picture beside which lies ``NAME-dark``, dark pages show that.
"""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path, PurePosixPath
from typing import Any

import latex2mathml.converter
import mermaidx
from diagrams import description, drawable
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

# The classes by which furo shows a picture on light or on dark pages only.
ON_PAGES = ("only-light", "only-dark")


class Mermaid(SphinxDirective):
    """A diagram, drawn from its text.  The picture leads to itself, where it can be enlarged.

    Its transitions or messages in words are what a screen reader says; the argument of the
    directive, where there is one, takes their place.
    """

    optional_arguments = 1
    final_argument_whitespace = True

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draw it, unless it has not changed since it was drawn."""
        source = "\n".join(self.content)
        text = drawable(source)
        name = f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.svg"
        picture = Path(self.env.app.doctreedir) / "diagrams" / name
        if not picture.exists():
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_text(in_its_size(mermaidx.render(text).svg()), encoding="utf-8")
        alt = html.escape(self.arguments[0] if self.arguments else description(source))
        drawn = picture.read_text(encoding="utf-8")
        return [show(self.env, f"diagrams/{name}", drawn, "diagram", alt)]


def in_its_size(picture: str) -> str:
    """The picture as wide as it was drawn, where mermaid lets it fill the page."""
    return re.sub(r'width="100%"(.*?viewBox="\S+ \S+ (\S+) )', r'width="\2"\1', picture, count=1)


def show(env: BuildEnvironment, name: str, picture: str, kind: str, alt: str) -> nodes.Node:
    """Put a picture into the site, and on the page, where it leads to itself.

    kind: the class of the paragraph around it.
    alt: what it shows in words, as HTML.
    """
    place = Path(env.app.outdir) / "_static" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(picture, encoding="utf-8")
    url = f"{'../' * env.docname.count('/')}_static/{name}"
    return nodes.raw(
        "",
        f'<p class="{kind}"><a href="{url}">'
        f'<img alt="{alt}" src="{url}" style="max-width: 100%"></a></p>',
        format="html",
    )


def pair_pictures(app: Sphinx, page: nodes.document) -> None:
    """Put beside a picture its twin for dark pages, if there is one."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for picture in list(page.findall(nodes.image)):
        light = PurePosixPath(picture["uri"])
        dark = light.with_name(f"{light.stem}-dark{light.suffix}")
        if (folder / dark).is_file():
            twin = picture.deepcopy()
            twin["uri"] = str(dark)
            for each, kind in zip((picture, twin), ON_PAGES, strict=True):
                each["classes"].append(kind)
            picture.parent.insert(picture.parent.index(picture) + 1, twin)


def inline_formula(translator: Any, node: nodes.math) -> None:
    """Write a formula within a line as MathML."""
    translator.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def formula(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own as MathML."""
    translator.body.append(latex2mathml.converter.convert(node.astext(), display="block"))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("mermaid", Mermaid)
    app.connect("doctree-read", pair_pictures, priority=100)  # before pictures are collected
    app.add_html_math_renderer("mathml", (inline_formula, None), (formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
