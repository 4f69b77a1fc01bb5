"""Markdown's tables and numbers. Equal to the last letter on every machine: all is rounded."""

from collections.abc import Iterable, Sequence

from potluck.dashboard import printable
from potluck.reproduce.judge.statistics import Interval

NOTHING = "-"


def cell(text: str) -> str:
    """Anybody's text on one line of a table: it can neither end its cell nor be markup.

    >>> cell("a | b <i>")
    'a \\\\| b &lt;i>'
    """
    shown = printable(" ".join(text.split()), limit=500)
    return shown.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Of cells that are Markdown already.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [head, *rows]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], "|" + "---|" * len(head), *text[1:]])


def accuracy(value: float) -> str:
    """Three decimals, 0..1, without the 0 that all have.

    >>> accuracy(0.9126), accuracy(1), accuracy(-0.0001), accuracy(-0.25)
    ('.913', '1.000', '.000', '-.250')
    """
    return f"{value:z.3f}".replace("0.", ".", 1)


def gain(value: float) -> str:
    """A difference of accuracies, with its sign.

    >>> gain(0.0126), gain(-0.5), gain(0.0)
    ('+.013', '-.500', '.000')
    """
    text = accuracy(value)
    return text if text[0] == "-" or text == ".000" else f"+{text}"


def gain_within(interval: Interval | None) -> str:
    """A difference and its interval.

    >>> gain_within(Interval(0.01, -0.02, 0.04, 5)), gain_within(None)
    ('+.010 [-.020, +.040]', '-')
    """
    if interval is None:
        return NOTHING
    return f"{gain(interval.mean)} [{gain(interval.low)}, {gain(interval.high)}]"


def accuracy_within(interval: Interval | None) -> str:
    """An accuracy and its interval, of which nothing outside 0..1 is shown.

    >>> accuracy_within(Interval(0.95, 0.85, 1.05, 5))
    '.950 [.850, 1.000]'
    """
    if interval is None:
        return NOTHING
    low, high = max(0.0, interval.low), min(1.0, interval.high)
    return f"{accuracy(interval.mean)} [{accuracy(low)}, {accuracy(high)}]"


def amount_within(interval: Interval | None, decimals: int) -> str:
    """A ratio, or a count, and its interval.

    >>> amount_within(Interval(0.5, 0.45, 0.55, 5), 2)
    '0.50 [0.45, 0.55]'
    """
    if interval is None:
        return NOTHING
    mean, low, high = (f"{x:z.{decimals}f}" for x in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def listed(words: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "cell"), counted(2, "cell")
    ('1 cell', '2 cells')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
