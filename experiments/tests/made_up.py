"""Suites and results in memory, with whatever a test does not care about filled in."""

from pathlib import Path

from potluck_experiments.cell_files import CellResult, NodeResult
from potluck_experiments.results import results_of
from potluck_experiments.suite import Claim, Experiment, Family, ScaleFile, Setting, Suite

SETTINGS = {
    "alone": Setting(title="alone", alone=True),
    "half": Setting(title="alone, half the problems", alone=True, problems=0.5),
    "f-tis": Setting(title="F-TIS", set=("objective.method=f-tis",)),
}
PAIRS = {"size": ("small", "large"), "other": ("coder", "writer")}


def curve(start=0.1, end=0.5):
    """A straight line."""
    return tuple(start + (end - start) * i / 10 for i in range(11))


def node(greedy=None, *, rounds=20, out=0.4, sampled=None, tokens=100, base="b"):
    """``rounds`` rounds, evaluated at the start and then at equal distances."""
    greedy = tuple(greedy or curve())
    return NodeResult(
        eval_rounds=tuple(range(0, rounds + 1, rounds // (len(greedy) - 1))),
        greedy=greedy, out_of_distribution=out, sampled=tuple(sampled or (0.3,) * rounds),
        tokens=(tokens,) * rounds, seconds=(1.0,) * rounds, filtered_share=(0.1,) * rounds,
        base=base,
    )  # fmt: skip


def result(setting, seed, nodes, *, family="digits", scale="tiny"):
    """Of ``nodes``, by name, each a node() or what its greedy accuracy ends at."""
    nodes = {k: v if isinstance(v, NodeResult) else node(curve(0.1, v)) for k, v in nodes.items()}
    return CellResult(
        scale=scale, family=family, models=tuple(nodes), setting=setting, seed=seed, node=nodes,
        recipe="0" * 16, commit="0" * 40, machine="Linux", torch="2.9", cpu_s=60.0,
    )  # fmt: skip


def results(*cells, suite, scale="tiny"):
    """The frames of these cells."""
    return results_of(suite, scale, {f"{at:04d}": cell for at, cell in enumerate(cells)})


def runs(setting, pair, seeds=5, **ends):
    """Cells of a pair: ``small=[.5, .6]`` are ends (or nodes) of seed 0 and seed 1.

    A setting that is alone gives a cell per model, any other one for them all.
    """
    found = []
    for seed in range(min([seeds, *(len(v) for v in ends.values())])):
        now = {model: ends[model][seed] for model in pair if model in ends}
        together = [{k: v} for k, v in now.items()] if SETTINGS[setting].alone else [now]
        found += [result(setting, seed, nodes) for nodes in together]
    return found


def claim(setting="f-tis", than="alone", lies="within", margin=0.03, **changes):
    named = {"id": "c", "text": "ends where alone ends", **changes}
    return Claim(setting=setting, than=than, lies=lies, margin=margin, **named)


def experiment(*claims, name="fig04_size", pairs=("digits.size",), notes=""):
    settings = {s: None for c in claims for s in (c.setting, c.than)} or {"alone": None}
    return Experiment(
        name=name, title="Size", figure="4", settings=tuple(settings), pairs={"tiny": pairs},
        claims=claims, changes=(), notes=notes,
    )  # fmt: skip


def suite(*experiments, folder=Path("experiments"), seeds=5, pairs=PAIRS, unit="seed", fewest=0):
    model = {name: f"digits.toml#{name}" for pair in PAIRS.values() for name in pair}
    families = {"digits": Family(title="column addition", model=model, pair=pairs)}
    scales = {
        "tiny": ScaleFile(seeds=seeds, fewest_seeds=fewest, unit=unit, family=families),
        "paper": ScaleFile(seeds=seeds, family={}),
    }
    return Suite(folder, SETTINGS, scales, experiments)
