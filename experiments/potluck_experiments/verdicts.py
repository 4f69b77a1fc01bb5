"""From results to verdicts: computed, never typed.

A claim is about a mean: over the models that it names, of all pairs of its experiment. It is tried
once, with one number for each unit. At the scale drawn the unit is the base pair, the mean over its
models and seeds, and each kind of pair has a test of its own, which speaks of such pairs in
general. Elsewhere the unit is the seed, and the test speaks of these base models alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from potluck_experiments.results import Results
from potluck_experiments.statistics import MeanInterval, interval_of, p_above
from potluck_experiments.suite import Claim, Experiment, Lies, Measure, When

ClaimVerdict = Literal["shown", "refuted", "inconclusive"]
VERDICTS: tuple[ClaimVerdict, ...] = ("shown", "refuted", "inconclusive")

PLACES = ("first", "second", "third", "fourth")
"""Names of a pair's models by their places."""
FLOOR, CEILING = 0.1, 0.8
"""Out of distribution, an accuracy outside of these has no room to move: it is left out."""
OTHER_BASE = "different base models"
FULL = 0.95  # greedy accuracy above which "it rises" cannot be refuted


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """The differences of one model of one pair, or of two models, seed by seed."""

    pair: str  # FAMILY.PAIR
    model: str
    """Its name; "large minus small"; "weaker" where cells that would tell which are missing."""
    by_seed: Mapping[int, float]
    than: float  # Mean of what is subtracted
    missing: str  # Why the claim cannot be tried: "2 of 5 seeds", "different base models"
    no_room: str  # Why this model is left out: "floor", "ceiling"


@dataclass(frozen=True, slots=True)
class ClaimTest:
    """One claim, tried on the pairs of its experiment, or on those of one kind."""

    experiment: Experiment
    claim: Claim
    kind: str  # Family of the pairs; empty: all of them
    parts: tuple[ClaimPart, ...]
    difference: MeanInterval | None  # None for fewer than two units
    verdict: ClaimVerdict
    reason: str  # Why it is inconclusive; else what was left out
    p: float = 1.0
    """p-value of the claim, at most .05 where it is shown: two-sided of "above" and "below",
    one-sided of "not below", and the larger of two one-sided ones of "within"."""


def try_all(results: Results) -> list[ClaimTest]:
    """Try the claims of every experiment that has pairs at this scale."""
    return [test for each in results.suite.experiments for test in try_claims(each, results)]


def try_claims(experiment: Experiment, results: Results) -> Iterator[ClaimTest]:
    """Try each claim; at the scale drawn once for each kind of pair."""
    pairs = experiment.pairs.get(results.scale, ())
    kinds = dict.fromkeys(p.partition(".")[0] if results.of_base_pairs else "" for p in pairs)
    for claim in experiment.claims:
        for kind in (k for k in kinds if not claim.kinds or k in claim.kinds):
            inside = [pair for pair in pairs if not kind or pair.startswith(f"{kind}.")]
            parts = tuple(part for pair in inside for part in _parts(claim, pair, results))
            yield _judge(experiment, claim, kind, parts, results.of_base_pairs)


def _judge(
    experiment: Experiment, claim: Claim, kind: str, parts: tuple[ClaimPart, ...], by_pair: bool
) -> ClaimTest:
    usable = [part for part in parts if not part.no_room]
    left_out = sorted({part.no_room for part in parts if part.no_room})
    reason = f"{len(parts) - len(usable)} of {len(parts)} models left out: {', '.join(left_out)}"
    missing = min((part.missing for part in parts if part.missing), default="")
    found = interval_of([] if missing else units_of(usable, by_pair))
    told = experiment, claim, kind, parts, found
    if found is None:
        return ClaimTest(*told, "inconclusive", missing or reason)
    verdict = verdict_of(found, claim.lies, claim.margin)
    reason = reason if left_out else ""
    # Models that are full cannot rise, so that they do not rise refutes nothing. They can fall.
    full = claim.measure == "greedy" and mean(part.than for part in usable) > FULL
    if (verdict, claim.lies, full) == ("refuted", "above", True):
        verdict, reason = "inconclusive", "ceiling"
    elif verdict == "inconclusive":
        reason = "interval too wide"
    return ClaimTest(*told, verdict, reason, p_of(found, claim.lies, claim.margin))


def differences(
    results: Results,
    pairs: Sequence[str],
    sides: tuple[str, str],
    measure: Measure,
    when: When,
    place: int | None = None,
) -> list[float]:
    """Return what one setting has more than another, which no claim is about: one number for each
    unit, of the models at one place of a pair, or of all, over the seeds that both have. It is
    empty where a model has none, or another base model."""
    of = Claim(
        id="", text="", setting=sides[0], than=sides[1], measure=measure, when=when, lies="above"
    )  # fmt: skip
    every = [_parts(of, pair, results) for pair in pairs]
    parts = [part for its in every for part in (its if place is None else its[place : place + 1])]
    if any(not part.by_seed or part.missing == OTHER_BASE for part in parts):
        return []
    return units_of([part for part in parts if not part.no_room], results.of_base_pairs)


