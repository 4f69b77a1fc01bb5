"""Prints the tables of docs/demo.md, from demos with different seeds.

    make demo ARGS="--seed 1 --out demo-1"      (and so on)
    python scripts/demo_seeds.py demo-*/summary.json

An interval is that of the mean over the seeds, by Student's t, 95 %.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import msgspec
from scipy.stats import t

from potluck.demo.report import Outcome, Result
from potluck.show.terminal.text import label

MEASURES: dict[str, Callable[[Outcome], Any]] = {
    "sampled reward": lambda outcome: outcome.late,
    "greedy": lambda outcome: outcome.greedy,
    "four digits": lambda outcome: outcome.out_of_distribution,
}
SETTINGS = ("alone", "half", "lws")
GAPS = (("lws", "half"), ("lws", "alone"), ("alone", "half"))


def share(value: float, *, bold: bool = False) -> str:
    """Write a share as the pages do, without its 0."""
    text = f"{value:.3f}".removeprefix("0")
    return f"**{text}**" if bold else text


def difference(value: float) -> str:
    return f"{value:+z.3f}".replace("0.", ".", 1)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def seeds_table(results: Sequence[Result]) -> list[str]:
    """Return a row for each model and seed, and the means."""
    columns = [(measure, setting) for measure in MEASURES.values() for setting in SETTINGS]
    titles = [f"{measure}: {label(SETTINGS[0])}" for measure in MEASURES]
    head = [cell for title in titles for cell in (title, *map(label, SETTINGS[1:]))]
    lines = [row("model", "seed", *head), "|---" * (2 + len(head)) + "|"]
    for node in results[0].nodes:
        rows = [[measure(each.nodes[node][its]) for measure, its in columns] for each in results]
        for each, values in zip(results, rows, strict=True):
            lines.append(row(node, str(each.seed), *map(share, values)))
        means = (share(mean(values), bold=True) for values in zip(*rows, strict=True))
        lines.append(row(f"**{node}**", "**mean**", *means))
    return lines


def gaps_table(results: Sequence[Result]) -> list[str]:
    """Return differences of the mean of the models, paired by seed, with their intervals."""
    lines = [row("mean of both models", *MEASURES), "|---" * (1 + len(MEASURES)) + "|"]
    for one, other in GAPS:
        cells = []
        for measure in MEASURES.values():
            gaps = [
                mean(measure(its[one]) - measure(its[other]) for its in each.nodes.values())
                for each in results
            ]
            wide = t.ppf(0.975, len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps))
            ends = (difference(mean(gaps) + side * wide) for side in (-1, 1))
            cells.append(f"{difference(mean(gaps))} [{', '.join(ends)}]")
        lines.append(row(f"{label(one)} - {label(other)}", *cells))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("summary", type=Path, nargs="+", help="summary.json of a demo")
    paths = parser.parse_args().summary
    results = [msgspec.json.decode(path.read_bytes(), type=Result) for path in paths]
    print("\n".join([*seeds_table(results), "", *gaps_table(results)]))


if __name__ == "__main__":
    main()
