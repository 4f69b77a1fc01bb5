"""Lists as Python-Markdown reads them, out of lists as CommonMark, and so GitHub, reads them."""

import re

FENCE = re.compile(r" *(```+|~~~+)")
ITEM = re.compile(r" {0,3}(?:[-*+]|\d+[.)]) +(?=\S)")
STEP = "    "


def relisted(text: str) -> str:
    """Indent what is inside a list item by four spaces, and put an empty line before a list.

    CommonMark takes the width of an item's mark, two for "- ", and lets a list follow a paragraph.

    >>> print(relisted("Two:\\n- a\\n\\n  more\\n  - b"))
    Two:
    <BLANKLINE>
    - a
    <BLANKLINE>
        more
    <BLANKLINE>
        - b
    """
    lines: list[str] = []
    columns: list[int] = []
    """Column of the content of each open item."""
    fence, is_loose, in_paragraph, is_long = "", True, False, False
    for line in text.split("\n"):
        found = FENCE.match(line)
        if fence:
            fence = "" if found and found[1].startswith(fence) else fence
            lines.append(_moved(line, columns))
            continue
        if not line.strip():
            lines.append("")
            is_loose, in_paragraph, is_long = True, False, bool(columns)
            continue
        indent = len(line) - len(line.lstrip())
        starts = ITEM.match(line[columns[-1] :] if columns and indent >= columns[-1] else line)
        while columns and indent < columns[-1] and (is_loose or starts or found):
            columns.pop()
        if starts := ITEM.match(line[columns[-1] if columns else 0 :]):
            if (in_paragraph and not columns) or (is_long and not is_loose):
                lines.append("")
            is_long = False
            lines.append(_moved(line, columns))
            columns.append((columns[-1] if columns else 0) + starts.end())
        else:
            lines.append(_moved(line, columns))
        fence = found[1] if found else ""
        is_loose, in_paragraph = False, not (starts or columns or found)
    return "\n".join(lines)


def _moved(line: str, columns: list[int]) -> str:
    """Return the line with four spaces for each open item, whatever their marks are wide."""
    column = columns[-1] if columns else 0
    cut = min(column, len(line) - len(line.lstrip()))
    return STEP * len(columns) + line[cut:] if line.strip() else ""
