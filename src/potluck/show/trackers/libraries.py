"""A tracker, what it is told, and the libraries that draw curves, each as one.

docs/logging.md says where their curves are. TensorBoard has values in float32. W&B knows a resumed
run by an id, drawn once, in <run>/wandb/<node>.id, so that a copied or renamed folder still knows
it; it is given no ``step``, as it refuses one below its last, such as a repeated round, so "round"
is a value of its own, and the x axis of all others. trackio goes on in the newest run of its name.
"""

import contextlib
import contextvars
import io
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

from potluck.reports.tokens import Recorded
from potluck.types import PotluckError

if TYPE_CHECKING:
    from trackio.run import Run

TableRows = Sequence[Mapping[str, Any]]
FACTS = ("problem", "author", "reward", "advantage", "likelihood", "why")
"""Parts of a recorded completion that trackio has beside its text."""
GROUPED = {"reward_mean": "reward/mean", "own_reward_mean": "reward/own"}
"""Fields of a round whose curves belong into one picture; the others keep their names."""


@dataclass(frozen=True, slots=True)
class About:
    """One node's run, as a tracker is told of it when it starts."""

    project: str
    group: str
    """Name that the runs of one potluck have in common."""
    node: str
    folder: Path
    """Folder of the whole run, all nodes."""
    first_round: int
    """Round where a resumed run goes on; this one and later ones will be told anew."""
    resumed: bool
    recipe: Mapping[str, Any]
    """Recipe as plain data, every default spelled out."""
    wandb_mode: Literal["online", "offline"]
    completions: int = 0
    """Rows of the table of a round's completions; 0: there is none."""

    @property
    def name(self) -> str:
        """Name in a list of runs: nodes of different groups often have one name."""
        return f"{self.group}/{self.node}"


class Recording(NamedTuple):
    """A recorded completion, of any author."""

    line: Recorded
    messages: list[dict[str, Any]]
    """Question and answer; or the question and what was said in the episode."""


class Tracker(Protocol):
    """One node's curves. Made by a function that is given an ``About``; may raise anything."""

    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Add a point at ``round`` to each curve; may be called several times for one round."""

    def table(self, round: int, rows: TableRows, recorded: Sequence[Recording]) -> None:
        """Show completions of ``round``: own ``rows``, or all that are ``recorded``."""

    def alert(self, round: int, title: str, text: str) -> None:
        """Draw attention to what was told in ``round``."""

    def close(self, *, failed: bool) -> None:
        """End the curves: called once, however the run ended."""


def round_values(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of metrics.jsonl, under names that trackers fold by; None is
    left out, and a list of names (of missing nodes) is given by its length.

    >>> source = {"k3": 0.25, "k1": None}
    >>> round_values({"round": 3, "reward_mean": 0.5, "sources": {"south": source}, "missing": ()})
    {'reward/mean': 0.5, 'sources/south/k3': 0.25, 'missing': 0}
    """
    named = {GROUPED.get(key, key): value for key, value in metrics.items() if key != "round"}
    return dict(_numbers(named))


def evaluation_values(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of evaluation.jsonl; reward functions by their names.

    >>> evaluation_values({"round": 5, "validation": 0.75, "problems": 200})
    {'evaluation/validation': 0.75, 'evaluation/problems': 200}
    >>> evaluation_values({"round": 5, "rewards": {"brief": -0.1}, "partial": True})
    {'evaluation/brief': -0.1}
    """
    named = {k: v for k, v in line.items() if k not in ("round", "rewards")}
    return dict(_numbers({"evaluation": {**line.get("rewards", {}), **named}}))


def _numbers(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for key, value in tree.items():
        match value:
            case bool():  # a fact, and no curve
                pass
            case int() | float():
                yield above + key, value
            case Mapping():
                yield from _numbers(value, f"{above}{key}/")
            case tuple() | list():
                yield above + key, len(value)


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


WANDB = "https://api.wandb.ai"
KEY_LENGTH = 40
"""Characters of a key of W&B at least."""
HARMLESS_SETTINGS = frozenset(("entity", "project", "run_group", "run_tags", "disabled", "mode"))
"""Keys of a settings file of the current folder that say only which project this is."""


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


def wandb_address() -> str:
    """Find the server of W&B: WANDB_BASE_URL, else what the user's own settings name, else W&B."""
    return os.environ.get("WANDB_BASE_URL") or _own_settings().get("base_url") or WANDB


def require_own_wandb_settings() -> None:
    """Raise PotluckError if a settings file of the current folder says more than which project this
    is: W&B reads it, so whoever made the folder would choose where the user's key goes."""
    for file in (Path("wandb", "settings"), Path(".wandb", "settings")):
        told = sorted(_settings_in(file).keys() - HARMLESS_SETTINGS)
        if told:
            raise PotluckError(
                f"W&B would read {told[0]!r} in {file} of this folder, and send your key "
                f"accordingly; if it is yours, move it into the settings of your account "
                f"(~/.config/wandb/settings), else remove the file"
            )


def has_credentials() -> bool:
    """Return whether W&B knows an account, without asking the user or the network; raise
    PotluckError if it knows one by something that is no key."""
    import wandb

    if wandb.run is not None or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(wandb_address()).hostname or ""
    key = os.environ.get("WANDB_API_KEY") or _own_settings().get("api_key") or _netrc_key(host)
    # A server of one's own puts a word and "-" before it.
    if key and len(key.rpartition("-")[2]) < KEY_LENGTH:
        raise PotluckError(
            f"[log] wandb: the key for {host} has {len(key)} characters, and is none of W&B; call "
            f"`wandb login --relogin`"
        )
    return bool(key)


def _own_settings() -> Mapping[str, str]:
    """Read the user's settings of W&B."""
    folder = os.environ.get("WANDB_CONFIG_DIR") or os.path.join("~", ".config", "wandb")
    return _settings_in(Path(folder).expanduser() / "settings")


def _settings_in(file: Path) -> Mapping[str, str]:
    parser = ConfigParser(interpolation=None)
    try:
        parser.read(file, encoding="utf-8")
        return dict(parser["default"]) if parser.has_section("default") else {}
    except (ConfigParserError, UnicodeDecodeError) as error:
        raise PotluckError(f"[log] wandb: {file} cannot be read ({error}); mend it") from error


def _netrc_key(host: str) -> str:
    file = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        found = netrc(file).authenticators(host)
    except (OSError, NetrcParseError):
        return ""
    return (found[2] or "") if found else ""
