"""The demo's result as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from potluck.dashboard.comparison import compare, label
from potluck.dashboard.text import decimal, printable


def demo_table(summary: Mapping[str, Any]) -> Table:
    """A row per node: accuracy at the start, and at the end under each method."""
    comparison = compare(summary)
    table = Table(box=box.SIMPLE_HEAD, title="accuracy (greedy, problems not trained on)")
    table.add_column("node")
    table.add_column("start", justify="right")
    for method in comparison.methods:
        table.add_column(Text(printable(label(method), 12)), justify="right")
    for node in comparison.curves:
        ends = [comparison.end(node, method) for method in comparison.methods]
        table.add_row(
            Text(printable(node, 32), style="bold"),
            decimal(comparison.start(node), 2),
            *(decimal(end, 2) for end in ends),
        )
    return table
