"""A run folder, read. What is missing is missing; what is damaged is one clear error.

    <run>/recipe.json                 the resolved recipe: what makes a folder a run
    <run>/<node>/metrics.jsonl        one line per round
    <run>/<node>/evaluation.jsonl     one line per greedy evaluation
    <run>/<node>/completions.jsonl    one line per completion

A run may be writing while it is read, or have crashed: a last line that is cut off is
left out. A run that was resumed may tell of a round twice: the later line counts.
Fields that this file does not know are passed over, so newer runs can be read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from potluck.dashboard.text import printable
from potluck.types import NODE_NAME, PotluckError


class RunReadError(PotluckError):
    """A folder that is no run, or a file of a run that cannot be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """What one node made of one author's completions in one round."""

    completions: int = 0
    tokens: int = 0
    """Of all of them, those without an advantage too."""
    reward_mean: float | None = None
    log_ratio_mean: float | None = None
    """ln of the node's own probability over the author's, per token. Nats."""
    k3: float | None = None
    capped_share: float | None = None
    filtered_share_negative: float | None = None
    effective_sample_size: float | None = None


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """One line of metrics.jsonl; a statistic that does not exist is None."""

    round: int
    own_reward_mean: float | None = None
    filtered_share: float | None = None
    completions: int = 0
    rows_trained: int = 0
    missing: tuple[str, ...] = ()
    late: int = 0
    late_used: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    sent_bytes_per_token: float | None = None
    seconds: Mapping[str, float | None] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One line of evaluation.jsonl: greedy accuracies, after ``round`` rounds."""

    round: int
    validation: float | None = None
    out_of_distribution: float | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """One line of completions.jsonl. ``text`` and ``author`` are not safe to show as they are."""

    round: int
    problem: str
    author: str
    index: int
    reward: float
    text: str


@dataclass(frozen=True, slots=True)
class NodeRun:
    """What one node left in its folder."""

    name: str
    model: str
    rounds: tuple[RoundMetrics, ...]
    evaluations: tuple[Evaluation, ...]
    last_written: tuple[Written, ...]
    """The completions of the last round that the file tells of."""


@dataclass(frozen=True, slots=True)
class TaskRecipe:
    name: str = "?"


@dataclass(frozen=True, slots=True)
class ObjectiveRecipe:
    importance: str = "?"
    filter: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecipe:
    model: str = "?"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The parts of recipe.json that are shown."""

    name: str
    rounds: int
    node: Mapping[str, NodeRecipe]
    seed: int = 0
    plan: str = "?"
    group_size: int = 0
    problems_per_round: int = 0
    task: TaskRecipe = TaskRecipe()
    objective: ObjectiveRecipe = ObjectiveRecipe()


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, as far as it has been written."""

    path: Path
    recipe: Recipe
    nodes: tuple[NodeRun, ...]


class HasRound(Protocol):
    @property
    def round(self) -> int: ...


Line = TypeVar("Line")
RoundLine = TypeVar("RoundLine", bound=HasRound)


def read_run(path: Path) -> Run:
    """Reads a run folder.

    Raises:
        RunReadError: the folder is no run, or one of its files is damaged.
    """
    recipe = _read_recipe(path)
    return Run(path, recipe, tuple(_read_node(path, recipe, name) for name in recipe.node))


def _read_recipe(path: Path) -> Recipe:
    where = printable(str(path))
    if not path.is_dir():
        raise RunReadError(f"there is no run folder {where}; 'ls runs' lists those that are here")
    file = path / "recipe.json"
    if not file.is_file():
        raise RunReadError(
            f"{where} is no run: it has no recipe.json; name the folder that 'potluck run' wrote"
        )
    try:
        recipe = msgspec.json.decode(file.read_bytes(), type=Recipe)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OSError) as error:
        raise RunReadError(
            f"{where}/recipe.json cannot be read ({printable(str(error))}); "
            f"put back the file that 'potluck run' wrote"
        ) from None
    for name in recipe.node:
        if not NODE_NAME.fullmatch(name):  # It becomes a path below.
            raise RunReadError(
                f"{where}/recipe.json has a node {printable(name)!r}; "
                f"a node's name is of a-z, 0-9 and '-', at most 32 characters"
            )
    return recipe


def _read_node(path: Path, recipe: Recipe, name: str) -> NodeRun:
    folder = path / name
    return NodeRun(
        name=name,
        model=recipe.node[name].model,
        rounds=_by_round(_lines(folder / "metrics.jsonl", RoundMetrics)),
        evaluations=_by_round(_lines(folder / "evaluation.jsonl", Evaluation)),
        last_written=_of_last_round(_lines(folder / "completions.jsonl", Written)),
    )


def _lines(file: Path, kind: type[Line]) -> Iterator[Line]:
    """The file's lines, as far as they are whole; nothing where there is no file."""
    decoder = msgspec.json.Decoder(kind)
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line)
                except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                    if _is_cut(line, error):
                        return
                    raise RunReadError(
                        f"{printable(str(file))}, line {number}: {printable(str(error))}; "
                        f"delete that line to see the rest of the run"
                    ) from None
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunReadError(
            f"{printable(str(file))} cannot be opened ({error.strerror}); "
            f"check that it is a file and that you may read it"
        ) from None


def _is_cut(line: bytes, error: Exception) -> bool:
    """Whether it is the head of a whole line: JSON that ends early, not JSON that is wrong."""
    whole = line.endswith(b"\n") or isinstance(error, msgspec.ValidationError)
    return not whole and line.startswith(b"{")


def _by_round(lines: Iterable[RoundLine]) -> tuple[RoundLine, ...]:
    latest = {line.round: line for line in lines}
    return tuple(latest[round] for round in sorted(latest))


def _of_last_round(lines: Iterable[Written]) -> tuple[Written, ...]:
    """Keeps one round in memory, not the file; a round that is told anew replaces itself."""
    kept: dict[tuple[str, str, int], Written] = {}
    last = -1
    for line in lines:
        if line.round != last:
            kept, last = {}, line.round
        kept[line.problem, line.author, line.index] = line
    return tuple(kept.values())
