"""Run folders, read: a file that is not there is empty, a damaged one is one clear error.

A run may be writing while it is read, or have crashed: a last line that is cut off is left out.
A run that was resumed may have two lines about a round: the later one counts. Unknown fields are
skipped and missing ones have defaults, so older and newer runs can be read.
"""

import os
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import msgspec

from potluck.files import SUM, printable
from potluck.reports.rounds import EvaluationReport, RoundReport
from potluck.reports.status import FolderStatus
from potluck.reports.tail import DAMAGED, Line, Tail, newest, read_small
from potluck.right import TASK, is_full, short_names
from potluck.types import NODE_NAME, PotluckError

RECIPE, STATUS = "recipe.json", "status.json"
METRICS, EVALUATION, EVENTS = "metrics.jsonl", "evaluation.jsonl", "events.jsonl"
COMPLETIONS, RECORDED = "completions.jsonl", "recorded.jsonl"
PROBLEMS, LONGEST_QUESTION = "problems.jsonl", 4000
SMALL_BYTES = 1 << 20
"""Largest recipe.json and status.json that are read."""
END_BYTES = 4 << 20
"""Part of completions.jsonl in which the last round is looked for."""
LONGEST_SETTING = 200
"""Characters of a value that is shown."""


class RunReadError(PotluckError):
    """A folder that is no run, or a file of a run that cannot be read."""


