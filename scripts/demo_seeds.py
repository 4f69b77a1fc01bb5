"""Writes experiments/demo.jsonl and docs/results/demo.png, from a demo of five seeds, and prints
the table of docs/results.md.

    make demo ARGS="--seeds 5 --out demo-5"
    python scripts/demo_seeds.py demo-5/summary.json

An interval is that of the mean over the seeds, by Student's t, 95 %.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import msgspec
from scipy.stats import t

from demo_picture import draw
from potluck.demo.run import BY_ITSELF, Result

ROOT = Path(__file__).parents[1]
SETTINGS = ("together", *BY_ITSELF)


def signed(value: float) -> str:
    return f"{value:+z.3f}".replace("0.", ".", 1)


def plain(value: float) -> str:
    return f"{value:z.3f}".replace("0.", ".", 1)


def seeds_lines(result: Result) -> list[str]:
    """Return a line of JSON for each model and seed; own rewards in the order of SETTINGS."""
    lines = []
    for node in result.nodes:
        half, alone = ([a for a in result.answers if (a.node, a.control) == (node, kind)]
                       for kind in BY_ITSELF)  # fmt: skip
        for seed, one, other in zip(result.seeds, half, alone, strict=True):
            rewards = [round(each, 3) for each in (one.together, one.alone, other.alone)]
            written = [one.written[0], one.written[1], other.written[1]]
            line = {"model": node, "seed": seed, "reward": rewards, "written": written}
            lines.append(json.dumps(line))
    return lines


def row(rows: Sequence[Sequence[float]]) -> str:
    """Return the cells of a model: mean rewards, and differences with their intervals."""
    cells = [plain(mean(each)) for each in zip(*rows, strict=True)]
    for other in (1, 2):
        gaps = [its[0] - its[other] for its in rows]
        wide = t.ppf(0.975, len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps))
        ends = ", ".join(signed(mean(gaps) + side * wide) for side in (-1, 1))
        cells.append(f"{signed(mean(gaps))} [{ends}]")
    return " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("summary", type=Path, help="summary.json of a demo")
    data = parser.parse_args().summary.read_bytes()
    result = msgspec.json.decode(data, type=Result)
    lines = seeds_lines(result)
    (ROOT / "experiments" / "demo.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(result, ROOT / "docs" / "results" / "demo.png")
    for node in result.nodes:
        rows = [its["reward"] for its in map(json.loads, lines) if its["model"] == node]
        print(f"| {node} | {row(rows)} |")
    print(*result.gains, sep="\n")


if __name__ == "__main__":
    main()
