"""Runs the pilot of the scale real: its settings with seeds that no experiment reads.

    python scripts/pilot_real.py [--family families] [--seeds 90 91 92] [--jobs 2]

A setting can tell if alone with all of the samples beats the better half by more than the interval
that a claim asks. Rates and rounds are chosen here, then claims are written, then their cells run.
Finished cells stay in experiments/cells/real, and the same command goes on where it stopped.
"""

import argparse
import os
from pathlib import Path
from statistics import mean

from rich.console import Console

from potluck_experiments.cell_files import CellResult, read_result
from potluck_experiments.cells import CellSpec, make_cell
from potluck_experiments.results import values_of
from potluck_experiments.run import run_cells
from potluck_experiments.suite import Suite, read_suite

ROOT = Path(__file__).parents[1]
ALONE = ("alone", "half", "half-smaller")
TOGETHER = "lws-typicality"
MEASURES = (("sampled", "early"), ("sampled", "late"), ("greedy", "end"), ("pass@8", "end"))


def cells_of(suite: Suite, family: str, seeds: list[int]) -> list[CellSpec]:
    """Return the cells of a family's first pair, seed by seed."""
    models = next(iter(suite.scales["real"].family[family].pair.values()))
    runs = [((model,), setting) for setting in ALONE for model in models]
    runs.append((tuple(models), TOGETHER))
    return [
        make_cell(suite, "real", family, its, setting, seed)
        for seed in seeds
        for its, setting in runs
    ]


def tell(found: list[CellResult]) -> None:
    """Print each measure of each model and setting: the mean over seeds, and each seed."""
    for model in sorted({name for result in found for name in result.node}):
        for setting in (*ALONE, TOGETHER):
            runs = [r for r in found if model in r.node and r.setting == setting]
            values = [values_of(run.node[model]) for run in runs]
            line = [f"{model:8} {setting:15}"]
            for measure in MEASURES:
                each = [its[measure] for its in values if measure in its]
                seeds = " ".join(f"{value:.3f}" for value in each)
                line.append(f"{' '.join(measure)} {mean(each):.3f} ({seeds})" if each else "-")
            line.append(f"{sum(run.cpu_s for run in runs) / 60:.0f} core minutes")
            print("; ".join(line))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="families")
    parser.add_argument("--seeds", type=int, nargs="+", default=[90, 91, 92])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    os.chdir(ROOT)
    suite = read_suite(ROOT / "experiments")
    if min(given.seeds) < suite.scales["real"].seeds:
        parser.error(f"seeds below {suite.scales['real'].seeds} are for experiments")
    cells = cells_of(suite, given.family, given.seeds)
    run_cells(suite, cells, jobs=given.jobs, runs=ROOT / "runs/reproduce", console=Console())
    results = [read_result(suite.folder, cell) for cell in cells]
    tell([result for result in results if result])


if __name__ == "__main__":
    main()
