"""From results to verdicts: computed, never typed.

"Shown" means that the whole 95 % interval of the paired differences lies where the claim wants it,
"refuted" that the whole interval lies where it does not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Literal

import pandas as pd

from potluck_experiments.results import Results
from potluck_experiments.statistics import MeanInterval, interval_of
from potluck_experiments.suite import Claim, Experiment, Lies, Measure

ClaimVerdict = Literal["shown", "refuted", "inconclusive"]
VERDICTS: tuple[ClaimVerdict, ...] = ("shown", "refuted", "inconclusive")

FLOOR, CEILING = 0.1, 0.8
"""Out of distribution, an accuracy outside of these has no room to move: no verdict."""
FULL = 0.95  # greedy accuracy above which "it rises" cannot be refuted


@dataclass(frozen=True, slots=True)
class ClaimTest:
    """One claim, tried on one model of one pair of its experiment."""

    claim: Claim
    pair: str  # FAMILY.PAIR; FAMILY for a mean of pairs
    model: str
    """Its name; "large minus small"; "weaker" where cells that would tell which are missing."""
    difference: MeanInterval | None  # None for fewer than two seeds
    verdict: ClaimVerdict
    reason: str  # Why it is inconclusive; for a mean of pairs also which were left out

    @property
    def family(self) -> str:
        return self.pair.partition(".")[0]


def try_claims(experiment: Experiment, results: Results) -> dict[Claim, list[ClaimTest]]:
    """Try every claim on every pair and model that it is about."""
    pairs = experiment.pairs.get(results.scale, ())
    inside: dict[str, list[str]] = {}
    for pair in pairs:
        inside.setdefault(pair.partition(".")[0], []).append(pair)
    pooled = {"mean of pairs": _mean_of_pairs, "base pairs": _base_pairs}
    return {
        claim: [pooled[claim.over](claim, family, results, its) for family, its in inside.items()]
        if claim.over in pooled
        else [test for pair in pairs for test in _each_model(claim, pair, results)]
        for claim in experiment.claims
    }


def try_all(results: Results) -> list[tuple[Experiment, Claim, list[ClaimTest]]]:
    """Try the claims of every experiment."""
    tried = [(each, try_claims(each, results)) for each in results.suite.experiments]
    return [(each, claim, tests) for each, by_claim in tried for claim, tests in by_claim.items()]


def _each_model(claim: Claim, pair: str, results: Results) -> list[ClaimTest]:
    about = _models(claim, pair, results)
    if not about:  # cells are missing that would tell which model is meant
        return [ClaimTest(claim, pair, claim.node, None, "inconclusive", results.too_few(0))]
    found = {" minus ".join(m[::-1]): _differences(claim, pair, m, results) for m in about}
    return [_judge(claim, pair, name, *differences) for name, differences in found.items()]


def _mean_of_pairs(claim: Claim, family: str, results: Results, pairs: Sequence[str]) -> ClaimTest:
    """Average over one family's pairs, seed by seed, without those at the floor or ceiling."""
    about = {pair: _models(claim, pair, results) for pair in pairs}
    found = [_differences(claim, pair, models, results) for pair in pairs for models in about[pair]]
    fewest = min(len(differences) for differences, _ in found) if all(about.values()) else 0
    usable = [differences for differences, reason in found if not reason]
    left_out = [reason for _, reason in found if reason]
    why = f"{len(left_out)} of {len(pairs)} pairs left out: {', '.join(sorted(set(left_out)))}"
    if not usable or results.too_few(fewest):
        return _judge(claim, family, claim.node, (), results.too_few(fewest) or why)
    rows = pd.concat(usable, axis=1, join="inner").to_numpy()
    test = _judge(claim, family, claim.node, map(mean, rows), "")
    return replace(test, reason=why) if left_out and not test.reason else test


def _base_pairs(claim: Claim, family: str, results: Results, pairs: Sequence[str]) -> ClaimTest:
    """Take each base pair for one observation: the mean over its models and seeds."""
    found = {
        pair: [
            _differences(claim, pair, models, results) for models in _models(claim, pair, results)
        ]
        for pair in pairs
    }
    reasons = [reason for its in found.values() for _, reason in its if reason]
    if reasons or not all(found.values()):
        return _judge(claim, family, claim.node, (), (reasons or [results.too_few(0)])[0])
    means = [mean(mean(differences) for differences, _ in its) for its in found.values()]
    return _judge(claim, family, f"mean of {len(means)} base pairs", means, "")