class Called(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")

    def __str__(self) -> str:
        arguments = bytes(self.arguments)
        with suppress(*DAMAGED):  # escapes of letters become letters
            arguments = msgspec.json.encode(msgspec.json.decode(arguments))
        return f"{self.name}({arguments.decode(errors='replace')})"


class Said(msgspec.Struct, frozen=True):
    """A message of an episode: one of the list that ``episode.transcript`` makes. It is text of
    models and environments, and not safe to show as it is."""

    role: str = ""
    """assistant: the model wrote it; all others: the environment said it."""
    content: str = ""
    calls: tuple[Called, ...] = ()

    @property
    def is_written(self) -> bool:
        return self.role == "assistant"

    @property
    def words(self) -> str:
        """The content and the calls, a line each."""
        return "\n".join([*([self.content] if self.content else ()), *map(str, self.calls)])


class WrittenCompletion(msgspec.Struct, frozen=True):
    """One line of completions.jsonl. Its texts are not safe to show as they are."""

    round: int
    problem: str
    author: str
    index: int
    reward: float
    text: str
    end: str = ""
    turns: tuple[Said, ...] = ()
    """Messages of an episode; ``text`` is then what its model wrote, without its calls."""

    @property
    def paid(self) -> Mapping[str, float]:
        """Numbers of the reward functions, before their weights."""
        return {TASK: self.reward}

    def is_right(self, function: str | None) -> bool | None:
        """Tell whether it is right by ``function``; None: no function decides, or its number of
        this completion is not known."""
        number = self.paid.get(function) if function else None
        return None if function is None or number is None else is_full(function, number, self.end)


@lru_cache(64)
def written_by(functions: tuple[str, ...]) -> type[WrittenCompletion]:
    """Make the kind of line that has the numbers of ``functions``, as "reward/NAME"; of one that
    has none, the reward is what the task's own grading paid."""
    fields = [
        (f"number_{at}", float | None, msgspec.field(name=f"reward/{name}", default=None))
        for at, name in enumerate(functions)
    ]

    def paid(line: WrittenCompletion) -> Mapping[str, float]:
        told = {name: getattr(line, f"number_{at}") for at, name in enumerate(functions)}
        known = {name: number for name, number in told.items() if number is not None}
        return known or {TASK: line.reward}

    made = msgspec.defstruct(
        "PaidCompletion",
        fields,
        bases=(WrittenCompletion,),
        namespace={"paid": property(paid)},
        frozen=True,
    )
    return cast("type[WrittenCompletion]", made)


class GradedProblem(msgspec.Struct, frozen=True):
    """One line of problems.jsonl: a problem of which completions were graded. ``question`` and
    ``answer`` are not safe to show as they are."""

    problem: str
    question: str = ""
    answer: str = ""
    """Right answer; empty: the task has none."""
    round: int = 0
    """Round in which the node first graded completions of it."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    name: str
    model: str
    rounds: tuple[RoundReport, ...]
    evaluations: tuple[EvaluationReport, ...]
    last_written: tuple[WrittenCompletion, ...]
    """The completions of the last round in the file."""
    problems: Mapping[str, GradedProblem]
    """Their problems, by id; none in folders of 0.2.0."""
    cost: Mapping[str, float]
    """Cost of an author without weights, in all its starts; what is 0 is left out."""
    best: tuple[float, int] | None = None
    """Best checkpoint: see ``best_saved``."""


class ObjectiveRecipe(msgspec.Struct, frozen=True):
    importance: str = "?"
    filter: bool = False
    others: str = "all"
    weight: str = "likelihood"


class NodeRecipe(msgspec.Struct, frozen=True):
    model: str = "?"
    """Its model; empty: it only writes."""


class SwarmRecipe(msgspec.Struct, frozen=True):
    max_staleness: int = 1
    gather_s: float = 0.0


class StopRecipe(msgspec.Struct, frozen=True):
    validation: float | None = None
    no_better: int = 0
    rounds: int = 0


class RewardRecipe(msgspec.Struct, frozen=True):
    function: str = ""
    weight: float = 1.0


class EvaluationRecipe(msgspec.Struct, frozen=True):
    right: str = ""


class RecipeRead(msgspec.Struct, frozen=True):
    """The parts of recipe.json that are shown."""

    name: str
    rounds: int
    node: Mapping[str, NodeRecipe]
    seed: int = 0
    plan: str = "?"
    pace: str = "together"
    group_size: int = 0
    problems_per_round: int = 0
    objective: ObjectiveRecipe = ObjectiveRecipe()
    swarm: SwarmRecipe = SwarmRecipe()
    stop_when: StopRecipe = StopRecipe()
    reward: tuple[RewardRecipe, ...] = ()
    evaluation: EvaluationRecipe = EvaluationRecipe()
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Every key of the file, dotted, with its value as text; made by ``read_recipe``."""

    @property
    def end(self) -> int:
        """Number of rounds, unless an evaluation ends the run before."""
        return min(self.rounds, self.stop_when.rounds or self.rounds)

    @property
    def written(self) -> type[WrittenCompletion]:
        """Kind of the lines of its nodes' completions.jsonl."""
        names = short_names([each.function for each in self.reward])
        return written_by(tuple(dict.fromkeys([*names, TASK])))


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, as far as it has been written."""

    folder: Path
    recipe: RecipeRead
    nodes: tuple[NodeRun, ...]


Rounds = TypeVar("Rounds", RoundReport, EvaluationReport)


def read_run(path: Path) -> Run:
    """Read a run folder; raise RunReadError if it is no run, or one of its files is damaged."""
    recipe = read_recipe(path)
    nodes = (
        _read_node(path / name, node.model, recipe.written) for name, node in recipe.node.items()
    )
    return Run(path, recipe, tuple(nodes))


def read_recipe(path: Path) -> RecipeRead:
    """Read the recipe of a run folder; raise RunReadError if it is no run."""
    where = printable(str(path))
    if not path.is_dir():
        raise RunReadError(f"there is no run folder {where}; {_way_to_a_run(path)}")
    if not (path / RECIPE).is_file():
        raise RunReadError(
            f"{where} is no run: it has no recipe.json; name the folder that 'potluck run' wrote"
        )
    data = read_small(path / RECIPE, SMALL_BYTES)
    try:
        recipe = msgspec.json.decode(data or b"", type=RecipeRead)
        settings = dict(_dotted("", msgspec.json.decode(data or b"")))
    except DAMAGED as error:
        raise RunReadError(
            f"{where}/recipe.json cannot be read ({printable(str(error))}); "
            f"put back the file that 'potluck run' wrote"
        ) from None
    settings.pop(SUM, None)
    for name in recipe.node:
        if not NODE_NAME.fullmatch(name):  # It becomes a path below.
            raise RunReadError(
                f"{where}/recipe.json has a node {printable(name)!r}; "
                f"a node's name is of a-z, 0-9 and '-', at most 32 characters"
            )
    return msgspec.structs.replace(recipe, settings=settings)


def _way_to_a_run(path: Path) -> str:
    """Name the run whose folder is called nearly as ``path``, beside it or in runs."""
    runs = {run.parent for at in (path.parent, Path("runs")) for run in at.glob(f"*/{RECIPE}")}
    near = get_close_matches(path.name, sorted({run.name for run in runs}), n=1)
    meant = [printable(str(run)) for run in sorted(runs) if [run.name] == near]
    return f"did you mean {meant[0]}?" if meant else "'ls runs' lists those that are here"


def _dotted(key: str, tree: Any) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict) and tree:
        for name, value in tree.items():
            yield from _dotted(f"{key}.{name}" if key else name, value)
    else:
        shown = tree if isinstance(tree, str) else msgspec.json.encode(tree).decode()
        yield key[:LONGEST_SETTING], shown[:LONGEST_SETTING]


def read_status(folder: Path) -> FolderStatus | None:
    """Read a node's status.json; None if there is none, or it is another release's."""
    data = read_small(folder / STATUS, SMALL_BYTES) or b"null"
    with suppress(*DAMAGED):
        return msgspec.json.decode(data, type=FolderStatus | None)
    return None


def _read_node(folder: Path, model: str, written: type[WrittenCompletion]) -> NodeRun:
    costs = read_lines(folder / "cost.json", dict[str, float])
    last_written = _last_round(folder / COMPLETIONS, written)
    return NodeRun(
        name=folder.name,
        model=model,
        rounds=_by_round(read_lines(folder / METRICS, RoundReport)),
        evaluations=_by_round(read_lines(folder / EVALUATION, EvaluationReport)),
        last_written=last_written,
        problems=read_problems(folder, {line.problem for line in last_written}),
        cost={name: cost for each in costs for name, cost in each.items() if cost},
        best=best_saved(folder),
    )


def end_of(folder: Path, recipe: RecipeRead) -> int:
    """Tell the round after which the node in ``folder`` ends, or was ended before."""
    stop = recipe.stop_when
    if stop.no_better or stop.validation is not None:  # a damaged file is in no other run's way
        *_, last = [None, *read_lines(folder / EVALUATION, EvaluationReport)]
        if last and last.at_end:
            return last.round
    return recipe.end


def best_saved(folder: Path) -> tuple[float, int] | None:
    """Find the best evaluation of a node on the validation problems whose checkpoint is in its
    ``folder``, as (result, rounds); of equal ones the first."""
    known = ((result, round) for round, result in saved_results(folder).items())
    return max(known, key=lambda each: each[0], default=None)


def saved_results(folder: Path) -> dict[int, float]:
    """Read what a node's checkpoints in its ``folder`` got on the validation problems, by their
    rounds; nothing of those that were not evaluated."""
    there = {place.parent.name for place in folder.glob("checkpoints/*/state.json")}
    lines = read_lines(folder / EVALUATION, EvaluationReport)
    return {
        each.round: each.validation
        for each in lines
        if each.validation is not None and f"{each.round:06d}" in there
    }


def read_lines(file: Path, kind: type[Line]) -> Iterator[Line]:
    """Yield the file's lines; none where there is no file. Raise RunReadError at a damaged one."""

    def damaged(error: Exception) -> NoReturn:
        raise RunReadError(
            f"{printable(str(file))}, line {tail.number}: {printable(str(error))}; "
            f"delete that line to see the rest of the run"
        ) from None

    if file.exists() and not (file.is_file() and os.access(file, os.R_OK)):
        raise RunReadError(
            f"{printable(str(file))} cannot be opened; "
            f"check that it is a file and that you may read it"
        )
    tail = Tail(file, kind)
    tail.look()
    yield from tail.read(damaged)
    if tail.rest.strip():
        try:
            yield msgspec.json.decode(tail.rest, type=kind)
        except DAMAGED as error:
            # The head of a line is JSON that ends early, not JSON that is wrong.
            if not tail.rest.startswith(b"{") or isinstance(error, msgspec.ValidationError):
                tail.number += 1
                damaged(error)


def read_problems(folder: Path, wanted: Container[str] | None) -> dict[str, GradedProblem]:
    """Read the ``wanted`` problems of a node's folder, or all; damaged lines are left out."""
    tail = Tail(folder / PROBLEMS, GradedProblem)
    tail.look()
    return {p.problem: p for p in tail.read() if wanted is None or p.problem in wanted}


def _by_round(lines: Iterable[Rounds]) -> tuple[Rounds, ...]:
    latest = {line.round: line for line in lines}
    return tuple(latest[round] for round in sorted(latest))


def _last_round(file: Path, kind: type[WrittenCompletion]) -> tuple[WrittenCompletion, ...]:
    """Read the completions of the last round in the last END_BYTES of a file; damaged lines are
    left out. A later line replaces an earlier one."""
    lines = [*newest(file, kind, END_BYTES)]
    last = [line for line in lines if line.round == lines[-1].round]
    return tuple({(line.problem, line.author, line.index): line for line in last}.values())
