"""What a person sees: a run while it goes, a run folder afterwards, the demo's picture and report.

    live.py        the progress of ``potluck run``
    show.py        ``potluck show RUN``, from a folder that runs.py reads
    picture.py     the demo's curves as a PNG
    report.py      the demo's result as one HTML file
    evaluation.py  what ``potluck evaluate`` found
    tables.py      the demo's result as one table

It reads files and plain dicts, and imports no other room: no torch, no model, no network.
Text of a model or a peer passes ``printable`` before it is shown, wherever that is.
"""

from typing import TYPE_CHECKING, Any

from potluck.dashboard.cells import CellsDisplay
from potluck.dashboard.comparison import verdict
from potluck.dashboard.evaluation import show_evaluation
from potluck.dashboard.live import LiveDisplay
from potluck.dashboard.report import write_report
from potluck.dashboard.runs import Run, RunReadError, read_run
from potluck.dashboard.show import show
from potluck.dashboard.tables import demo_table
from potluck.dashboard.text import printable

if TYPE_CHECKING:
    from potluck.dashboard.picture import draw

__all__ = [
    "CellsDisplay",
    "LiveDisplay",
    "Run",
    "RunReadError",
    "demo_table",
    "draw",
    "printable",
    "read_run",
    "show",
    "show_evaluation",
    "verdict",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Loads matplotlib (half a second) with the first picture, not with every command."""
    if name == "draw":
        from potluck.dashboard.picture import draw

        return draw
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
