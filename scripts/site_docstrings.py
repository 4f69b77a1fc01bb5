"""Docstrings of the package as the site's Markdown: an example that runs becomes a block of code.

In a docstring ``>>>`` begins it and an empty line ends it; in Markdown three signs are a quotation.
"""

import re
from typing import Any

import griffe

from site_lists import relisted

EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def fenced(docstring: str) -> str:
    """Put a fence around each example."""
    fence = r"\g<indent>```python\n\g<0>\n\g<indent>```"
    return EXAMPLE.sub(fence, docstring)


class Fences(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = relisted(fenced(obj.docstring.value))
