"""From cells to verdicts: computed, never typed.

A claim is tried on every model that it is about, of every pair of its experiment: a Finding.
It says "shown" only if the whole 95 % interval of the paired differences lies where the
claim wants it, and "refuted" only if the whole interval lies where it does not.

Each interval is one of many. A claim over several models is shown only if each of them
shows it, which many trials make harder, not easier. It is refuted if one of them refutes
it, and that many trials do make easier: so for that the interval is wider, see
``verdict_of_claim``. Findings are listed one by one so that a reader can see how many there
were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Literal

from potluck.reproduce.judge.runs import Results, Runs
from potluck.reproduce.judge.statistics import (
    Interval,
    Measure,
    interval_of,
    widened,
)
from potluck.reproduce.suite import Claim, Experiment, Scale, Suite

Verdict = Literal["shown", "refuted", "inconclusive"]

FLOOR, CEILING = 0.1, 0.8
"""Out of distribution, an accuracy outside of these has no room to move: no verdict."""
FULL = 0.95
"""Nor is there one on whether a greedy accuracy above this rises."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim, tried on one model of one pair."""

    claim: Claim
    pair: str
    """FAMILY.PAIR."""
    model: str
    """Its name; "large minus small" where it is about both; "weaker" or "stronger" where cells
    are missing that would tell which that is."""
    difference: Interval | None
    """Of the paired differences; None of fewer than two."""
    verdict: Verdict
    reason: str
    """Of one that is inconclusive: "floor", "ceiling", "2 of 5 seeds", "interval too wide". Of a
    mean of pairs also which were left out."""


def findings_of(
    suite: Suite, experiment: Experiment, scale: Scale, results: Results
) -> list[Finding]:
    """Every claim on every pair and model that it is about, claim by claim.

    Args:
        results: of one scale; stale ones count like the others, the page marks them.
    """
    pairs = [Runs(suite, scale, pair, results) for pair in experiment.pairs.get(scale, ())]
    found = []
    for claim in experiment.claims:
        if claim.over == "mean of pairs":
            families = dict.fromkeys(runs.family for runs in pairs)
            for family in families:
                found.append(_in_the_mean(claim, [r for r in pairs if r.family == family]))
        else:
            found += [finding for runs in pairs for finding in _findings(claim, runs)]
    return found


def _findings(claim: Claim, runs: Runs) -> list[Finding]:
    about = _about(claim, runs)
    if about:
        return [_finding(claim, runs, models) for models in about]
    # Cells are missing that would tell which model is meant.
    few = runs.too_few(0)
    return [Finding(claim, runs.pair, claim.node, None, "inconclusive", few)]


def _in_the_mean(claim: Claim, pairs: Sequence[Runs]) -> Finding:
    """Of one family: each seed's mean over its pairs, without those at the floor or ceiling."""
    usable: list[dict[int, float]] = []
    left_out: list[str] = []
    few = ""
    for runs in pairs:
        about = _about(claim, runs)
        few = few or ("" if about else runs.too_few(0))
        for models in about:
            by_seed, reason = _differences(claim, runs, models)
            few = few or runs.too_few(len(by_seed))
            if reason:
                left_out.append(reason)
            else:
                usable.append(by_seed)
    why = f"{len(left_out)} of {len(pairs)} pairs left out: {', '.join(sorted(set(left_out)))}"
    if few or not usable:
        return _judged(claim, pairs[0].family, claim.node, {}, few or why)
    seeds = sorted(set.intersection(*map(set, usable)))
    means = {seed: mean(each[seed] for each in usable) for seed in seeds}
    found = _judged(claim, pairs[0].family, claim.node, means, "")
    return replace(found, reason=why) if left_out and not found.reason else found


def _about(claim: Claim, runs: Runs) -> list[tuple[str, ...]]:
    """The models of a pair that a claim is about, each for itself; or two that it compares.

    Weaker and stronger by the mean of ``than`` over the seeds that every model has; of equal
    ones the first is the weaker. That ``than`` also stands in the difference: of two models that
    are about equally good, the one whose seeds fell out badly is called the weaker, and
    its difference then looks better than it is, by up to .56 standard errors of ``than`` (the
    mean of the lower of two). Where they are several standard errors apart this vanishes.
    """
    models = runs.models
    match claim.node:
        case "each" | "any":
            return [(model,) for model in models]
        case "first":
            return [models[:1]]
        case "second":
            return [models[1:2]]
        case "second minus first":
            return [models[:2]]
        case "weaker" | "stronger":
            ordered = _by_strength(claim, runs)
            return [ordered[:1] if claim.node == "weaker" else ordered[-1:]] if ordered else []


def _by_strength(claim: Claim, runs: Runs) -> tuple[str, ...]:
    """From the weakest to the strongest; none if there is no seed that all have."""
    value = {m: runs.values(m, claim.than, claim.measure, claim.when) for m in runs.models}
    shared = set.intersection(*(set(by_seed) for by_seed in value.values()))
    if not shared:
        return ()
    return tuple(sorted(runs.models, key=lambda m: mean(value[m][s] for s in sorted(shared))))


