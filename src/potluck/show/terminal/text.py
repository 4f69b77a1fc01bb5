"""Text, numbers and tables as they are shown: safe, short, and the same everywhere."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.files import both_ends, printable
from potluck.objective.methods import METHODS

SPARKS = "▁▂▃▄▅▆▇█"


def formatted(value: float | None, format: str) -> str:
    """Return a number as ``format`` writes it, or a dash for None."""
    return "-" if value is None else f"{value:{format}}"


def decimal(value: float | None, digits: int = 3) -> str:
    """Return a decimal number, or a dash; never "-0.000"."""
    return formatted(value, f"z.{digits}f")


def percent(value: float | None) -> str:
    """Return a share in whole percent, or a dash."""
    return formatted(value, "z.0%")


def duration(seconds: float) -> str:
    """Return a time as people say it: "42 s", "26 min", "2.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def label(method: str) -> str:
    """Return a method's title as the paper has it; a weight of one's own as it is called."""
    return METHODS[method].title if method in METHODS else method


def sparkline(shares: Sequence[float], width: int = 16) -> str:
    """Draw a curve as one line of blocks. Its axis is 0 to 1, so that two can be compared."""
    if (last := len(shares) - 1) >= width:  # evenly spread, the first and the last among them
        shares = [shares[round(at * last / (width - 1))] for at in range(width)]
    return "".join(SPARKS[min(7, max(0, int(share * 8)))] for share in shares)


def new_table(console: Console, texts: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Return a table without rows: columns of text, then right-aligned columns of numbers."""
    made = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for name in texts:
        made.add_column(Text(name), overflow="fold")
    for name in numbers:
        made.add_column(Text(name), justify="right")
    return made


def spent(name: str, amount: float) -> str:
    """Write an amount of a cost: "1,200 prompt tokens", "0.0013 usd"."""
    shown = f"{amount:,.4g}" if name == "usd" else f"{amount:,.0f}"
    return f"{shown} {printable(name.replace('_', ' '), 20)}"


def line_of(text: str, limit: int) -> str:
    """Put both ends of ``text`` on one line of at most ``limit`` characters."""
    return both_ends(printable(text, len(text) + 1), limit)