def units_of(parts: Sequence[ClaimPart], by_pair: bool) -> list[float]:
    """Return one number for each base pair, or for each seed: the mean over the models."""
    if not by_pair:
        return [mean(p.by_seed[seed] for p in parts) for seed in common(p.by_seed for p in parts)]
    pairs = dict.fromkeys(part.pair for part in parts)
    return [mean(mean(p.by_seed.values()) for p in parts if p.pair == pair) for pair in pairs]


def common(by_seed: Iterable[Mapping[int, float]]) -> list[int]:
    """Return the seeds that all have, in order."""
    each = [set(its) for its in by_seed]
    return sorted(set.intersection(*each)) if each else []


def _parts(claim: Claim, pair: str, results: Results) -> list[ClaimPart]:
    """Return the differences of the models of a pair that a claim is about."""
    about = _models(claim, pair, results)
    if not about:  # cells are missing that would tell which model is meant
        return [ClaimPart(pair, claim.node, {}, 0.0, results.too_few(0), "")]
    return [_part(claim, pair, models, results) for models in about]


def _models(claim: Claim, pair: str, results: Results) -> list[tuple[str, ...]]:
    """Return the models of a pair that a claim is about, each for itself; or two to be compared.

    Weaker and stronger by the mean of ``than`` over the seeds that every model has; of equal ones
    the first is the weaker. As ``than`` stands in the difference, too, that of the weaker looks
    better than it is, by up to .56 standard errors of ``than`` (the mean of the lower of two).
    """
    models = results.suite.models(results.scale, pair)
    if claim.node == "each":
        return [(model,) for model in models]
    named = {name: models[at : at + 1] for at, name in enumerate(PLACES)}
    named["second minus first"] = models[:2]
    if claim.node in named:
        return [named[claim.node]]
    key = claim.than, claim.measure, claim.when
    each = {model: results.by_seed(pair, model, *key) for model in models}
    seeds = common(each.values())
    ordered = sorted(models, key=lambda m: mean(each[m][seed] for seed in seeds)) if seeds else []
    return [(model,) for model in (ordered[:1] if claim.node == "weaker" else ordered[-1:])]


def _part(claim: Claim, pair: str, models: tuple[str, ...], results: Results) -> ClaimPart:
    """Take the difference of one model, or that of the second minus that of the first."""
    sides, what = (claim.setting, claim.than), (claim.measure, claim.when)
    its = {(m, side): results.by_seed(pair, m, side, *what) for m in models for side in sides}
    seeds = common(its.values())
    missing, no_room, by_seed = results.too_few(len(seeds)), "", dict.fromkeys(seeds, 0.0)
    for model in models:
        shared, alone = (its[model, side] for side in sides)
        no_room = no_room or out_of_range(claim.measure, [alone[seed] for seed in seeds])
        runs = [results.runs[pair, side][seed] for side in sides for seed in seeds]
        if len({run[model].node.base for run in runs}) > 1:
            missing = OTHER_BASE
        by_seed = {seed: shared[seed] - alone[seed] - by_seed[seed] for seed in seeds}
    than = mean(its[models[0], claim.than][seed] for seed in seeds) if seeds else 0.0
    return ClaimPart(pair, " minus ".join(models[::-1]), by_seed, than, missing, no_room)


def out_of_range(measure: Measure, than: Sequence[float]) -> str:
    """Return why accuracies out of distribution cannot be compared: floor, ceiling or ""."""
    if measure != "out-of-distribution" or not than:
        return ""
    return "floor" if mean(than) < FLOOR else "ceiling" if mean(than) > CEILING else ""


def verdict_of(difference: MeanInterval, lies: Lies, margin: float) -> ClaimVerdict:
    """Tell whether an interval lies where it has to, or elsewhere. ``margin`` in its unit.

    The interval is that at 95 %. That something is no different, or no worse, is shown by the
    interval at 90 %, which is two one-sided tests at 5 % (TOST; Schuirmann 1987).
    """
    (_, low, high, _), same = difference, difference.at(0.9)
    shown, refuted = {
        "below": (high < -margin, low >= -margin),
        "above": (low > margin, high <= margin),
        "within": (same.low >= -margin and same.high <= margin, low > margin or high < -margin),
        "not below": (same.low >= -margin, high < -margin),
    }[lies]
    return "shown" if shown else "refuted" if refuted else "inconclusive"


def p_of(difference: MeanInterval, lies: Lies, margin: float) -> float:
    """Return the p-value that is at most .05 where ``verdict_of`` says shown."""
    if difference.low == difference.high:  # no spread: shown or not, and nothing between
        return float(verdict_of(difference, lies, margin) != "shown")
    up, down = difference, difference.mirrored
    p = {"above": 2 * p_above(up, margin), "below": 2 * p_above(down, margin)}
    p["not below"] = p_above(up, -margin)
    p["within"] = max(p["not below"], p_above(down, -margin))
    return min(1.0, p[lies])


def holm(tests: Sequence[ClaimTest]) -> list[float]:
    """Return the p-values of several tests as of one family, by Holm's rule (1979): the smallest
    of n times n, the next times n - 1, and so on, none smaller than the one before."""
    order = sorted(range(len(tests)), key=lambda i: tests[i].p)
    adjusted, largest = [0.0] * len(tests), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(tests) - rank) * tests[i].p))
        adjusted[i] = largest
    return adjusted
