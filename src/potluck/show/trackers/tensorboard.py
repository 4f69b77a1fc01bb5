"""TensorBoard: event files in <run>/tensorboard/<node>, one curve per node in every picture.

    tensorboard --logdir runs/digits/tensorboard

Values are float32 there, as in all of TensorBoard; metrics.jsonl has them in full.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from potluck.reports.tokens import Recorded
from potluck.show.trackers.base import About, TableRows, Tracker

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def open_tensorboard(about: About) -> Tracker:
    """Begin the node's event file."""
    from torch.utils.tensorboard import SummaryWriter

    # Points of earlier files on rounds that are repeated are not shown any more.
    place = about.folder / "tensorboard" / about.node
    writer = SummaryWriter(str(place), purge_step=about.first_round)
    # Indented by four, so that Markdown takes it as it is, backticks and all.
    lines = json.dumps(about.recipe, indent=2).splitlines()
    writer.add_text("recipe", "\n".join(f"    {line}" for line in lines), about.first_round)
    return _TensorBoard(writer)


class _TensorBoard:
    def __init__(self, writer: "SummaryWriter") -> None:
        self._writer = writer

    def log(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()  # so that this round is seen at once, and a full disk is noticed

    def table(self, round: int, rows: TableRows, recorded: Sequence[Recorded]) -> None:
        # As code, indented: a completion is no Markdown, and has what would end a table's cell.
        lines = [line for row in rows for line in [*json.dumps(row, indent=2).splitlines(), ""]]
        self._writer.add_text("completions", "\n".join(f"    {line}" for line in lines), round)

    def alert(self, round: int, title: str, text: str) -> None:
        self._writer.add_text("alerts", f"    {text}", round)

    def close(self, *, failed: bool) -> None:
        self._writer.close()
