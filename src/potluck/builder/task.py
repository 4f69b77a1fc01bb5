"""The task that a recipe describes, and the grade of a user's environment, which a run keeps."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.config import ConfigError, RunConfig
from potluck.config.validation import require_right
from potluck.fields import refuse
from potluck.files import write_atomically
from potluck.node.storage.folder import ENVIRONMENT
from potluck.right import TASK
from potluck.rollout.options import TextOptions
from potluck.tasks import Task, TaskOptions
from potluck.tasks.base import WithOutOfDistribution, constants, environment_of, overlaps
from potluck.tasks.environments.check import MOST_ROWS, Checked
from potluck.tasks.environments.hosted import HostedEnvironment
from potluck.tasks.environments.task import EnvironmentTask
from potluck.tasks.rewards import HANDED, CustomRewards, Format, HashReward, Reward
from potluck.tasks.table import Table


def make_task(
    config: RunConfig,
    *,
    trust_code: bool = False,
    run: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> Task:
    """Build the task of ``[task]``, paid by ``[[reward]]``, with problems of
    ``[out_of_distribution]``; raise TaskError or ConfigError. With ``say`` a user's environment is
    graded first, unless the folder ``run`` has its grade."""
    require_trusted(config, trust_code)  # before the data, which may take minutes, is read
    require_right(config)
    base = config.task.make()
    if say and config.task.code and isinstance(base, EnvironmentTask):
        _grade(base, run, say)
    task = _paid(config.task, base)
    if config.sampling.stop_texts and environment_of(task):
        raise ConfigError(
            f"[sampling] stop_texts is {list(config.sampling.stop_texts)!r}, but the task has an "
            f"environment, whose turns end by a model's stop token; drop stop_texts"
        )
    if config.reward:
        inner = base.base if isinstance(base, EnvironmentTask) else base
        table = inner if isinstance(inner, Table) else None
        form: Format = "messages" if table and table.has_messages else "text"
        rewards = [
            Reward.load(
                r.function, weight=r.weight, format=form if r.format == "auto" else r.format
            )
            for r in config.reward
        ]
        row = (lambda problem: table.row(problem.id)) if table else None
        tells_task = config.right_rule.named == TASK
        task = paid = CustomRewards(task, rewards, columns=row, tells_task=tells_task)
        paid.try_once()
    if other := config.out_of_distribution:
        return WithOutOfDistribution(task, _paid(other, other.make()))
    return task


def _paid(options: TaskOptions, task: Task) -> Task:
    return HashReward(task) if options.reward == "hash" else task


def require_problems(config: RunConfig, task: Task) -> None:
    """Raise ConfigError unless the task has problems enough to train on for a round."""
    there = len(task.ids("train"))
    wrong = {
        "the task of [task] has no problems to train on; name it under [out_of_distribution] and "
        "train on another one": not there,
        f"problems_per_round is {config.problems_per_round}, but the task has {there} problems to "
        f"train on; lower it": there < config.problems_per_round,
    }
    refuse(wrong)


def code_of(config: RunConfig) -> list[tuple[str, str]]:
    """List the functions that the recipe names, which may do harm, behind their places in it."""
    objective, callback = config.objective, config.log.callback
    named = [("[[reward]]", each.function) for each in config.reward if each.function != TASK]
    tables = {"task": config.task, "out_of_distribution": config.out_of_distribution}
    for at, table in tables.items():
        named += [(f"[{at}] {key}", name) for key, name in table.code.items()] if table else []
    named += [("[objective] loss", objective.loss)] * bool(objective.loss)
    named += [("[objective] weight", objective.weight)] * objective.has_custom_weight
    return named + [("[log] callback", callback)] * bool(callback)


def require_trusted(config: RunConfig, trust_code: bool) -> None:
    """Raise ConfigError if the recipe names code and may not run it."""
    code = [f"{at} {name!r}" for at, name in code_of(config) if name not in HANDED.get()]
    if code and not trust_code:
        raise ConfigError(
            f"the recipe runs code, {', '.join(code)}; read it, then allow it with --trust-code "
            f"(from Python: trust_code=True)"
        )


def notes_on_authors(config: RunConfig, task: Task) -> list[str]:
    """Write a line on each author that cannot write to all; RolloutError if to none."""
    lines = []
    for name, node in config.node.items():
        if isinstance(node.engine, TextOptions):
            clause = node.engine.coverage([task.problem(id) for id in task.ids("train")])
            lines += [f"{name} {clause}"] if clause else []
            if config.plan == "vertical":
                lines.append(
                    f"{name} only writes: in plan 'vertical' a group that it solved throughout "
                    f"teaches nothing; plan = 'horizontal' compares its answers with yours"
                )
    return lines


def notes_on(config: RunConfig, task: Task, *, without_functions: bool = False) -> list[str]:
    """Write what to know of the splits; raise TaskError if a problem is in two of them.
    ``without_functions``: its reward functions were left out of ``config``, as they are code."""
    told = [*task.notes, *overlaps(task)]
    # What functions score for a constant, nobody knows.
    if config.knows_constants and not without_functions:
        told += constants(task)
    return [*told, *config.task.notes, *config.objective.notes]


class KeptGrade(msgspec.Struct, frozen=True):
    """Contents of a run's ENVIRONMENT; ``source``: SHA-256 of its FILE.py, "" for a module."""

    name: str
    source: str
    found: Checked


def _grade(task: EnvironmentTask, run: Path | None, say: Callable[[str], None]) -> None:
    """Take the grade that the folder ``run``, or that of a node in it, remembers; else play the
    environment. Raise EnvironmentFailed if it cannot be played."""
    environment, shown = task.environment, _shown(task.environment.name)
    files = (run / ENVIRONMENT, *sorted(run.glob(f"*/{ENVIRONMENT}"))) if run else ()
    if kept := next((file for file in files if file.is_file()), None):
        with suppress(OSError, msgspec.MsgspecError):
            before = msgspec.json.decode(kept.read_bytes(), type=KeptGrade)
            if (_shown(before.name), before.source) == (shown, _source(environment)):
                environment.found, environment.grade = before.found, before.found.grade
                return
    say(f"{shown}: played several times over, to see whether it repeats")
    environment.check(task.ids("train")[:MOST_ROWS])


def keep_grade(task: Task, folder: Path) -> None:
    """Keep what was found of the task's environment, if there was anything to find."""
    environment = environment_of(task)
    if isinstance(environment, HostedEnvironment) and (found := environment.found):
        kept = KeptGrade(environment.name, _source(environment), found)
        write_atomically(folder / ENVIRONMENT, msgspec.json.encode(kept) + b"\n")


def notes_on_environment(task: Task) -> list[str]:
    """Write a line on the grade of the task's environment, and one on each doubt."""
    environment = environment_of(task)
    if not (isinstance(environment, HostedEnvironment) and (found := environment.found)):
        return []
    why = f": {found.why[0]}" if found.grade == "own" else ""
    shown = f"environment {_shown(environment.name)}"
    notes = [f"{shown}: {found}{why}", *found.warnings]
    if environment.grade != "own" and environment.has_network:
        notes.append(
            f"{shown}: this system lets no process leave the network, so what peers write is "
            f"played where a network can be reached"
        )
    return notes


def _shown(name: str) -> str:
    return name.rpartition("/")[2]


def _source(environment: HostedEnvironment) -> str:
    file = Path(environment.name.rpartition(":")[0])
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.suffix == ".py" else ""
