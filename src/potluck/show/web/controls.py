"""Controls of a run on its page: what they told, and the curves of those that are being made.

<run>/control.KIND.NODE/NODE/    one node by itself; in control.own-part/ all of them
"""

from itertools import islice
from pathlib import Path

from potluck.reports.answers import CONTROLS, answers
from potluck.reports.runs import METRICS
from potluck.show.web.bounds import MOST_NODES, NAME
from potluck.show.web.metrics import NodeMetrics
from potluck.show.web.views import Columns, ControlView


class WatchedControls:
    """The controls in one run's folder, as far as they were read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rounds: dict[tuple[str, str], NodeMetrics] = {}

    def look(self) -> list[ControlView]:
        """Read what is new; return each node beside each control."""
        for file in islice(self._folder.glob(f"control.*/*/{METRICS}"), MOST_NODES):
            key = file.parent.name, file.parts[-3].split(".")[1]
            self._rounds.setdefault(key, NodeMetrics(file.parent)).look()
        told = {(each.node, each.control): each for each in answers(self._folder)[:MOST_NODES]}
        return [
            ControlView(
                node=node[:NAME],
                kind=kind[:NAME],
                how=CONTROLS.get(kind, "in another control"),
                columns=self._curve(node, kind),
                answer=answer,
                verdict=answer.verdict if answer else "",
            )
            for node, kind in sorted({*told, *self._rounds})
            for answer in [told.get((node, kind))]
        ]

    def _curve(self, node: str, kind: str) -> Columns:
        rounds = self._rounds.get((node, kind))
        columns = rounds.curves() if rounds else {"round": [], "own_reward_mean": []}
        return {name: columns[name] for name in ("round", "own_reward_mean")}
