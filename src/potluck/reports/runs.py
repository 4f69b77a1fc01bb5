"""Run folders, read: a file that is not there is empty, a damaged one is one clear error.

    <run>/recipe.json                 the resolved recipe: what makes a folder a run
    <run>/<node>/metrics.jsonl        one RoundReport a line, see ``reports/rounds.py``
    <run>/<node>/evaluation.jsonl     one EvaluationReport a line
    <run>/<node>/completions.jsonl    one WrittenCompletion a line

A run may be writing while it is read, or have crashed: a last line that is cut off is left out.
A run that was resumed may have two lines about a round: the later one counts. Unknown fields are
skipped and missing ones have defaults, so older and newer runs can be read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import msgspec

from potluck.files import printable
from potluck.reports import EvaluationReport, RoundReport
from potluck.types import NODE_NAME, PotluckError


class RunReadError(PotluckError):
    """A folder that is no run, or a file of a run that cannot be read."""


@dataclass(frozen=True, slots=True)
class WrittenCompletion:
    """One line of completions.jsonl. ``text`` and ``author`` are not safe to show as they are."""

    round: int
    problem: str
    author: str
    index: int
    reward: float
    text: str


@dataclass(frozen=True, slots=True)
class NodeRun:
    """Contents of one node's folder."""

    name: str
    model: str
    rounds: tuple[RoundReport, ...]
    evaluations: tuple[EvaluationReport, ...]
    last_written: tuple[WrittenCompletion, ...]
    """The completions of the last round in the file."""
    cost: Mapping[str, float]
    """Cost of an author without weights, in all its starts; what is 0 is left out."""


@dataclass(frozen=True, slots=True)
class TaskRecipe:
    name: str = "?"


@dataclass(frozen=True, slots=True)
class ObjectiveRecipe:
    importance: str = "?"
    filter: bool = False
    others: str = "all"


@dataclass(frozen=True, slots=True)
class NodeRecipe:
    model: str = "?"
    """Its model; empty: it only writes."""


@dataclass(frozen=True, slots=True)
class RecipeRead:
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
    recipe: RecipeRead
    nodes: tuple[NodeRun, ...]


Line = TypeVar("Line", RoundReport, EvaluationReport, WrittenCompletion, dict[str, float])
RoundLine = TypeVar("RoundLine", RoundReport, EvaluationReport)


def read_run(path: Path) -> Run:
    """Read a run folder; raise RunReadError if it is no run, or one of its files is damaged."""
    recipe = _read_recipe(path)
    nodes = (_read_node(path / name, node.model) for name, node in recipe.node.items())
    return Run(path, recipe, tuple(nodes))


def _read_recipe(path: Path) -> RecipeRead:
    where = printable(str(path))
    if not path.is_dir():
        raise RunReadError(f"there is no run folder {where}; 'ls runs' lists those that are here")
    file = path / "recipe.json"
    if not file.is_file():
        raise RunReadError(
            f"{where} is no run: it has no recipe.json; name the folder that 'potluck run' wrote"
        )
    try:
        recipe = msgspec.json.decode(file.read_bytes(), type=RecipeRead)
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


def _read_node(folder: Path, model: str) -> NodeRun:
    return NodeRun(
        name=folder.name,
        model=model,
        rounds=_by_round(_lines(folder / "metrics.jsonl", RoundReport)),
        evaluations=_by_round(_lines(folder / "evaluation.jsonl", EvaluationReport)),
        last_written=_last_round(_lines(folder / "completions.jsonl", WrittenCompletion)),
        cost={
            k: v
            for each in _lines(folder / "cost.json", dict[str, float])
            for k, v in each.items()
            if v
        },
    )


def _lines(file: Path, kind: type[Line]) -> Iterator[Line]:
    """Yield the file's whole lines; none where there is no file."""
    decoder = msgspec.json.Decoder(kind)
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line)
                except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                    # The head of a line is JSON that ends early, not JSON that is wrong.
                    wrong = line.endswith(b"\n") or isinstance(error, msgspec.ValidationError)
                    if line.startswith(b"{") and not wrong:
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


def _by_round(lines: Iterable[RoundLine]) -> tuple[RoundLine, ...]:
    latest = {line.round: line for line in lines}
    return tuple(latest[round] for round in sorted(latest))


def _last_round(lines: Iterable[WrittenCompletion]) -> tuple[WrittenCompletion, ...]:
    """Keep one round in memory, not the file; a later line replaces an earlier one."""
    kept: dict[tuple[str, str, int], WrittenCompletion] = {}
    for _, group in groupby(lines, key=lambda line: line.round):
        kept = {(line.problem, line.author, line.index): line for line in group}
    return tuple(kept.values())
