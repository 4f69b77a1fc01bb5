"""From graded answers to what is said of one model, or of two on the same problems.

An answer is right when it earns the whole reward, 1. Of tasks that pay 0 or 1, and most do,
accuracy (the mean reward, as training reports it) and the share of right answers are one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from potluck.evaluation.accuracy import (
    difference_interval,
    mcnemar,
    mean_interval,
    pass_at_k,
    share_interval,
)
from potluck.node import Answers

WHOLE = 1 - 1e-9
"""Weighted rewards that make 1 in mathematics may make a little less in floating point."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """What one model answered to the problems of a split."""

    greedy: tuple[Answers, ...]
    """One answer to each."""
    sampled: tuple[Answers, ...]
    """Several to each, of the same problems in the same order; empty where none were asked."""

    def values(self, k: int) -> dict[str, list[float]]:
        """Each measure's number for each problem."""
        values = {"greedy": [answers.rewards[0] for answers in self.greedy]}
        for each in dict.fromkeys((1, k)) if self.sampled else ():
            values[f"pass@{each}"] = [
                pass_at_k(count_right(answers), len(answers.rewards), each)
                for answers in self.sampled
            ]
        return values


def count_right(answers: Answers) -> int:
    return sum(reward >= WHOLE for reward in answers.rewards)


def summary(sheets: Mapping[str, Sheet], k: int) -> dict[str, Any]:
    """What is known of a split, as data for JSON.

    Args:
        sheets: by the model's letter, "A" and, where two are compared, "B", of the same problems.
        k: of pass@k; read only where samples were taken.

    Raises:
        ValueError: no problem, or not the same ones.
    """
    asked = {tuple(answers.problem_id for answers in sheet.greedy) for sheet in sheets.values()}
    if len(asked) != 1 or asked == {()}:
        raise ValueError(f"{len(asked)} lists of problems; expected one that all answered")
    values = {model: sheet.values(k) for model, sheet in sheets.items()}
    rewards = [r for s in sheets.values() for a in (*s.greedy, *s.sampled) for r in a.rewards]
    found: dict[str, Any] = {
        "problems": len(asked.pop()),
        "binary": all(reward in (0, 1) for reward in rewards),
        "measures": [_measure(name, values) for name in values["A"]],
        "unfinished": {m: sum(a.unfinished for a in s.greedy) for m, s in sheets.items()},
    }
    if "B" in sheets:
        found["greedy_right"] = _agreement(sheets["A"], sheets["B"])
    return found | {"per_problem": _per_problem(sheets)}


def _measure(name: str, values: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    each_N = {model: measures[name] for model, measures in values.items()}
    shares = all(0 <= value <= 1 for value_N in each_N.values() for value in value_N)
    found: dict[str, Any] = {"measure": name}
    found |= {m: _estimate(v_N, shares) for m, v_N in each_N.items()}
    if "B" in each_N:
        pairs = zip(each_N["A"], each_N["B"], strict=True)
        between = difference_interval([a - b for a, b in pairs])
        between = between.within(-1, 1) if shares else between
        better = "A" if between.low > 0 else "B" if between.high < 0 else None
        found |= {"difference": asdict(between), "better": better}
    return found


def _estimate(value_N: Sequence[float], shares: bool) -> dict[str, Any]:
    if shares:
        return asdict(share_interval(value_N))
    if len(value_N) == 1:  # on an unknown scale one number says nothing of the next
        return {"value": value_N[0], "low": None, "high": None}
    return asdict(mean_interval(value_N))


def _agreement(a: Sheet, b: Sheet) -> dict[str, Any]:
    """Which problems are right for whom, greedily, and McNemar's test of it."""
    pairs = [(count_right(x), count_right(y)) for x, y in zip(a.greedy, b.greedy, strict=True)]
    only_a, only_b = pairs.count((1, 0)), pairs.count((0, 1))
    return {
        "both": pairs.count((1, 1)),
        "only_a": only_a,
        "only_b": only_b,
        "neither": pairs.count((0, 0)),
        "mcnemar_p": mcnemar(only_a, only_b),
    }


def _per_problem(sheets: Mapping[str, Sheet]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"id": answers.problem_id} for answers in sheets["A"].greedy]
    for model, sheet in sheets.items():
        for row, answers in zip(rows, sheet.greedy, strict=True):
            row[model] = {
                "greedy_right": bool(count_right(answers)),
                "greedy_reward": answers.rewards[0],
            }
        for row, answers in zip(rows, sheet.sampled, strict=bool(sheet.sampled)):
            row[model] |= {
                "samples_right": count_right(answers),
                "sample_rewards": list(answers.rewards),
            }
    return rows
