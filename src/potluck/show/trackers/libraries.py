"""The libraries that draw curves, each as a ``Tracker``.

docs/logging.md says where their curves are. TensorBoard has values in float32. W&B knows a resumed
run by an id, drawn once, in <run>/wandb/<node>.id, so that a copied or renamed folder still knows
it; it is given no ``step``, as it refuses one below its last, such as a repeated round, so "round"
is a value of its own, and the x axis of all others. trackio goes on in the newest run of its name.
"""

import contextlib
import contextvars
import io
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from potluck.show.trackers.base import About, Recording, TableRows
from potluck.types import PotluckError

if TYPE_CHECKING:
    from trackio.run import Run

FACTS = ("problem", "author", "reward", "advantage", "likelihood", "why")


class TensorBoard:
    def __init__(self, about: About) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Points of earlier files on rounds that are repeated are not shown any more.
        place = about.folder / "tensorboard" / about.node
        self._writer = SummaryWriter(str(place), purge_step=about.first_round)
        self._add_json("recipe", [about.recipe], about.first_round)

    def log(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()  # so that this round is seen at once, and a full disk is noticed

    def table(self, round: int, rows: TableRows, recorded: Sequence[Recording]) -> None:
        self._add_json("completions", rows, round)

    def alert(self, round: int, title: str, text: str) -> None:
        self._writer.add_text("alerts", f"    {text}", round)

    def close(self, *, failed: bool) -> None:
        self._writer.close()

    def _add_json(self, name: str, trees: TableRows, round: int) -> None:
        # Indented by four it is code: Markdown takes it as it is, backticks and all.
        lines = [line for tree in trees for line in json.dumps(tree, indent=2).splitlines()]
        self._writer.add_text(name, "\n".join(f"    {line}" for line in lines), round)


class Wandb:
    def __init__(self, about: About) -> None:
        import wandb

        file = about.folder / "wandb" / f"{about.node}.id"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(secrets.token_hex(8) + "\n", encoding="utf-8")
        self._run = wandb.init(
            project=about.project,
            group=about.group,
            name=about.name,
            id=file.read_text(encoding="utf-8").strip(),
            resume="allow",
            mode=about.wandb_mode,
            dir=about.folder,
            config=dict(about.recipe),
            reinit="create_new",  # beside the other nodes' runs, which stay open
            # Numbers and the recipe, and no screen, source code or repository.
            settings=wandb.Settings(console="off", silent=True, save_code=False, disable_git=True),
        )
        self._run.define_metric("round", hidden=True)
        self._run.define_metric("*", step_metric="round")

    def log(self, round: int, values: Mapping[str, float]) -> None:
        self._run.log({"round": round, **values})

    def table(self, round: int, rows: TableRows, recorded: Sequence[Recording]) -> None:
        import wandb

        # A column has one type; what was said in two episodes would be of two.
        cells = [
            {k: json.dumps(v) if isinstance(v, list) else v for k, v in r.items()} for r in rows
        ]
        table = wandb.Table(columns=[*rows[0]], data=[[*row.values()] for row in cells])
        self._run.log({"round": round, "completions/table": table})  # "completions" is a number

    def alert(self, round: int, title: str, text: str) -> None:
        self._run.alert(title, text)

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class Trackio:
    def __init__(self, about: About) -> None:
        import trackio

        def begin() -> "Run":
            return trackio.init(
                project=about.project,
                group=about.group,
                name=about.name,
                config=dict(about.recipe),
                resume="allow" if about.resumed else "never",
                embed=False,
                # They depend on what else is installed, and n nodes would measure one machine.
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

        # It ends the run that its context has; with a context each, nodes keep theirs open.
        with contextlib.redirect_stdout(io.StringIO()):
            self._run = contextvars.Context().run(begin)

    def log(self, round: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=round)

    def table(self, round: int, rows: TableRows, recorded: Sequence[Recording]) -> None:
        import trackio

        traces = []
        for line, messages in recorded:
            facts = {name: getattr(line, name) for name in FACTS}
            facts["weight"] = line.kept / line.advantage if line.advantage else None
            traces.append(trackio.Trace(messages, facts))
        if traces:
            self._run.log({"traces": traces}, step=round)

    def alert(self, round: int, title: str, text: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.alert(title, text, step=round)

    def close(self, *, failed: bool) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.finish()


def has_credentials() -> bool:
    """Return whether W&B knows an account, without asking the user or the network; raise
    PotluckError if it knows one by something that is no key."""
    import wandb

    try:
        return wandb.run is not None or wandb.login(prompt=False, verify=False)
    except wandb.Error as error:
        raise PotluckError(f"[log] wandb: {error}; call `wandb login --relogin`") from error
