"""experiments/NAME/RESULTS.md: one experiment, its claims tried one by one."""

from collections.abc import Sequence

from potluck.reproduce.judge.verdict import Finding, findings_of, verdict_of_claim, verdict_on
from potluck.reproduce.page.finished import Finished
from potluck.reproduce.page.markdown import cell, counted, gain, gain_within, table
from potluck.reproduce.page.words import setting_title, tried_on
from potluck.reproduce.suite import Claim, Experiment

MADE = "<!-- Written by `potluck reproduce --render` from the finished cells. Do not edit. -->"


def experiment_page(experiment: Experiment, scales: Sequence[Finished]) -> str:
    """The whole file."""
    what = f"Figure {experiment.figure} of the paper"
    if experiment.figure.startswith("Table"):
        what = f"{experiment.figure} of the paper"
    parts = [
        MADE,
        f"# {experiment.title}",
        f"{what if experiment.figure else 'Not in the paper: our own question'}. "
        f"What the words mean, and all results together: [docs/results.md](../../docs/results.md). "
        f"Rerun: `potluck reproduce {experiment.name.partition('_')[0]} --again`.",
        _settings(experiment, scales[0]),
    ]
    parts += [_scale(experiment, there) for there in scales if there.scale in experiment.pairs]
    if experiment.notes:
        parts += ["## What was tried, and what differs", experiment.notes]
    parts += ["## Changes of the claims after the first run", _changes(experiment)]
    return "\n\n".join(parts) + "\n"


def _settings(experiment: Experiment, there: Finished) -> str:
    titles = [setting_title(there.suite, name) for name in experiment.settings]
    return "\n".join(["Settings:", "", *(f"- {cell(title)}" for title in titles)])


def _scale(experiment: Experiment, there: Finished) -> str:
    heading, results = f"## Scale: {there.scale}", there.of(experiment)
    if not results:
        return f"{heading}\n\nNot run yet."
    findings = findings_of(there.suite, experiment, there.scale, there.results)
    seeds = sorted({result.seed for result in results.values()})
    parts = [
        heading,
        f"{counted(len(results), 'cell')} of {counted(len(seeds), 'seed')}. "
        f"All claims together: **{verdict_on(findings)}**.",
    ]
    parts += [
        _claim(claim, [f for f in findings if f.claim == claim], experiment, there)
        for claim in experiment.claims
    ]
    picture = f"../../docs/results/{picture_name(experiment, there)}"
    parts += ["### Curves", f"![{cell(experiment.title)}: curves]({picture})"]
    return "\n\n".join(parts)


def picture_name(experiment: Experiment, there: Finished) -> str:
    """Of the file in docs/results/."""
    return f"{experiment.name}-{there.scale}.png"


def _claim(
    claim: Claim, findings: Sequence[Finding], experiment: Experiment, there: Finished
) -> str:
    rows = [
        [
            cell(tried_on(there.suite, there.scale, experiment, f.pair)),
            f"`{f.model}`",
            gain_within(f.difference),
            str(f.difference.n if f.difference else "-"),
            f.verdict,
            f.reason,
        ]
        for f in findings
    ]
    head = ["pair", "model", f"{claim.setting} - {claim.than} [95 %]", "seeds", "verdict", "reason"]
    return "\n\n".join(
        [
            f"### {said(claim)}. {_capital(verdict_of_claim(findings))}.",
            _test(claim) + _not_at_the_level(findings),
            table(head, rows),
        ]
    )


def _not_at_the_level(findings: Sequence[Finding]) -> str:
    """Why a claim is not refuted though a test is; "" if there is nothing to explain."""
    refuted = sum(finding.verdict == "refuted" for finding in findings)
    if not refuted or findings[0].claim.node == "any" or verdict_of_claim(findings) == "refuted":
        return ""
    return (
        f" Of {counted(len(findings), 'test')} {refuted} refuted at 95 %, none at the level "
        f"1 - .05/{len(findings)} that refutes the claim."
    )


def said(claim: Claim) -> str:
    """Without a full stop."""
    return cell(claim.text.rstrip("."))


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


LIES = {
    "below": "lies below {low}",
    "above": "lies above {high}",
    "within": "lies from {low} to {high}",
    "not below": "does not lie below {low}",
}
MEASURES = {
    "greedy": "greedy accuracy",
    "sampled": "sampled reward",
    "out-of-distribution": "greedy accuracy out of distribution",
}
WHEN = {"early": "over the first half of the rounds", "end": "at the end"}
WHOSE = {
    "each": "of each model",
    "any": "of at least one model of a pair",
    "first": "of the first model of a pair",
    "second": "of the second model of a pair",
    "weaker": "of the model of a pair that is weaker in it under `{than}`",
    "stronger": "of the model of a pair that is stronger in it under `{than}`",
    "second minus first": "of the second model, minus the same of the first,",
}


def _test(claim: Claim) -> str:
    """The claim as it is computed."""
    lies = LIES[claim.lies].format(low=gain(-claim.margin), high=gain(claim.margin))
    whose = WHOSE[claim.node].format(than=claim.than)
    if claim.over == "mean of pairs":
        whose += ", in the mean over the pairs of a task that have room to move,"
    return (
        f"Tested as: `{claim.setting}` minus `{claim.than}`, {MEASURES[claim.measure]} "
        f"{WHEN[claim.when]}, {whose} {lies}."
    ).replace(",,", ",")


def _changes(experiment: Experiment) -> str:
    if not experiment.changes:
        return "None."
    return "\n".join(f"- {' '.join(change.split())}" for change in experiment.changes)
