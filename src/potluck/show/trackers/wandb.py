"""W&B: one run per node, in one group; offline ones are sent later with ``wandb sync``.

The files are in <run>/wandb. A resumed run goes on in the same W&B run: its id is drawn once
and stays in <run>/wandb/<node>.id, so that a copied or renamed folder still knows it.

Deviation: no ``step`` is given, as W&B refuses one below its last, such as a repeated round. So
"round" is a value of its own, and the x axis of all others. A repeated round is told twice.
"""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from potluck.reports.tokens import Recorded
from potluck.show.trackers.base import About, TableRows, Tracker, TrackerError

if TYPE_CHECKING:
    import wandb


def has_credentials() -> bool:
    """Return whether W&B knows an account, without asking the user or the network; raise
    TrackerError if it knows one by something that is no key."""
    import wandb

    try:
        return wandb.run is not None or wandb.login(prompt=False, verify=False)
    except wandb.Error as error:
        raise TrackerError(f"[log] wandb: {error}; call `wandb login --relogin`") from error


def open_wandb(about: About) -> Tracker:
    """Begin the node's W&B run."""
    import wandb

    run = wandb.init(
        project=about.project,
        group=about.group,
        name=about.name,
        id=_stored_id(about.folder / "wandb" / f"{about.node}.id"),
        resume="allow",
        mode=about.wandb_mode,
        dir=about.folder,
        config=dict(about.recipe),
        reinit="create_new",  # beside the other nodes' runs, which stay open
        # Numbers and the recipe, and no screen, source code or repository.
        settings=wandb.Settings(console="off", silent=True, save_code=False, disable_git=True),
    )
    run.define_metric("round", hidden=True)
    run.define_metric("*", step_metric="round")
    return _Wandb(run)


class _Wandb:
    def __init__(self, run: "wandb.Run") -> None:
        self._run = run

    def log(self, round: int, values: Mapping[str, float]) -> None:
        self._run.log({"round": round, **values})

    def table(self, round: int, rows: TableRows, recorded: Sequence[Recorded]) -> None:
        import wandb

        table = wandb.Table(columns=[*rows[0]], data=[[*row.values()] for row in rows])
        self._run.log({"round": round, "completions": table})

    def alert(self, round: int, title: str, text: str) -> None:
        self._run.alert(title, text)

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


def _stored_id(file: Path) -> str:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(secrets.token_hex(8) + "\n", encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()
