"""Texts that end a completion, wherever the borders of its tokens are.

    written                  stop text      learned and shared      graded
    "18\n\nQuestion"         "\n\n"         "18\n\n"                "18"
    "<a>18</a> So"           "</a>"         "<a>18</a>"             "<a>18</a>"

A completion ends with the token that makes the first of them whole. The text carries its own end,
so a reader with another tokenizer puts no stop token behind it.
"""

import re
from collections.abc import Sequence

CLOSING_TAG = re.compile(r"</[\w:-]+>\s*")
"""Stop text that closes what the answer has opened, and so belongs to it."""


def end_of_stop_text(text: str, stop_texts: Sequence[str]) -> int | None:
    """Find where the stop text that is whole first ends; None: there is none in ``text``.

    >>> end_of_stop_text("18\\n\\nQuestion", ("Question", "\\n\\n"))
    4
    """
    ends = [text.find(each) + len(each) for each in stop_texts if each in text]
    return min(ends, default=None)


def graded_part(text: str, stop_texts: Sequence[str]) -> str:
    """Return what is graded of a text: all before the stop text that is whole first, of several
    that end at one place the longest. A closing tag is graded too.

    >>> graded_part("18\\n\\nQuestion", ("Question", "\\n\\n"))
    '18'
    >>> graded_part("<answer>18</answer> So", ("</answer>",))
    '<answer>18</answer>'
    """
    end = end_of_stop_text(text, stop_texts)
    if end is None:
        return text
    longest = max((each for each in stop_texts if text.endswith(each, 0, end)), key=len)
    return text[:end] if CLOSING_TAG.fullmatch(longest) else text[: end - len(longest)]
