"""Text and numbers as they are shown: safe, short, and the same everywhere."""

import re
import unicodedata
from collections.abc import Iterable

INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that steer a display instead of showing on it (or show nothing)."""

SPARKS = "▁▂▃▄▅▆▇█"


def printable(text: str, limit: int = 200) -> str:
    """``text`` on one line, without what could steer a terminal or turn the reading order.

    A model or a peer chose the characters, so nothing in it may move a cursor, hide a
    part or span lines. Markup (of rich, of HTML) is left as it is: whoever shows the
    text escapes it, because only there is it known which markup counts.

    Args:
        limit: of characters, the ellipsis of a text that was cut included.

    >>> printable("4+8=12\\n\\x1b[31mred")
    '4+8=12⏎[31mred'
    >>> printable("abcdef", limit=4)
    'abc…'
    """
    kept: list[str] = []
    # Cut before the replacements, too: a text of many megabytes costs no more than its head,
    # but what is invisible does not count towards the limit.
    for piece in re.finditer(r"\r\n|.", text, re.DOTALL):
        character = piece.group()
        if character in ("\n", "\r", "\r\n"):
            kept.append("⏎")
        elif character == "\t":
            kept.append(" ")
        elif unicodedata.category(character) not in INVISIBLE:
            kept.append(character)
        if len(kept) > limit:
            return "".join(kept[: limit - 1]) + "…"
    return "".join(kept)


def decimal(value: float | None, digits: int = 3) -> str:
    """A number, or a dash for one that does not exist.

    >>> decimal(0.5), decimal(None), decimal(-0.0001)
    ('0.500', '-', '0.000')
    """
    return "-" if value is None else f"{value:z.{digits}f}"


def percent(value: float | None) -> str:
    """A share in whole percent, or a dash.

    >>> percent(0.204), percent(None)
    ('20%', '-')
    """
    return "-" if value is None else f"{value:z.0%}"


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that exist; None where there is none.

    >>> mean([1.0, None, 2.0]), mean([None])
    (1.5, None)
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def sparkline(shares: Iterable[float], width: int = 16) -> str:
    """A curve of shares in one line of blocks. Always from 0 to 1, so that two can be compared.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    values = list(shares)
    if len(values) > width:
        # Evenly spread, the first and the last among them.
        last = len(values) - 1
        values = [values[round(at * last / (width - 1))] for at in range(width)]
    return "".join(SPARKS[min(7, max(0, int(value * 8)))] for value in values)