def _models(claim: Claim, pair: str, results: Results) -> list[tuple[str, ...]]:
    """Return the models of a pair that a claim is about, each for itself; or two to be compared.

    Weaker and stronger by the mean of ``than`` over the seeds that every model has; of equal ones
    the first is the weaker. As ``than`` stands in the difference, too, that of the weaker looks
    better than it is, by up to .56 standard errors of ``than`` (the mean of the lower of two).
    """
    models = results.suite.models(results.scale, pair)
    if claim.node in ("each", "any"):
        return [(model,) for model in models]
    first = {"first": models[:1], "second": models[1:2], "second minus first": models[:2]}
    if claim.node in first:
        return [first[claim.node]]
    key = claim.measure, claim.when, [claim.than]
    each = {model: results.by_seed(pair, model, *key)[claim.than] for model in models}
    seeds = pd.concat(each, axis=1, join="inner").dropna().index
    ordered = sorted(models, key=lambda model: mean(each[model].loc[seeds])) if len(seeds) else []
    return [(model,) for model in (ordered[:1] if claim.node == "weaker" else ordered[-1:])]


def _differences(
    claim: Claim, pair: str, models: tuple[str, ...], results: Results
) -> tuple[pd.Series, str]:
    """Return the differences by seed, for two models those of the second minus the first's; and
    the reason why they allow no verdict, if there is one."""
    sides = claim.measure, claim.when, [claim.setting, claim.than]
    its = {model: results.by_seed(pair, model, *sides) for model in models}
    both = pd.concat(its, axis=1, join="inner").dropna().sort_index()
    change = [both[model, claim.setting] - both[model, claim.than] for model in models]
    differences = change[0] if len(change) == 1 else change[1] - change[0]
    reason = results.too_few(len(both))
    for model in models:
        than = both[model, claim.than]
        reason = reason or out_of_range(claim.measure, than)
        # A full model cannot rise, so that it does not rise refutes nothing. It can fall.
        if (claim.lies, claim.measure) == ("above", "greedy") and not than.empty:
            reason = reason or ("ceiling" if mean(than) > FULL else "")
        runs = [results.runs[pair, setting][seed] for setting in sides[2] for seed in both.index]
        if len({run[model].node.base for run in runs}) > 1:
            reason = reason or "different base models"
    return differences, reason


def _judge(
    claim: Claim, pair: str, model: str, differences: Iterable[float], reason: str
) -> ClaimTest:
    difference = interval_of(differences)
    verdict: ClaimVerdict = "inconclusive"
    if not reason and difference is not None:
        verdict = verdict_of(difference, claim.lies, claim.margin)
        reason = "interval too wide" if verdict == "inconclusive" else ""
    return ClaimTest(claim, pair, model, difference, verdict, reason)


def out_of_range(measure: Measure, than: pd.Series) -> str:
    """Return why accuracies out of distribution cannot be compared: floor, ceiling or ""."""
    if measure != "out-of-distribution" or than.empty:
        return ""
    reached = mean(than)
    return "floor" if reached < FLOOR else "ceiling" if reached > CEILING else ""


def verdict_of(difference: MeanInterval, lies: Lies, margin: float) -> ClaimVerdict:
    """Tell whether an interval lies where it has to, or elsewhere. ``margin`` in its unit."""
    low, high = difference.low, difference.high
    shown, refuted = {
        "below": (high < -margin, low >= -margin),
        "above": (low > margin, high <= margin),
        "within": (low >= -margin and high <= margin, low > margin or high < -margin),
        "not below": (low >= -margin, high < -margin),
    }[lies]
    return "shown" if shown else "refuted" if refuted else "inconclusive"


def verdict_of_claim(tests: Sequence[ClaimTest]) -> ClaimVerdict:
    """Judge one claim over all its tests: it is about every pair, and in each about every model
    that it names, so one that refutes it is enough; with node "any" one that shows it.

    Of m tests one refutes by chance the sooner the larger m is: so a claim is "refuted" only if
    one test refutes it at the level 1 - .05 / m (Bonferroni).
    """
    pairs: dict[str, list[ClaimVerdict]] = {}
    for test in tests:
        verdict, claim = test.verdict, test.claim
        if verdict == "refuted" and test.difference:
            wide = test.difference.widened(len(tests))
            verdict = verdict_of(wide, claim.lies, claim.margin)
        pairs.setdefault(test.pair, []).append(verdict)
    enough: ClaimVerdict = "shown" if tests and tests[0].claim.node == "any" else "refuted"
    return all_of([all_of(found, enough) for found in pairs.values()])


def all_of(verdicts: Sequence[ClaimVerdict], enough: ClaimVerdict = "refuted") -> ClaimVerdict:
    """Judge several together, such as an experiment's claims: one ``enough`` decides."""
    if enough in verdicts:
        return enough
    return verdicts[0] if verdicts and "inconclusive" not in verdicts else "inconclusive"
