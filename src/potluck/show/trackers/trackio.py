"""trackio: curves in a local database, see them with ``trackio show --project potluck``.

Its place, or a Space, is trackio's own setting (TRACKIO_DIR, TRACKIO_SPACE_ID). A resumed run
goes on in the newest one of its group and node, known by name; a repeated round is told twice.
"""

import contextlib
import contextvars
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from potluck.reports.tokens import Recorded
from potluck.show.trackers.base import About, TableRows, Tracker

if TYPE_CHECKING:
    from trackio.run import Run

FACTS = ("problem", "author", "reward", "advantage", "likelihood", "why")


def open_trackio(about: About) -> Tracker:
    """Begin the node's trackio run."""
    import trackio

    def begin() -> "Run":
        return trackio.init(
            project=about.project,
            group=about.group,
            name=about.name,
            config=dict(about.recipe),
            resume="allow" if about.resumed else "never",
            embed=False,
            # They would depend on what else is installed, and n nodes would measure one machine.
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    # It ends the run that its context has; with a context each, nodes keep theirs open.
    with contextlib.redirect_stdout(io.StringIO()):
        return _Trackio(contextvars.Context().run(begin))


class _Trackio:
    def __init__(self, run: "Run") -> None:
        self._run = run

    def log(self, round: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=round)

    def table(self, round: int, rows: TableRows, recorded: Sequence[Recorded]) -> None:
        import trackio

        traces = [
            trackio.Trace(
                [
                    {"role": "user", "content": line.question},
                    {"role": "assistant", "content": line.text},
                ],
                {name: getattr(line, name) for name in FACTS}
                | {"weight": line.kept / line.advantage if line.advantage else None},
            )
            for line in recorded
        ]
        if traces:
            self._run.log({"traces": traces}, step=round)

    def alert(self, round: int, title: str, text: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.alert(title, text, step=round)

    def close(self, *, failed: bool) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.finish()
