"""Prints experiments/demo.jsonl and a table of docs/results.md, from demos of different seeds.

    make demo ARGS="--seed 1 --out demo-1"      (and so on)
    python scripts/demo_seeds.py demo-*/summary.json

An interval is that of the mean over the seeds, by Student's t, 95 %.
"""

import argparse
import json
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
    "sampled": lambda outcome: outcome.late,
    "greedy": lambda outcome: outcome.greedy,
    "four_digits": lambda outcome: outcome.out_of_distribution,
}
TITLES = ("sampled reward", "greedy", "four digits")
SETTINGS = ("alone", "half", "lws")
GAPS = (("lws", "half"), ("lws", "alone"), ("alone", "half"))


def difference(value: float) -> str:
    return f"{value:+z.3f}".replace("0.", ".", 1)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def seeds_lines(results: Sequence[Result]) -> list[str]:
    """Return a line of JSON for each model and seed; numbers in the order of SETTINGS."""
    return [
        json.dumps({"model": node, "seed": each.seed} | {
            name: [round(measure(each.nodes[node][its]), 3) for its in SETTINGS]
            for name, measure in MEASURES.items()
        })
        for node in results[0].nodes
        for each in results
    ]  # fmt: skip


def gaps_table(results: Sequence[Result]) -> list[str]:
    """Return differences of the mean of the models, paired by seed, with their intervals."""
    lines = [row("mean of both models", *TITLES), "|---" * (1 + len(MEASURES)) + "|"]
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
    print("\n".join([*seeds_lines(results), "", *gaps_table(results)]))


if __name__ == "__main__":
    main()
