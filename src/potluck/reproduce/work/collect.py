"""From a finished run folder to a cell's result."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import potluck
from potluck.config import RunConfig
from potluck.dashboard import Run, read_run
from potluck.dashboard.runs import NodeRun, Source
from potluck.reproduce.cells import Cell
from potluck.reproduce.result import CellResult, NodeResult, machine
from potluck.reproduce.suite import ExperimentError

BUILTIN = "builtin:"
DECIMALS = 6
"""Of shares and accuracies: more say nothing, and make the files twice as long."""


def collect(
    cell: Cell, folder: Path, *, bases: Mapping[str, str], code: Mapping[str, str], cpu_s: float
) -> CellResult:
    """What ``folder`` has to say of ``cell``.

    Args:
        bases: of each node what ``base_digests`` found when the run began.
        code: see ``code_digests``.
        cpu_s: seconds that the run's process worked.

    Raises:
        ExperimentError: the run is not finished, or measured less than a result holds.
        RunReadError: the folder cannot be read.
    """
    import torch

    run = read_run(folder)
    return CellResult(
        scale=cell.scale,
        family=cell.family,
        models=cell.models,
        setting=cell.setting,
        seed=cell.seed,
        recipe=cell.digest,
        code=dict(code),
        machine=machine(),
        torch=str(torch.__version__),
        cpu_s=round(cpu_s, 1),
        node={node.name: _node_result(run, node, bases[node.name]) for node in run.nodes},
    )


def _node_result(run: Run, node: NodeRun, base: str) -> NodeResult:
    where = f"{run.path / node.name}"
    rounds = [each.round for each in node.rounds]
    if rounds != list(range(run.recipe.rounds)):
        raise ExperimentError(
            f"{where} tells of {len(rounds)} rounds, but the recipe has {run.recipe.rounds}; "
            f"remove {run.path} to run it again"
        )
    last = node.evaluations[-1] if node.evaluations else None
    if last is None or last.round != run.recipe.rounds or last.out_of_distribution is None:
        raise ExperimentError(
            f"{where} was not evaluated out of distribution at the end; an experiment's recipe "
            f"needs [evaluation] problems and out_of_distribution above 0, and a task that has "
            f"such problems"
        )
    return NodeResult(
        eval_rounds=tuple(each.round for each in node.evaluations),
        greedy=_rounded([each.validation for each in node.evaluations], f"{where}: validation"),
        out_of_distribution=round(last.out_of_distribution, DECIMALS),
        sampled=_rounded([each.own_reward_mean for each in node.rounds], f"{where}: rewards"),
        tokens=tuple(each.sources.get(node.name, Source()).tokens for each in node.rounds),
        seconds=tuple(
            round(sum(each.seconds.get(phase) or 0.0 for phase in ("write", "learn")), 3)
            for each in node.rounds
        ),
        filtered_share=_rounded(
            [each.filtered_share for each in node.rounds], f"{where}: filtered_share"
        ),
        base=base,
    )


def _rounded(values: Sequence[float | None], what: str) -> tuple[float, ...]:
    if None in values:
        raise ExperimentError(
            f"{what}: the {values.index(None) + 1}. of {len(values)} is missing; an experiment's "
            f"recipe needs enough problems for every node to write some in every round, and an "
            f"evaluation"
        )
    return tuple(round(value, DECIMALS) for value in values if value is not None)


def base_digests(config: RunConfig) -> dict[str, str]:
    """Of each node's model, 16 hex digits over its weights; of one from the Hub its name."""
    return {name: base_digest(node.model) for name, node in config.node.items()}


def base_digest(model: str, root: Path = Path()) -> str:
    """As above. A folder is looked up from ``root`` on."""
    built_in = Path(potluck.__file__).parent / "models" / model.removeprefix(BUILTIN)
    folder = built_in if model.startswith(BUILTIN) else root / model
    if not folder.is_dir():
        return model
    whole = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            while part := weights.read(1 << 20):
                whole.update(part)
    return whole.hexdigest()[:16]
