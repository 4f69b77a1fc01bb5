"""The table of scripts/gpu_day.py, from the files that its runs left."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.intervals import Interval, difference_interval, share_interval

HEAD = ("run", "rounds", "measured", "expected", "what differs")
HALVES = ("groups", "fewer")


@dataclass(frozen=True, slots=True)
class Step:
    """A run of a recipe, and the number that others have for it."""

    name: str
    minutes: int
    expected: str
    differs: str
    recipe: str = ""
    """Name in recipes/published; empty: the throughput."""
    sets: tuple[str, ...] = ()
    graded: int = 0
    """Problems of the test set, greedily; 0: the reward of the first and the last round."""

    @property
    def path(self) -> str:
        return f"recipes/published/{self.recipe}.toml"


def file_of(out: Path, step: Step, node: str) -> Path:
    """Name the file with a node's graded answers."""
    return out / f"{step.name}-{node}.json"


def lines_of(out: Path, step: Step, node: str) -> list[dict[str, Any]]:
    """Read the metrics of a node's rounds."""
    file = out / step.name / node / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(out: Path, steps: Sequence[Step], failed: Mapping[str, str]) -> str:
    rows = [HEAD, ("---",) * len(HEAD)]
    for step in steps:
        for run, rounds, measured in _measured(out, step, failed.get(step.name)):
            rows.append((run, str(rounds), measured, step.expected, step.differs))
    rows += _gains(out, {step.name: step for step in steps})
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _measured(out: Path, step: Step, why: str | None) -> Iterator[tuple[str, int, str]]:
    """Yield the name, the rounds and the measure of each node, or of each phase."""
    place = out / step.name
    if why or not place.exists():
        yield step.name, 0, f"failed: {why}" if why else "not begun"
    elif not step.recipe:
        for file in place.glob("*.json"):
            for said in _throughput(json.loads(file.read_text())["phases"]):
                yield step.name, 1, said
    elif (recipe := place / "recipe.json").exists():
        for node in json.loads(recipe.read_text())["node"]:
            lines = lines_of(out, step, node)
            yield f"{step.name} {node}", len(lines), _numbers(out, step, node, lines)


def _numbers(out: Path, step: Step, node: str, lines: Sequence[Mapping[str, Any]]) -> str:
    file = file_of(out, step, node)
    if not file.exists():
        ends = [_number(lines[at]["own_reward_mean"]) for at in (0, -1)] if lines else []
        return f"reward {' to '.join(ends)}" if ends else "no round"
    cut = json.loads(file.read_text())["splits"][0]["unfinished"]["A"]
    shares = {grade: share_interval(right) for grade, right in grades(file).items()}
    said = [f"{grade} {_number(its.value)} {_ends(its, '.3f')}" for grade, its in shares.items()]
    return ", ".join([*said, f"{cut} cut off"])


def grades(file: Path) -> dict[str, list[float]]:
    """Take both grades of each problem apart: an answer earns 1 for strict and .25 for lenient."""
    found = json.loads(file.read_text())["splits"][0]["per_problem"]
    reward = [row["A"]["greedy_reward"] for row in found]
    return {"strict": [float(r >= 1) for r in reward], "lenient": [4 * (r % 1) for r in reward]}


def _gains(out: Path, steps: Mapping[str, Step]) -> Iterator[tuple[str, ...]]:
    """Yield what each node of the pair gains over each of its halves, paired by problem."""
    for node, half in ((node, half) for node in ("small", "large") for half in HALVES):
        alone = steps[f"{node}-{half}"]
        sides = ((steps["sizes"], node), (alone, "alone"))
        if all(file_of(out, *side).exists() for side in sides):
            ours, theirs = (grades(file_of(out, *side)) for side in sides)
            said = []
            for grade in ours:
                pairs = zip(ours[grade], theirs[grade], strict=True)
                its = difference_interval([a - b for a, b in pairs])
                said.append(f"{grade} {its.value:+.3f} {_ends(its, '+.3f')}")
            rounds = "/".join(str(len(lines_of(out, *side))) for side in sides)
            yield f"sizes {node} - {alone.name}", rounds, ", ".join(said), alone.expected, ""


def _throughput(phases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say how fast each node wrote and learned in the last round, and how near to the limits."""
    for phase in phases:
        if phase["round"] == phases[-1]["round"] and (used := phase["used"]):
            said = f"{phase['node']} {phase['name']}: {used['tokens_per_s']:,.0f} tokens/s"
            said += f", {used['share_of_ceiling']:.1%} of the arithmetic"
            memory = used["memory_share"]
            yield said if memory is None else f"{said}, {memory:.1%} of the memory's bandwidth"


def _number(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _ends(its: Interval, form: str) -> str:
    return f"[{its.low:{form}}, {its.high:{form}}]"
