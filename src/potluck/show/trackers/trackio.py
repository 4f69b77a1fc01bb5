"""trackio: curves in a local database, see them with ``trackio show --project potluck``.

Its place, or a Space, is trackio's own setting (TRACKIO_DIR, TRACKIO_SPACE_ID). A resumed run
goes on in the newest one of its group and node, known by name; a repeated round is told twice.
"""

import contextlib
import contextvars
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from potluck.show.trackers.base import About, Tracker

if TYPE_CHECKING:
    from trackio.run import Run


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

    def table(self, round: int, rows: Sequence[Mapping[str, Any]]) -> None:
        import trackio

        table = trackio.Table(columns=[*rows[0]], data=[[*row.values()] for row in rows])
        self._run.log({"completions": table}, step=round)

    def close(self, *, failed: bool) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.finish()
