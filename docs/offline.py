"""Sphinx extension: diagrams and formulas are drawn while the site is built.

So the site needs no network. A ``mermaid`` block becomes two pictures, one for light and one for
dark pages; mermaid itself runs inside the build (`mermaidx`). Formulas become MathML, which
browsers draw by themselves. Of a picture beside which lies ``NAME-dark``, dark pages show that.
"""

from __future__ import annotations

import hashlib
import html
from pathlib import Path, PurePosixPath
from typing import Any

import latex2mathml.converter
import mermaidx
from diagrams import description, drawable
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

# Mermaid's themes, and the class by which furo shows a picture on pages of that kind only.
THEMES = {"default": "only-light", "dark": "only-dark"}


class Mermaid(SphinxDirective):
    """A diagram, drawn from its text.  The picture leads to itself, where it can be enlarged.

    Its transitions or messages in words are what a screen reader says; the argument of the
    directive, where there is one, takes their place.
    """

    optional_arguments = 1
    final_argument_whitespace = True

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draw it in both themes."""
        source = "\n".join(self.content)
        folder = Path(self.env.app.doctreedir) / "diagrams"
        return [self._picture(source, theme, folder) for theme in THEMES]

    def _picture(self, source: str, theme: str, folder: Path) -> nodes.Node:
        name = f"{hashlib.sha256(drawable(source).encode()).hexdigest()[:16]}-{theme}.svg"
        picture = folder / name
        if not picture.exists():  # what has not changed is not drawn again
            drawn = mermaidx.render(drawable(source), theme=theme).svg()
            folder.mkdir(parents=True, exist_ok=True)
            picture.write_text(drawn, encoding="utf-8")
        alt = html.escape(self.arguments[0] if self.arguments else description(source))
        text = picture.read_text(encoding="utf-8")
        return show(self.env, f"diagrams/{name}", text, THEMES[theme], alt)


def show(env: BuildEnvironment, name: str, picture: str, theme: str, alt: str) -> nodes.Node:
    """Put a picture into the site, and on the page, where it leads to itself.

    theme: the class by which furo shows it on pages of one kind only.
    alt: what it shows in words, as HTML.
    """
    place = Path(env.app.outdir) / "_static" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(picture, encoding="utf-8")
    url = f"{'../' * env.docname.count('/')}_static/{name}"
    return nodes.raw(
        "",
        f'<p class="{theme}"><a href="{url}">'
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
            for each, theme in zip((picture, twin), THEMES.values(), strict=True):
                each["classes"].append(theme)
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