def _finding(claim: Claim, runs: Runs, models: tuple[str, ...]) -> Finding:
    """Of one model; of two, the second's difference minus the first's."""
    by_seed, reason = _differences(claim, runs, models)
    return _judged(claim, runs.pair, " minus ".join(reversed(models)), by_seed, reason)


def _differences(claim: Claim, runs: Runs, models: tuple[str, ...]) -> tuple[dict[int, float], str]:
    """By seed; and why they allow no verdict, if they do not."""
    what = [runs.values(m, claim.setting, claim.measure, claim.when) for m in models]
    than = [runs.values(m, claim.than, claim.measure, claim.when) for m in models]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in what + than)))
    first, last = (
        {seed: pair[0][seed] - pair[1][seed] for seed in seeds}
        for pair in ((what[0], than[0]), (what[-1], than[-1]))
    )
    differences = first if len(models) == 1 else {s: last[s] - first[s] for s in seeds}
    reason = runs.too_few(len(seeds))
    for model, control in zip(models, than, strict=True):
        reached = [control[seed] for seed in seeds]
        reason = reason or out_of_range(claim.measure, reached) or _no_room(claim, reached)
        bases = {runs.of(model, setting)[s].base for setting in (claim.setting, claim.than)
                 for s in seeds}  # fmt: skip
        reason = reason or ("different base models" if len(bases) > 1 else "")
    return differences, reason


def _judged(
    claim: Claim, pair: str, model: str, by_seed: Mapping[int, float], reason: str
) -> Finding:
    difference = interval_of(list(by_seed.values()))
    verdict: Verdict = "inconclusive"
    if not reason and difference is not None:
        verdict = verdict_of(difference, claim.lies, claim.margin)
        reason = "interval too wide" if verdict == "inconclusive" else ""
    return Finding(claim, pair, model, difference, verdict, reason)


def out_of_range(measure: Measure, than: Sequence[float]) -> str:
    """Why accuracies out of distribution cannot be compared: floor, ceiling or ""."""
    if measure != "out-of-distribution" or not than:
        return ""
    return "floor" if mean(than) < FLOOR else "ceiling" if mean(than) > CEILING else ""


def _no_room(claim: Claim, than: Sequence[float]) -> str:
    """A model that is full cannot rise, so that it does not refutes nothing. It can fall."""
    full = claim.lies == "above" and bool(than) and mean(than) > FULL
    return "ceiling" if full and claim.measure == "greedy" else ""


def verdict_of(
    difference: Interval, lies: Literal["below", "above", "within", "not below"], margin: float
) -> Verdict:
    """Whether an interval lies where it has to. ``margin`` in accuracy, as the interval.

    | lies | shown | refuted |
    |---|---|---|
    | below | high < -margin | low >= -margin |
    | above | low > margin | high <= margin |
    | within | low >= -margin and high <= margin | low > margin or high < -margin |
    | not below | low >= -margin | high < -margin |
    """
    low, high = difference.low, difference.high
    match lies:
        case "below":
            shown, refuted = high < -margin, low >= -margin
        case "above":
            shown, refuted = low > margin, high <= margin
        case "within":
            shown = low >= -margin and high <= margin
            refuted = low > margin or high < -margin
        case "not below":
            shown, refuted = low >= -margin, high < -margin
    return "shown" if shown else "refuted" if refuted else "inconclusive"


def verdict_of_claim(findings: Sequence[Finding]) -> Verdict:
    """Of one claim over all that it was tried on.

    It is a claim about every pair. In each, it is about every model that it names, so one
    that refutes it is enough; only with node "any" is one that shows it enough. Of m that
    are tried one is refuted by chance the sooner the larger m is: so "refuted" is said of a
    claim only if one is at the level 1 - .05 / m (Bonferroni).
    """
    pairs: dict[str, list[Verdict]] = {}
    for finding in findings:
        pairs.setdefault(finding.pair, []).append(_among(len(findings), finding))
    some = bool(findings) and findings[0].claim.node == "any"
    return _all_of([_any_of(v) if some else _all_of(v) for v in pairs.values()])


def _among(tests: int, finding: Finding) -> Verdict:
    """A finding's verdict as one of many tests."""
    if finding.verdict != "refuted" or finding.difference is None:
        return finding.verdict
    wide = widened(finding.difference, tests)
    refuted = verdict_of(wide, finding.claim.lies, finding.claim.margin) == "refuted"
    return "refuted" if refuted else "inconclusive"


def verdict_on(findings: Sequence[Finding]) -> Verdict:
    """Of an experiment: all its claims are shown, or one of them is refuted, or neither."""
    claims: dict[Claim, list[Finding]] = {}
    for finding in findings:
        claims.setdefault(finding.claim, []).append(finding)
    return _all_of([verdict_of_claim(tried) for tried in claims.values()])


def _all_of(verdicts: Sequence[Verdict]) -> Verdict:
    if "refuted" in verdicts:
        return "refuted"
    return "shown" if verdicts and set(verdicts) == {"shown"} else "inconclusive"


def _any_of(verdicts: Sequence[Verdict]) -> Verdict:
    if "shown" in verdicts:
        return "shown"
    return "refuted" if verdicts and set(verdicts) == {"refuted"} else "inconclusive"
