"""Formulas of the site: ``$...$`` and ``$$...$$`` become MathML while it is built.

A browser draws MathML by itself: a page needs no script and no font for it, and shows its formulas
where scripts are off. KaTeX would add its script, styles and fonts to the site, and a download from
a registry to the build, which then needs a network.
"""

import html
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.treeprocessors import Treeprocessor
from pymdownx.arithmatex import ArithmatexExtension

NAMESPACE = ' xmlns="http://www.w3.org/1998/Math/MathML"'
"""Left out: in HTML the parser gives the elements their namespace."""
LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
"""Places of the limits of a sum: below and above it, also between brackets that grow."""


class AsMathML(Treeprocessor):
    """Replaces what ``arithmatex`` has found by MathML."""

    def run(self, root: ElementTree.Element) -> None:
        for found in [each for each in root.iter() if each.get("class") == "arithmatex"]:
            latex = html.unescape(found.text or "").strip()[2:-2].strip()
            found.text = None
            try:
                source = convert(latex, display="block" if found.tag == "div" else "inline")
            except Exception as error:  # of a dozen types, none of which has the formula
                raise ValueError(f"the formula {latex!r} cannot be read: {error!r}") from None
            math = ElementTree.fromstring(source.replace(NAMESPACE, ""))
            for inner in math.iter():
                if len(inner) and inner[0].text in ("∑", "∏"):
                    inner.tag = LIMITS.get(inner.tag, inner.tag)
            found.append(math)


class Formulas(ArithmatexExtension):
    def extendMarkdown(self, md: Markdown) -> None:
        super().extendMarkdown(md)
        md.treeprocessors.register(AsMathML(md), "mathml", 15)  # after inline patterns, 20


def makeExtension() -> Formulas:
    return Formulas(generic=True, block_syntax=["dollar"], inline_syntax=["dollar"])
